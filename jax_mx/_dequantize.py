"""Exact dequantization: `y = element * 2**(scale - 127)`, built from integer bits so that no subnormal is lost."""

import jax
import jax.numpy as jnp
from jax import lax

from jax_mx._float_bits import (
    F32_BIAS,
    F32_INF,
    F32_MANTISSA_BITS,
    F32_MIN_NORMAL,
    as_bits,
    as_float,
    round_float32_bits,
)
from jax_mx._formats import ElementFormat
from jax_mx._layout import repeat_per_block, unpack_containers
from jax_mx._scale_rule import SCALE_NAN

_QUIET_BIT = 1 << (F32_MANTISSA_BITS - 1)


def dequantize(data: jax.Array, scale: jax.Array, *, fmt: ElementFormat, axis: int, out_dtype: jnp.dtype) -> jax.Array:
    """Dequantizes containers `data` under uint8 `scale` along the non-negative `axis`."""
    codes = unpack_containers(data, fmt, axis)
    per_element = lax.slice_in_dim(repeat_per_block(scale, axis), 0, codes.shape[axis], axis=axis)
    return element_values(codes, per_element, fmt, out_dtype)


def element_values(codes: jax.Array, scale: jax.Array, fmt: ElementFormat, out_dtype: jnp.dtype) -> jax.Array:
    """The values of uint8 `codes` under uint8 `scale` bytes of the same shape, rounded once to `out_dtype`.

    A NaN keeps its element's sign and has the quiet bit alone in its mantissa.
    """
    codes = codes.astype(jnp.int32)
    scale = scale.astype(jnp.int32)
    negative = codes >= fmt.sign_code
    code = codes & (fmt.sign_code - 1)
    bits = _scale_exponent(_code_to_float32_bits(code, fmt), scale - F32_BIAS)

    is_nan = scale == SCALE_NAN
    if fmt.nan_code is not None:
        is_nan = is_nan | (code > fmt.largest_number_code)
    if out_dtype == jnp.float32:
        bits = jnp.where(is_nan, F32_INF | _QUIET_BIT, bits)
    else:
        bits = jnp.where(is_nan, _quiet_nan_bits(out_dtype), round_float32_bits(bits, out_dtype))
    width = jnp.dtype(out_dtype).itemsize * 8
    unsigned = jnp.dtype(f"uint{width}")
    signed = bits.astype(unsigned) | (negative.astype(unsigned) << (width - 1))
    return lax.bitcast_convert_type(signed, out_dtype)


def _code_to_float32_bits(code: jax.Array, fmt: ElementFormat) -> jax.Array:
    """Float32 bits of codes without sign; a NaN code gives some number, an Inf code gives Inf."""
    step = F32_MANTISSA_BITS - fmt.mantissa_bits
    normal = (code << step) + ((F32_BIAS - fmt.bias) << F32_MANTISSA_BITS)
    # A subnormal's bits read as 1.m instead of 0.m at the smallest normal exponent: take the 1 away again.
    one = (F32_BIAS + fmt.emin) << F32_MANTISSA_BITS
    subnormal = as_bits(as_float((code << step) + one) - as_float(jnp.int32(one)))
    value = jnp.where(code < (1 << fmt.mantissa_bits), subnormal, normal)
    return value if fmt.inf_code is None else jnp.where(code == fmt.inf_code, F32_INF, value)


def _scale_exponent(bits: jax.Array, steps: jax.Array) -> jax.Array:
    """Multiplies float32 magnitude bits, zero or normal or Inf, by `2**steps`, into subnormals and up to Inf.

    Elements have at most four significant bits, so shifting one into the subnormals drops none.
    """
    exponent = (bits >> F32_MANTISSA_BITS) + steps
    normal = bits + (steps << F32_MANTISSA_BITS)
    significand = (bits & (F32_MIN_NORMAL - 1)) | F32_MIN_NORMAL
    subnormal = significand >> jnp.clip(1 - exponent, 0, 31)
    scaled = jnp.where(exponent >= 255, F32_INF, jnp.where(exponent >= 1, normal, subnormal))
    return jnp.where(bits == 0, 0, jnp.where(bits == F32_INF, F32_INF, scaled))


def _quiet_nan_bits(dtype: jnp.dtype) -> int:
    return 0x7FC0 if dtype == jnp.bfloat16 else 0x7E00
