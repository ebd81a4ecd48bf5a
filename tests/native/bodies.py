"""Random loop bodies as Python source, for the fuzzer."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

DIMS = (1, 2, 3, 5, 17)


@dataclass
class Value:
    """A name in the source, with shape and kind (f, i, b)."""

    name: str
    shape: tuple[int, ...]
    kind: str = "f"


def joined(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the broadcast shape, or None."""
    result = []
    for i in range(max(len(a), len(b))):
        m = a[-1 - i] if i < len(a) else 1
        n = b[-1 - i] if i < len(b) else 1
        if m != n and 1 not in (m, n):
            return None
        result.append(max(m, n))
    return tuple(reversed(result))


UNARY = (
    *("torch.sin({0})", "torch.cos({0})", "torch.tanh({0})", "torch.exp(-{0}.abs())"),
    *("torch.log({0}.abs() + 0.5)", "torch.sqrt({0}.abs() + 0.1)", "-{0}", "{0}.abs()"),
    *("torch.erf({0})", "torch.sigmoid({0})", "torch.atan({0})", "{0} ** 2", "{0} * 0.7 + 0.3"),
    *(
        "{0}.clamp(-0.5, 0.8)",
        "torch.relu({0})",
        "torch.floor({0} * 3 + 0.123)",
        "1 / (1 + {0} ** 2)",
    ),
    *("torch.expm1({0} * 0.1)", "torch.log1p({0}.abs())", "torch.asinh({0})", "{0} ** 3 * 0.1"),
)
BINARY = (
    *("{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / ({1}.abs() + 1)", "torch.maximum({0}, {1})"),
    *("torch.minimum({0}, {1})", "torch.atan2({0}, {1}.abs() + 0.1)", "torch.hypot({0}, {1})"),
    *("torch.where({0} > {1} + 0.0123, {0}, {1})", "torch.add({0}, {1}, alpha=0.5)"),
    *("torch.remainder({0}, {1}.abs() + 1)", "({0}.abs() + 0.1) ** ({1}.clamp(-2, 2))"),
)
WHOLE = (
    *("{0} + 1", "{0} * 3 % 17", "{0} // 2", "{0}.abs()", "({0} & 7) + 1", "{0} ^ 5", "-{0}"),
    *("{0} - {0} % 5", "torch.clamp({0}, -9, 9)", "({0} + 3) ** 2 % 11"),
)


