"""Scale rules of other libraries, for comparison: torchao's four modes, in numpy.

They follow torchao 0.18 to the bit, for blocks without NaN or Inf: what it does with a scale byte of 0 included. They
are here to be compared with; `quantize_mx` has the rules that a lowered module can name.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from jax_mx._formats import ElementFormat

Array = np.ndarray[Any, Any]
ScaleFunction = Callable[[Array, ElementFormat], Array]

_MANTISSA_BITS = 23
_LARGEST_SCALE = 254


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherRule:
    """A rule for the scale byte of a block whose largest magnitude is a given float32, and what a byte divides by.

    Attributes:
        name: what tables call it.
        scale: the scale bytes, as int64, for float32 magnitudes and a format.
        zero_scale_exponent: elements of a block with scale byte 0 are divided by two to this power.
    """

    name: str
    scale: ScaleFunction
    zero_scale_exponent: int

    def quantize(self, blocks: Array, fmt: ElementFormat) -> tuple[Array, Array]:
        """Quantizes float64[..., 32] blocks without NaN or Inf.

        Returns:
            The elements as float64 before their scale is multiplied back in, and the scale bytes as int64[..., 1].
        """
        peak = np.abs(blocks).max(axis=-1, keepdims=True).astype(np.float32)
        scale = np.clip(self.scale(peak, fmt), 0, _LARGEST_SCALE)
        exponent = np.where(scale == 0, self.zero_scale_exponent, scale - 127)
        scaled = np.clip(np.ldexp(blocks, -exponent), -fmt.max_value, fmt.max_value)
        return scaled.astype(fmt.dtype).astype(np.float64), scale


def _exponent_field(magnitude: Array) -> Array:
    return (magnitude.view(np.uint32) >> _MANTISSA_BITS).astype(np.int64)


def _has_mantissa(magnitude: Array) -> Array:
    return (magnitude.view(np.uint32) & ((1 << _MANTISSA_BITS) - 1)) != 0


def _floor(peak: Array, fmt: ElementFormat) -> Array:
    return _exponent_field(peak) - fmt.emax


def _ceil(peak: Array, fmt: ElementFormat) -> Array:
    return _exponent_field(peak) + _has_mantissa(peak) - fmt.emax


def _rceil(peak: Array, fmt: ElementFormat) -> Array:
    """The power of two at or above peak / largest value, that quotient rounded to float32."""
    quotient = peak / np.float32(fmt.max_value)
    # frexp's mantissa is in [0.5, 1), so 0.5 is a power of two itself.
    mantissa, exponent = np.frexp(quotient.astype(np.float64))
    power = exponent.astype(np.int64) - (mantissa == 0.5)
    return np.where(quotient == 0, 0, power + 127)


def _even(peak: Array, fmt: ElementFormat) -> Array:
    """The exponent after rounding the peak to the element's mantissa, half away from zero."""
    half = np.uint32(1 << (_MANTISSA_BITS - fmt.mantissa_bits - 1))
    return ((peak.view(np.uint32) + half) >> np.uint32(_MANTISSA_BITS)).astype(np.int64) - fmt.emax


OTHER_RULES = (
    OtherRule(name="torchao FLOOR", scale=_floor, zero_scale_exponent=-126),
    OtherRule(name="torchao RCEIL", scale=_rceil, zero_scale_exponent=0),
    OtherRule(name="torchao CEIL", scale=_ceil, zero_scale_exponent=-126),
    OtherRule(name="torchao EVEN", scale=_even, zero_scale_exponent=-126),
)
