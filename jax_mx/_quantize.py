"""The bit-exact quantization that every backend runs.

Subnormals must never reach float arithmetic, because XLA flushes them on some backends. So exponents are compared and
added as integer bits, and floats appear only where every operand that can influence the result is a normal number: in
exact differences, and in one addition that lets the hardware round to nearest even, exactly once.

The scaled element `v = x * 2**(127 - s)` is never multiplied out either: the scale is added to x's exponent field.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_mx._float_bits import (
    F32_BIAS,
    F32_INF,
    F32_MANTISSA_BITS,
    F32_MIN_NORMAL,
    as_bits,
    as_float,
    float32_exponent,
    magnitude_to_float32_bits,
)
from jax_mx._formats import BLOCK_SIZE, ElementFormat
from jax_mx._layout import pack_containers, repeat_per_block, split_axis
from jax_mx._scale_rule import SCALE_NAN, ScaleRule

_PEAK_COLUMNS = 4


def quantize(x: jax.Array, *, fmt: ElementFormat, rule: ScaleRule, axis: int) -> tuple[jax.Array, jax.Array]:
    """Quantizes bfloat16 or float16 `x` along the non-negative `axis`.

    Returns:
        data: containers, `axis` divided by 4.
        scale: uint8, `axis` divided by 32 and rounded up.
    """
    length = x.shape[axis]
    source = x.dtype
    bits = lax.bitcast_convert_type(x, jnp.uint16)
    bits = _pad_to_blocks(bits, axis)
    # The barrier keeps a compiler from fusing the reduction into the element loop, once per element.
    scale = lax.optimization_barrier(block_scale(_block_peak(bits, axis), source, fmt, rule))
    codes = element_codes(bits, repeat_per_block(scale, axis), source, fmt, rule)
    codes = lax.slice_in_dim(codes, 0, length, axis=axis)
    return pack_containers(codes, fmt, axis), scale


def block_scale(peak: jax.Array, source: jnp.dtype, fmt: ElementFormat, rule: ScaleRule) -> jax.Array:
    """The scale bytes, uint8, of blocks whose largest magnitudes (sign bit clear, as uint16 bits) are `peak`.

    Magnitudes of IEEE-like floats order like integers, so the largest one has the block's largest exponent, and is a
    NaN if the block holds one.
    """
    magnitude = magnitude_to_float32_bits(peak, source)
    exponent = float32_exponent(magnitude)
    scale = jnp.maximum(exponent - rule.exponent_offset(fmt), rule.min_scale)
    if rule.propagate_nan:
        scale = jnp.where(magnitude > F32_INF, SCALE_NAN, scale)
    return scale.astype(jnp.uint8)


def element_codes(
    bits: jax.Array, scale: jax.Array, source: jnp.dtype, fmt: ElementFormat, rule: ScaleRule
) -> jax.Array:
    """The uint8 codes of elements with source `bits` (uint16) under `scale` bytes (uint8) of the same shape.

    Each scale must be one that `block_scale` gives a block with that element in it; it bounds the scaled exponent.
    """
    magnitude = magnitude_to_float32_bits(bits & 0x7FFF, source)
    shift = F32_BIAS - scale.astype(jnp.int32)
    code = _round_to_code(_scaled_magnitude(magnitude, shift, source, fmt), fmt)

    is_nan = magnitude > F32_INF
    negative = bits >= 0x8000
    code = jnp.where(is_nan, 0, code)
    if _reaches_scale_254(fmt, rule):
        # The multiplier's exponent field is 254 - 254 = 0: it is +0.0, finite elements become zeros, and Inf * 0 is the
        # default NaN of x86, whose sign bit is set.
        zeroed = scale == 254
        code = jnp.where(zeroed, 0, code)
        negative = negative | (zeroed & (magnitude == F32_INF))
    if rule.propagate_nan:
        nan_code = 0 if fmt.nan_code is None else fmt.nan_code
        code = jnp.where(scale == SCALE_NAN, jnp.where(is_nan, nan_code, 0), code)
    return (code | jnp.where(negative, fmt.sign_code, 0)).astype(jnp.uint8)


def _scaled_magnitude(magnitude: jax.Array, shift: jax.Array, source: jnp.dtype, fmt: ElementFormat) -> jax.Array:
    """Float32 bits of `|x| * 2**shift`, held within [0, largest value of the format].

    Bits of results below the smallest float32 normal are wrong and do not matter: they are less than a half quantum.
    """
    scaled = jnp.maximum(magnitude + (shift << F32_MANTISSA_BITS), 0)
    if source == jnp.float16:  # its subnormals are float32 normals
        scaled = jnp.where(magnitude == 0, 0, scaled)
    else:
        # A subnormal's bits read as 1.m instead of 0.m at the smallest normal exponent: take the 1 away again.
        one = jnp.maximum((shift + 1) << F32_MANTISSA_BITS, 0)
        subnormal = as_bits(as_float(magnitude + one) - as_float(one))
        scaled = jnp.where(magnitude < F32_MIN_NORMAL, subnormal, scaled)
    largest = int(np.float32(fmt.max_value).view(np.int32))
    return jnp.where(magnitude >= F32_INF, largest, jnp.minimum(scaled, largest))


def _round_to_code(value: jax.Array, fmt: ElementFormat) -> jax.Array:
    """The int32 code nearest to non-negative float32 bits `value`, ties to even.

    Adding a power of two whose last place is the format's quantum at `value` makes the float adder round there; the
    low bits of the sum are then the significand, in the format's own units.
    """
    drop = F32_MANTISSA_BITS - fmt.mantissa_bits
    smallest_normal = (fmt.emin + F32_BIAS) << F32_MANTISSA_BITS
    magic = (jnp.maximum(value, smallest_normal) & F32_INF) + (drop << F32_MANTISSA_BITS)
    significand = as_bits(as_float(value) + as_float(magic)) - magic
    exponent_steps = (magic >> drop) - ((smallest_normal + (drop << F32_MANTISSA_BITS)) >> drop)
    return significand + exponent_steps


def _reaches_scale_254(fmt: ElementFormat, rule: ScaleRule) -> bool:
    return 255 - rule.exponent_offset(fmt) >= 254


def _block_peak(bits: jax.Array, axis: int) -> jax.Array:
    """The largest magnitude of each block, as uint16 bits."""
    magnitude = bits & 0x7FFF
    if axis < bits.ndim - 1:
        return jnp.max(split_axis(magnitude, axis, BLOCK_SIZE), axis=axis + 1)
    # XLA:CPU vectorizes a reduction across rows, not one of 32 neighbours to one number, which takes ten times as long.
    rows = split_axis(split_axis(magnitude, axis, BLOCK_SIZE), axis + 1, _PEAK_COLUMNS)
    return jnp.max(jnp.max(rows, axis=axis + 1), axis=axis + 1)


def _pad_to_blocks(bits: jax.Array, axis: int) -> jax.Array:
    missing = -bits.shape[axis] % BLOCK_SIZE
    if missing == 0:
        return bits
    widths = [(0, 0)] * bits.ndim
    widths[axis] = (0, missing)
    return jnp.pad(bits, widths)  # zeros never raise a block's largest exponent
