"""The twenty BIR dtypes as data: name, ordinal, wire tag and bytes.

An `_x4` dtype is a container of four elements: counts of such an operand are counts of containers, and its addresses
are in containers too. The wire tag says nothing of packing, so several dtypes share one tag.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BF16", "DTYPES", "E2M1_X4", "E4M3_X4", "E5M2_X4", "F16", "Dtype", "dtype_named"]


@dataclass(frozen=True)
class Dtype:
    """One BIR element type.

    Attributes:
        ordinal: Its number in the compiler's own list.
        name: Its spelling in BIR JSON.
        wire_tag: The byte that stands for it in an instruction word.
        bytes: Size of one element, or of one container for an `_x4` dtype.
    """

    ordinal: int
    name: str
    wire_tag: int
    bytes: int

    @property
    def is_x4(self) -> bool:
        """Whether one element of this dtype holds four MX elements."""
        return self.name.endswith("_x4")

    @property
    def elements(self) -> int:
        """MX elements in one unit of this dtype: 4 for a container, otherwise 1."""
        return 4 if self.is_x4 else 1


DTYPES: tuple[Dtype, ...] = (
    Dtype(0, "uint8", 0x03, 1),
    Dtype(1, "int8", 0x02, 1),
    Dtype(2, "float4_e2m1fn_x4", 0x10, 2),
    Dtype(3, "float8e3", 0x0D, 1),
    Dtype(4, "float8e4", 0x0E, 1),
    Dtype(5, "float8_e4m3fn", 0x0E, 1),
    Dtype(6, "float8_e8m0fnu", 0x03, 1),
    Dtype(7, "float8e5", 0x0F, 1),
    Dtype(8, "float8_e4m3fn_x4", 0x0E, 4),
    Dtype(9, "float8_e5m2_x4", 0x0F, 4),
    Dtype(10, "uint16", 0x05, 2),
    Dtype(11, "int16", 0x04, 2),
    Dtype(12, "bfloat16", 0x06, 2),
    Dtype(13, "float16", 0x07, 2),
    Dtype(14, "uint32", 0x09, 4),
    Dtype(15, "int32", 0x08, 4),
    Dtype(16, "float32", 0x0A, 4),
    Dtype(17, "float32r", 0x0B, 4),
    Dtype(18, "uint64", 0x01, 8),
    Dtype(19, "int64", 0x0C, 8),
)

_BY_NAME = {dtype.name: dtype for dtype in DTYPES}


def dtype_named(name: str) -> Dtype:
    """The dtype spelled `name` in BIR JSON.

    Raises:
        KeyError: `name` is not one of `DTYPES`.
    """
    return _BY_NAME[name]


BF16 = dtype_named("bfloat16")
F16 = dtype_named("float16")
E4M3_X4 = dtype_named("float8_e4m3fn_x4")
E5M2_X4 = dtype_named("float8_e5m2_x4")
E2M1_X4 = dtype_named("float4_e2m1fn_x4")
