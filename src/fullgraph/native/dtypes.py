"""Element types of the loop IR and their C names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["BOOL", "BY_NAME", "F32", "F64", "I8", "I16", "I32", "I64", "U8", "DType"]


@dataclass(frozen=True)
class DType:
    """One element type.

    Attributes
    ----------
    name : str
        Name as in the array API standard, for example ``"float64"``.
    c : str
        C type.
    kind : str
        ``"f"`` floating, ``"i"`` integer (signed or not), ``"b"`` bool.
    size : int
        Bytes of one element.
    """

    name: str
    c: str
    kind: str
    size: int

    @property
    def is_float(self) -> bool:
        """Whether the type is a floating one."""
        return self.kind == "f"

    def __str__(self) -> str:
        return self.name


F64: Final = DType("float64", "double", "f", 8)
F32: Final = DType("float32", "float", "f", 4)
I64: Final = DType("int64", "int64_t", "i", 8)
I32: Final = DType("int32", "int32_t", "i", 4)
I16: Final = DType("int16", "int16_t", "i", 2)
I8: Final = DType("int8", "int8_t", "i", 1)
U8: Final = DType("uint8", "uint8_t", "i", 1)
BOOL: Final = DType("bool", "bool", "b", 1)

BY_NAME: Final[dict[str, DType]] = {d.name: d for d in (F64, F32, I64, I32, I16, I8, U8, BOOL)}