@dataclass
class Maker:
    """Grows a body, one assignment after the other."""

    random: random.Random
    values: list[Value] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def add(self, text: str, shape: tuple[int, ...], kind: str = "f") -> None:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.values.append(Value(name, shape, kind))

    def pick(self, kind: str = "f", rank: int = 0) -> Value | None:
        found = [v for v in self.values if v.kind == kind and len(v.shape) >= rank]
        return self.random.choice(found[-8:] + found) if found else None

    def step(self) -> None:
        """Add one operation of a random family, if it fits a random value."""
        often = ("unary", "unary", "binary", "binary", "binary", "view", "view")
        rest = (
            "whole",
            "compare",
            "reduce",
            "join",
            "index",
            "product",
            "running",
            "create",
            "cast",
        )
        family = self.random.choice((*often, *rest))
        getattr(self, f"_{family}")()

    def _unary(self) -> None:
        if a := self.pick():
            self.add(self.random.choice(UNARY).format(a.name), a.shape)

    def _binary(self) -> None:
        a, b = self.pick(), self.pick()
        if a and b and (shape := joined(a.shape, b.shape)) is not None:
            self.add(self.random.choice(BINARY).format(a.name, b.name), shape)

    def _whole(self) -> None:
        if a := self.pick("i"):
            self.add(self.random.choice(WHOLE).format(a.name), a.shape, "i")

    def _compare(self) -> None:
        a, b, m = self.pick(), self.pick(), self.pick("b")
        if a and b and (shape := joined(a.shape, b.shape)) is not None:
            sign = self.random.choice(("<", ">", "<=", ">="))
            self.add(f"{a.name} {sign} {b.name} + 0.0101", shape, "b")
        if m and a and (shape := joined(a.shape, m.shape)) is not None:
            text = self.random.choice(
                ("torch.where({1}, {0}, 0.25)", "{0} * {1}", "{0}.masked_fill({1}, -0.5)")
            )
            if "masked" not in text or shape == a.shape:
                self.add(text.format(a.name, m.name), shape)

    def _view(self) -> None:
        a = self.pick(self.random.choice("ffi"), rank=1)
        if not a:
            return
        d = self.random.randrange(len(a.shape))
        n, shape = a.shape[d], list(a.shape)
        choice = self.random.randrange(9)
        if choice == 0:
            i = self.random.randrange(n)
            self.add(f"{a.name}.select({d}, {i})", (*shape[:d], *shape[d + 1 :]), a.kind)
        elif choice == 1:
            start, step = self.random.randrange(n), self.random.choice((1, 1, 2))
            shape[d] = len(range(start, n, step))
            index = ", ".join([":"] * d + [f"{start}::{step}"])
            self.add(f"{a.name}[{index}]", tuple(shape), a.kind)
        elif choice == 2:
            order = list(range(len(shape)))
            self.random.shuffle(order)
            text = f"{a.name}.permute({tuple(order)})"
            self.add(text, tuple(shape[k] for k in order), a.kind)
        elif choice == 3:
            self.add(f"{a.name}.flip({d})", tuple(shape), a.kind)
        elif choice == 4:
            shift = self.random.randrange(-n, n + 1)
            self.add(f"torch.roll({a.name}, {shift}, {d})", tuple(shape), a.kind)
        elif choice == 5 and len(shape) < 3:
            self.add(f"{a.name}.unsqueeze({d})", (*shape[:d], 1, *shape[d:]), a.kind)
        elif choice == 6:
            size = 1
            for m in shape:
                size *= m
            self.add(f"{a.name}.reshape(-1)", (size,), a.kind)
        elif choice == 7 and shape[-1] < 9:
            left, right = self.random.randrange(3), self.random.randrange(3)
            shape[-1] += left + right
            self.add(f"torch.nn.functional.pad({a.name}, ({left}, {right}))", tuple(shape), a.kind)
        elif choice == 8 and n == 1:
            shape[d] = 3
            self.add(f"{a.name}.expand({tuple(shape)})", tuple(shape), a.kind)

    def _reduce(self) -> None:
        a = self.pick("f", rank=1)
        if not a:
            return
        d = self.random.randrange(len(a.shape))
        keep = self.random.random() < 0.4
        shape = list(a.shape)
        shape[d] = 1
        if not keep:
            del shape[d]
        fn = self.random.choice(("sum", "mean", "amax", "amin", "prod", "argmax", "all"))
        if fn == "argmax":
            self.add(f"{a.name}.argmax({d}, keepdim={keep})", tuple(shape), "i")
        elif fn == "all":
            self.add(f"({a.name} > 0.0107).all({d}, keepdim={keep})", tuple(shape), "b")
        elif self.random.random() < 0.2:
            self.add(f"{a.name}.sum()", ())
        else:
            text = f"{a.name}.tanh().prod" if fn == "prod" else f"{a.name}.{fn}"
            self.add(f"{text}({d}, keepdim={keep})", tuple(shape))

    def _join(self) -> None:
        a, b = self.pick("f", rank=1), self.pick("f", rank=1)
        if not a or not b or len(a.shape) != len(b.shape):
            return
        d = self.random.randrange(len(a.shape))
        shape = list(a.shape)
        if a.shape == b.shape and len(shape) < 3 and self.random.random() < 0.5:
            self.add(f"torch.stack([{a.name}, {b.name}], {d})", (*shape[:d], 2, *shape[d:]))
        elif all(m == n for k, (m, n) in enumerate(zip(shape, b.shape, strict=True)) if k != d):
            shape[d] += b.shape[d]
            if shape[d] < 40:
                self.add(f"torch.cat([{a.name}, {b.name}], {d})", tuple(shape))

    def _index(self) -> None:
        a, i = self.pick("f", rank=1), self.pick("i")
        if not a:
            return
        d = self.random.randrange(len(a.shape))
        n = a.shape[d]
        if i and i.shape and len(i.shape) == 1 and len(a.shape) + 0 < 4:
            shape = (*a.shape[:d], i.shape[0], *a.shape[d + 1 :])
            self.add(f"{a.name}.index_select({d}, {i.name} % {n})", shape)
        elif i and i.shape == a.shape:
            self.add(f"torch.gather({a.name}, {d}, {i.name} % {n})", a.shape)

    def _product(self) -> None:
        a, b = self.pick("f", rank=2), self.pick("f", rank=1)
        if not a or not b or len(a.shape) != 2:
            return
        if len(b.shape) == 2 and a.shape[1] == b.shape[0]:
            self.add(f"{a.name} @ {b.name} * 0.2", (a.shape[0], b.shape[1]))
        elif b.shape == (a.shape[1],):
            self.add(f"{a.name} @ {b.name} * 0.2", (a.shape[0],))
        else:
            self.add(f"{a.name} @ {a.name}.T * 0.1", (a.shape[0], a.shape[0]))

    def _running(self) -> None:
        if a := self.pick("f", rank=1):
            d = self.random.randrange(len(a.shape))
            self.add(f"torch.cumsum({a.name}, {d}) * 0.3", a.shape)

    def _create(self) -> None:
        if a := self.pick("f", rank=1):
            n = a.shape[-1]
            text = self.random.choice(
                (
                    f"torch.arange({n}) * 0.1 + {{0}}",
                    "{0} + torch.full_like({0}, 0.25)",
                    f"{{0}} * torch.linspace(0, 1, {n}, dtype=torch.float64)",
                )
            )
            self.add(text.format(a.name), a.shape)

    def _cast(self) -> None:
        kind = self.random.choice("fi")
        if not (a := self.pick(kind)):
            return
        if kind == "i":
            self.add(f"{a.name}.double() * 0.1", a.shape)
        else:
            self.add(f"({a.name} * 5 + 0.0131).clamp(-50, 50).long()", a.shape, "i")


