"""Small dense linear algebra: C routines on whole row-major arrays, and calls of them.

The routines work in place and return whether they failed (a singular or indefinite matrix). Sizes
are constants where they are called, so the compiler unrolls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fullgraph.native.ops._registry import Refused
from fullgraph.native.scalar import SINGULAR

if TYPE_CHECKING:
    from fullgraph.native.ir import Kernel

__all__ = ["KERNELS", "kernel_lines"]

# {t} is double or float, {s} the suffix of its names and functions.
KERNELS: Final[dict[str, str]] = {
    "fg_solve": """\
static inline int64_t fg_solve{s}({t} *restrict a, {t} *restrict b, int n, int m) {{
  for (int k = 0; k < n; ++k) {{
    int p = k;
    for (int i = k + 1; i < n; ++i)
      if (fabs{s}(a[i * n + k]) > fabs{s}(a[p * n + k])) p = i;
    if (a[p * n + k] == 0) return 1;
    if (p != k) {{
      for (int j = 0; j < n; ++j) {{
        const {t} x = a[k * n + j];
        a[k * n + j] = a[p * n + j];
        a[p * n + j] = x;
      }}
      for (int j = 0; j < m; ++j) {{
        const {t} x = b[k * m + j];
        b[k * m + j] = b[p * m + j];
        b[p * m + j] = x;
      }}
    }}
    for (int i = k + 1; i < n; ++i) {{
      const {t} f = a[i * n + k] / a[k * n + k];
      for (int j = k + 1; j < n; ++j) a[i * n + j] -= f * a[k * n + j];
      for (int j = 0; j < m; ++j) b[i * m + j] -= f * b[k * m + j];
    }}
  }}
  for (int i = n - 1; i >= 0; --i)
    for (int j = 0; j < m; ++j) {{
      {t} x = b[i * m + j];
      for (int k = i + 1; k < n; ++k) x -= a[i * n + k] * b[k * m + j];
      b[i * m + j] = x / a[i * n + i];
    }}
  return 0;
}}
""",
    "fg_det": """\
static inline {t} fg_det{s}({t} *restrict a, int n) {{
  {t} product = 1;
  for (int k = 0; k < n; ++k) {{
    int p = k;
    for (int i = k + 1; i < n; ++i)
      if (fabs{s}(a[i * n + k]) > fabs{s}(a[p * n + k])) p = i;
    if (a[p * n + k] == 0) return 0;
    if (p != k) {{
      product = -product;
      for (int j = k; j < n; ++j) {{
        const {t} x = a[k * n + j];
        a[k * n + j] = a[p * n + j];
        a[p * n + j] = x;
      }}
    }}
    product *= a[k * n + k];
    for (int i = k + 1; i < n; ++i) {{
      const {t} f = a[i * n + k] / a[k * n + k];
      for (int j = k + 1; j < n; ++j) a[i * n + j] -= f * a[k * n + j];
    }}
  }}
  return product;
}}
""",
    "fg_cholesky": """\
static inline int64_t fg_cholesky{s}({t} *restrict a, int n) {{
  for (int j = 0; j < n; ++j) {{
    {t} d = a[j * n + j];
    for (int k = 0; k < j; ++k) d -= a[j * n + k] * a[j * n + k];
    if (!(d > 0)) return 1;
    const {t} root = sqrt{s}(d);
    a[j * n + j] = root;
    for (int i = j + 1; i < n; ++i) {{
      {t} x = a[i * n + j];
      for (int k = 0; k < j; ++k) x -= a[i * n + k] * a[j * n + k];
      a[i * n + j] = x / root;
    }}
    for (int i = 0; i < j; ++i) a[i * n + j] = 0;
  }}
  return 0;
}}
""",
    "fg_triangular": """\
static inline void fg_triangular{s}(
    const {t} *restrict a, {t} *restrict b, int n, int m, bool upper, bool unit) {{
  for (int r = 0; r < n; ++r) {{
    const int i = upper ? n - 1 - r : r;
    for (int j = 0; j < m; ++j) {{
      {t} x = b[i * m + j];
      for (int k = upper ? i + 1 : 0; k < (upper ? n : i); ++k) x -= a[i * n + k] * b[k * m + j];
      b[i * m + j] = unit ? x : x / a[i * n + i];
    }}
  }}
}}
""",
}


def kernel_lines(node: Kernel, args: list[str], result: str) -> list[str]:
    """Return statements that compute `result` from the arrays `args`, which they may overwrite."""
    s = "f" if node.dtype.name == "float32" else ""
    shape = node.args[0].shape
    batch, n = shape[0], shape[-1]
    m = node.shape[-1]
    a, at_a, at_r = args[0], f"q * {n * n}", f"q * {n * m}"
    size = f"sizeof({node.dtype.c}) * {node.size}"
    failed = f"? {SINGULAR} : 0;"
    match node.name:
        case "solve":
            before = [f"memcpy({result}, {args[1]}, {size});"]
            call = f"status |= fg_solve{s}({a} + {at_a}, {result} + {at_r}, {n}, {m}) {failed}"
        case "inv":
            before = [
                f"memset({result}, 0, {size});",
                f"for (int q = 0; q < {batch}; ++q)",
                f"  for (int i = 0; i < {n}; ++i) {result}[q * {n * n} + i * {n + 1}] = 1;",
            ]
            call = f"status |= fg_solve{s}({a} + {at_a}, {result} + {at_r}, {n}, {n}) {failed}"
        case "det":
            before = []
            call = f"{result}[q] = fg_det{s}({a} + {at_a}, {n});"
        case "cholesky":
            before = [f"memcpy({result}, {a}, {size});"]
            call = f"status |= fg_cholesky{s}({result} + {at_r}, {n}) {failed}"
        case "triangular":
            upper, unit = (int(option) for option in node.options)
            before = [f"memcpy({result}, {args[1]}, {size});"]
            call = f"fg_triangular{s}({a} + {at_a}, {result} + {at_r}, {n}, {m}, {upper}, {unit});"
        case _:
            raise Refused(f"this result of {node.name}")
    return [*before, f"for (int q = 0; q < {batch}; ++q) {call}"]
