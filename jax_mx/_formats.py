"""The element formats of OCP MX that `quantize_mx` can write, as data.

A format is a few independent fields; everything else is derived from them.
Adding a format is adding an instance here.
"""

import dataclasses
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

DTypeLike: TypeAlias = Any
"""What numpy and jax accept as a dtype: a name, a numpy dtype, or a scalar type such as `jnp.float8_e4m3fn`."""

BLOCK_SIZE = 32
"""Elements that share one scale, along the quantized axis (OCP MX v1.0)."""

LANES = 4
"""Elements packed in one x4 container."""


@dataclasses.dataclass(frozen=True)
class ElementFormat:
    """A narrow float: one sign bit, exponent bits and mantissa bits.

    Attributes:
        name: the dtype's name as jax and ml_dtypes spell it.
        bits: width of one code.
        mantissa_bits: explicit significand bits.
        bias: exponent bias.
        max_code: code of the largest finite value, sign bit clear.
        nan_code: canonical NaN code, sign bit clear; None where the format has no NaN.
        inf_code: infinity's code, sign bit clear; None where the format has none.
    """

    name: str
    bits: int
    mantissa_bits: int
    bias: int
    max_code: int
    nan_code: int | None
    inf_code: int | None = None

    def __repr__(self) -> str:
        return self.name

    @property
    def emax(self) -> int:
        """Exponent of the largest finite value."""
        return (self.max_code >> self.mantissa_bits) - self.bias

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal value."""
        return 1 - self.bias

    @property
    def sign_code(self) -> int:
        """The sign bit within a code."""
        return 1 << (self.bits - 1)

    @property
    def largest_number_code(self) -> int:
        """Largest code, sign bit clear, that is no NaN: every larger one is."""
        return self.max_code if self.inf_code is None else self.inf_code

    @property
    def max_value(self) -> float:
        """Largest finite value."""
        fraction = self.max_code & ((1 << self.mantissa_bits) - 1)
        return (1 + fraction / (1 << self.mantissa_bits)) * 2.0**self.emax

    @property
    def dtype(self) -> np.dtype[Any]:
        """The ml_dtypes dtype of one element."""
        return np.dtype(getattr(ml_dtypes, self.name))

    @property
    def container_dtype(self) -> np.dtype[Any]:
        """The unsigned integer that holds four elements: uint32 for 8-bit formats, uint16 for 4-bit ones."""
        return np.dtype(f"uint{LANES * self.bits}")


FLOAT8_E4M3FN = ElementFormat("float8_e4m3fn", bits=8, mantissa_bits=3, bias=7, max_code=0x7E, nan_code=0x7F)
FLOAT8_E5M2 = ElementFormat(
    "float8_e5m2", bits=8, mantissa_bits=2, bias=15, max_code=0x7B, nan_code=0x7E, inf_code=0x7C
)
FLOAT4_E2M1FN = ElementFormat("float4_e2m1fn", bits=4, mantissa_bits=1, bias=1, max_code=0x7, nan_code=None)

FORMATS = (FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT4_E2M1FN)
"""Every element format, in the order the docs list them."""


def as_format(value: DTypeLike, argument: str = "dtype") -> ElementFormat:
    """The format that `value`, given as `argument`, names.

    Raises:
        TypeError: it is not one of the element formats.
    """
    name = _dtype_name(value)
    for fmt in FORMATS:
        if fmt.name == name:
            return fmt
    wanted = ", ".join(fmt.name for fmt in FORMATS)
    raise TypeError(f"{argument}: got {name or value!r}, want an MX element format, one of {wanted}")


def _dtype_name(dtype: DTypeLike) -> str | None:
    if isinstance(dtype, str):
        return dtype
    if dtype is None:  # np.dtype(None) is float64, which nobody asked for
        return None
    try:
        return np.dtype(dtype).name
    except TypeError:
        return None