def make_body(seed: int) -> tuple[str, list[Value], tuple[int, ...]]:
    """Return the source of ``body(c, x)``, the carry's leaves, and the shape of x."""
    rng = random.Random(seed)
    first = tuple(rng.choice(DIMS) for _ in range(rng.choice((1, 2, 2, 3))))
    carry = [Value("c0", first)]
    if rng.random() < 0.5:
        carry.append(Value("c1", tuple(rng.choice((1, n)) for n in first)))
    if rng.random() < 0.4:
        carry.append(Value(f"c{len(carry)}", first[-1:], "i"))
    x_shape = tuple(rng.choice((1, n)) for n in first[rng.randrange(len(first)) :])
    maker = Maker(rng, [*carry, Value("x", x_shape), Value("w", first), Value("k", first[-1:])])
    for _ in range(rng.randrange(3, 26)):
        maker.step()
        big = [v for v in maker.values if _size(v.shape) > 2000]
        for v in big:
            maker.values.remove(v)
    new = []
    for leaf in carry:
        same = [v for v in maker.values if (v.shape, v.kind) == (leaf.shape, leaf.kind)]
        chosen = rng.choice(same[-3:] or [leaf])
        new.append(f"{chosen.name} % 1000" if leaf.kind == "i" else f"torch.tanh({chosen.name})")
    ys = ", ".join(v.name for v in rng.sample(maker.values, min(3, len(maker.values))))
    names = ", ".join(v.name for v in carry)
    lines = [
        "def body(c, x):",
        f"    ({names},) = c",
        *(f"    {line}" for line in maker.lines),
        f"    return ({', '.join(new)},), ({ys},)",
    ]
    source = "\n".join(lines)
    return source, carry, x_shape


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size
