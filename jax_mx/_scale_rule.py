"""Scale rules: how the E8M0 byte of a block follows from the largest exponent in it.

The rule is an argument of every quantizing function, never hidden in global state: the same hardware instruction gives
different bytes under different settings, and golden data is worthless without the setting it was made under.
"""

import dataclasses

import numpy as np

from jax_mx._formats import ElementFormat
from jax_mx._integers import check_integer

SCALE_NAN = 0xFF
"""The E8M0 byte that OCP reserves for NaN."""


@dataclasses.dataclass(frozen=True)
class ScaleRule:
    """A rule for the scale byte `s` of a block whose largest biased float32 exponent field is `m`.

    `s = max(min_scale, m - exponent_offset(format))`, where zeros and float32 subnormals count as exponent field 0 and
    Inf and NaN as 255.

    Attributes:
        name: the name that a lowered module carries.
        headroom_8bit: binades kept free above the block's largest element in 8-bit formats: 0 subtracts EMAX, 1
            subtracts EMAX - 1.
        headroom_4bit: the same for 4-bit formats.
        min_scale: smallest scale byte, 0 or 1.
        propagate_nan: whether a block that holds a NaN gets the scale byte 0xFF, its NaNs the format's NaN and its
            other elements zero. Otherwise each NaN becomes a zero of its sign.

    Raises:
        TypeError: a field is of another type.
        ValueError: a field is out of range.
    """

    name: str
    headroom_8bit: int
    headroom_4bit: int
    min_scale: int
    propagate_nan: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"name: got {self.name!r}, want a string")
        # Kept as Python's own types: kernels and stored metadata take no others.
        for field in ("headroom_8bit", "headroom_4bit", "min_scale"):
            object.__setattr__(self, field, check_integer(field, getattr(self, field), (0, 1)))
        if not isinstance(self.propagate_nan, bool | np.bool_):
            raise TypeError(f"propagate_nan: got {self.propagate_nan!r}, want True or False")
        object.__setattr__(self, "propagate_nan", bool(self.propagate_nan))

    def exponent_offset(self, fmt: ElementFormat) -> int:
        """What is subtracted from the block's largest exponent field."""
        return fmt.emax - (self.headroom_8bit if fmt.bits == 8 else self.headroom_4bit)

    def __repr__(self) -> str:
        return self.name


EMAX = ScaleRule("EMAX", headroom_8bit=0, headroom_4bit=0, min_scale=1)
"""The default: what the neuronx-cc 2.24 simulator computes with its alternative-EMAX setting off."""

EMAX_ALT = ScaleRule("EMAX_ALT", headroom_8bit=1, headroom_4bit=1, min_scale=1)
"""What the neuronx-cc 2.24 simulator computes with its alternative-EMAX setting on."""

NKI = ScaleRule("NKI", headroom_8bit=1, headroom_4bit=0, min_scale=0)
"""What NKI's `quantize_mx` documents since SDK 2.31. That a NaN becomes zero is this project's decision: the published
text is silent."""

OCP_FLOOR = ScaleRule("OCP_FLOOR", headroom_8bit=0, headroom_4bit=0, min_scale=0, propagate_nan=True)
"""The sample conversion of OCP MX v1.0; torchao's FLOOR mode, except where the scale byte is 0."""

SCALE_RULES = (EMAX, EMAX_ALT, NKI, OCP_FLOOR)
"""Every rule that a lowered module can name."""
