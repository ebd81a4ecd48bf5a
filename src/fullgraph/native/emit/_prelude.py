"""The head of a generated file: includes, vector math bindings, and the helpers that are used."""

from __future__ import annotations

import re
from typing import Final

from fullgraph.native.emit._kernels import KERNELS
from fullgraph.native.scalar import VECTOR_MATH

__all__ = ["prelude", "sleef_symbols"]

_HEAD: Final = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
"""

# tanh by two formulas, where a library's tanh costs more than both: up to 0.625 an odd polynomial
# (a Chebyshev fit made with mpmath, relative error 5e-17), beyond it 1 - 2 / (exp(2 x) + 1).
_TANH_COEFFICIENTS: Final = (
    *(-1.7244874494844330172e-5, 7.9599557352648080002e-5, -2.30776162695198579e-4),
    *(5.8743728600943818973e-4, -1.455309297534642025e-3, 3.5920589774734553151e-3),
    *(-8.8632298309257087457e-3, 2.1869488260559114645e-2, -5.3968253961395570821e-2),
    *(1.3333333333326657736e-1, -3.3333333333333322565e-1),
)


def _tanh() -> str:
    lines = [
        "static inline double fg_quick_tanh(double x) {",
        "  const double a = fabs(x), s = x * x;",
        f"  double p = {_TANH_COEFFICIENTS[0]!r};",
        *(f"  p = fg_fma(p, s, {c!r});" for c in _TANH_COEFFICIENTS[1:]),
        "  const double small = fg_fma(x * s, p, x);",
        "  const double large = 1 - 2 / (exp(a + a) + 1);",
        "  return copysign(a < 0.625 ? small : large, x);",
        "}",
        "",
    ]
    return "\n".join(lines)


# Helpers by name; a helper may use the ones before it. {t} is double or float, {s} its suffix.
_REAL_HELPERS: Final = {
    "fg_floor_div": """\
static inline {t} fg_floor_div{s}({t} a, {t} b) {{
  if (b == 0) return a / b;
  const {t} rest = fmod{s}(a, b);
  {t} quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return copysign{s}(0, a / b);
  const {t} below = floor{s}(quotient);
  return quotient - below > ({t})0.5 ? below + 1 : below;
}}
""",
    "fg_remainder": """\
static inline {t} fg_remainder{s}({t} a, {t} b) {{
  const {t} rest = fmod{s}(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}}
""",
}

_HELPERS: Final = {
    "fg_quotient": """\
static inline int64_t fg_quotient(int64_t a, int64_t b) {
  return b == -1 ? -a : b == 0 ? 0 : a / b;
}
""",
    "fg_floor_quotient": """\
static inline int64_t fg_floor_quotient(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return b ? -a : 0;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
""",
    "fg_rest": """\
static inline int64_t fg_rest(int64_t a, int64_t b) {
  return b == 0 || b == -1 ? 0 : a % b;
}
""",
    "fg_modulo": """\
static inline int64_t fg_modulo(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
""",
    "fg_ipow": """\
static inline int64_t fg_ipow(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, factor = (uint64_t)base;
  for (; exponent; exponent >>= 1, factor *= factor)
    if (exponent & 1) result *= factor;
  return (int64_t)result;
}
""",
    "fg_shift_left": """\
#define fg_shift_left(a, b, t) \\
  ((b) < 0 || (b) >= (int64_t)(8 * sizeof(t)) ? (t)0 : (t)((uint64_t)(a) << (b)))
""",
    "fg_shift_right": """\
#define fg_shift_right(a, b, t) \\
  ((b) < 0 || (b) >= (int64_t)(8 * sizeof(t)) ? (t)((a) < 0 ? -1 : 0) : (t)((a) >> (b)))
""",
    "fg_interrupted": """\
// Signals are Python's: its functions are bound when the file is loaded. An exception that a
// handler raises waits here for fg_raise, in the thread that runs the loop.
static void *fg_python[5];
static __thread void *fg_error[3];
void fg_attach(void **table) { memcpy(fg_python, table, sizeof fg_python); }
void fg_raise(void) {
  ((void (*)(void *, void *, void *))fg_python[4])(fg_error[0], fg_error[1], fg_error[2]);
}
static __attribute__((noinline, cold)) bool fg_interrupted(void) {
  if (!fg_python[0]) return false;
  const int state = ((int (*)(void))fg_python[0])();
  const bool raised = ((int (*)(void))fg_python[1])() != 0;
  if (raised)
    ((void (*)(void **, void **, void **))fg_python[2])(fg_error, fg_error + 1, fg_error + 2);
  ((void (*)(int))fg_python[3])(state);
  return raised;
}
""",
    "fg_fma": """\
#ifdef __FMA__
#define fg_fma(a, b, c) __builtin_fma(a, b, c)
#define fg_fmaf(a, b, c) __builtin_fmaf(a, b, c)
#else
#define fg_fma(a, b, c) ((a) * (b) + (c))
#define fg_fmaf(a, b, c) ((a) * (b) + (c))
#endif
""",
}

_VECTORS: Final = """\
#define FG_HIDDEN __attribute__((visibility("hidden")))
typedef double fg_d2 __attribute__((vector_size(16)));
typedef double fg_d4 __attribute__((vector_size(32)));
typedef double fg_d8 __attribute__((vector_size(64)));
typedef float fg_f4 __attribute__((vector_size(16)));
typedef float fg_f8 __attribute__((vector_size(32)));
typedef float fg_f16 __attribute__((vector_size(64)));
"""

_VECTOR_MEMORY: Final = """\
typedef double fg_d4_memory __attribute__((vector_size(32), aligned(8), may_alias));
typedef float fg_f8_memory __attribute__((vector_size(32), aligned(4), may_alias));
#ifdef __FMA__
#define fg_fma_d4(a, b, c) ((fg_d4)__builtin_ia32_vfmaddpd256(a, b, c))
#define fg_fma_f8(a, b, c) ((fg_f8)__builtin_ia32_vfmaddps256(a, b, c))
#else
#define fg_fma_d4(a, b, c) ((a) * (b) + (c))
#define fg_fma_f8(a, b, c) ((a) * (b) + (c))
#endif
"""


def sleef_symbols(used: list[str], isa: str) -> list[str]:
    """Return the Sleef symbols a file binds, in the order of its binding table.

    Parameters
    ----------
    used : list of str
        Names as from `used_math`, with the suffix ``f`` for float32.
    isa : {"avx2", "avx512f"}
        Which family of vector routines.
    """
    symbols: list[str] = []
    for name in used:
        base, real32 = _split(name)
        tag = VECTOR_MATH[base][1]
        for wide in (False, True) if isa == "avx512f" else (False,):
            lanes = (16 if wide else 8) if real32 else (8 if wide else 4)
            family = "avx512f" if wide else "avx2"
            symbols.append(f"Sleef_{base}{'f' if real32 else 'd'}{lanes}_{tag}{family}")
    return symbols


def _split(name: str) -> tuple[str, bool]:
    if name in VECTOR_MATH:
        return name, False
    return name.removesuffix("f"), True


def used_math(body: str) -> list[str]:
    """Return the math functions that `body` calls through the ``fg_`` names, sorted."""
    names = {*VECTOR_MATH, *(f"{n}f" for n in VECTOR_MATH)}
    return sorted(set(re.findall(r"\bfg_(\w+)\(", body)) & names)


def prelude(body: str, isa: str) -> tuple[str, list[str]]:
    """Return the head of the file for `body`, and the symbols to bind when it is loaded.

    Parameters
    ----------
    body : str
        Everything after the head.
    isa : {"", "avx2", "avx512f"}
        Vector routines to bind; ``""`` leaves all math to the C library.
    """
    used = used_math(body)
    quick_tanh = bool(isa) and "tanh" in used
    bound = sorted({*used, "exp"} - {"tanh"}) if quick_tanh else used
    parts = [_HEAD, *_helpers(f"{body} fg_fma" if quick_tanh else body)]
    memory = "_memory *)" in body
    if memory or (isa and bound):
        parts.append(_VECTORS)
    if memory:
        parts.append(_VECTOR_MEMORY)
    names = {n: "fg_quick_tanh" if quick_tanh and n == "tanh" else n for n in used}
    parts += [f"#define fg_{name} {target}\n" for name, target in names.items()]
    if not isa or not bound:
        return "\n".join(parts), []
    parts += [_binding(n, isa) for n in bound]
    if quick_tanh:
        parts.append(_tanh())
    pointers = [p for n in bound for p in _pointers(n, isa)]
    fill = "\n".join(f"  {p} = table[{i}];" for i, p in enumerate(pointers))
    parts.append(f"void fg_bind(void **table) {{\n{fill}\n}}\n")
    return "\n".join(parts), sleef_symbols(bound, isa)


def _helpers(body: str) -> list[str]:
    """Return the helpers that `body` uses."""
    parts = [text for name, text in _HELPERS.items() if re.search(rf"\b{name}f?\b", body)]
    for name, text in (*_REAL_HELPERS.items(), *KERNELS.items()):
        for c_type, suffix in (("double", ""), ("float", "f")):
            if re.search(rf"\b{name}{suffix}\(", body):
                parts.append(text.format(t=c_type, s=suffix))
    return parts


def _pointers(name: str, isa: str) -> list[str]:
    wide = [f"fg_wide_{name}"] if isa == "avx512f" else []
    return [f"fg_vector_{name}", *wide]


def _binding(name: str, isa: str) -> str:
    """Return declarations that let the compiler call Sleef from vectorised loops.

    The names ``_ZGV...`` are those the vector function ABI gives to the variants of a function
    declared ``simd``; each variant jumps through a pointer that is filled when the file is loaded.
    """
    base, real32 = _split(name)
    arity = VECTOR_MATH[base][0]
    scalar = "float" if real32 else "double"
    small, middle, big = ("fg_f4", "fg_f8", "fg_f16") if real32 else ("fg_d2", "fg_d4", "fg_d8")
    n = 4 if real32 else 2
    v = "v" * arity
    formal = ["x", "y"][:arity]

    def params(t: str) -> str:
        return ", ".join(f"{t} {a}" for a in formal)

    args = ", ".join(formal)
    widened = ", ".join(
        f"({middle}){{{', '.join([f'{a}[{i}]' for i in range(n)])}}}" for a in formal
    )
    taken = ", ".join(f"r[{i}]" for i in range(n))
    lines = [
        f'__attribute__((const, simd("notinbranch"))) {scalar} {name}({params(scalar)});',
        f"static void *fg_vector_{name};",
        f"typedef {middle} (*fg_vector_type_{name})({params(middle)});",
    ]
    for letter in "cd":  # AVX and AVX2 callers
        symbol = f"_ZGV{letter}N{2 * n}{v}_{name}"
        lines += [
            f'FG_HIDDEN {middle} fg_{letter}_{name}({params(middle)}) __asm__("{symbol}");',
            (
                f"{middle} fg_{letter}_{name}({params(middle)}) "
                f"{{ return ((fg_vector_type_{name})fg_vector_{name})({args}); }}"
            ),
        ]
    symbol = f"_ZGVbN{n}{v}_{name}"
    lines += [
        f'FG_HIDDEN {small} fg_b_{name}({params(small)}) __asm__("{symbol}");',
        f"{small} fg_b_{name}({params(small)}) {{",
        f"  const {middle} r = ((fg_vector_type_{name})fg_vector_{name})({widened});",
        f"  return ({small}){{{taken}}};",
        "}",
    ]
    if isa == "avx512f":
        symbol = f"_ZGVeN{4 * n}{v}_{name}"
        lines += [
            f"static void *fg_wide_{name};",
            f"typedef {big} (*fg_wide_type_{name})({params(big)});",
            f'FG_HIDDEN {big} fg_e_{name}({params(big)}) __asm__("{symbol}");',
            (
                f"{big} fg_e_{name}({params(big)}) "
                f"{{ return ((fg_wide_type_{name})fg_wide_{name})({args}); }}"
            ),
        ]
    return "\n".join(lines) + "\n"
