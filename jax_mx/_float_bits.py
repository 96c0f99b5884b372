"""Float formats as integer bits: the ground on which no backend flushes, rounds or traps.

Bits of float32 are held as int32 throughout: sign bits are handled apart, so they are never negative.
"""

import jax
import jax.numpy as jnp
from jax import lax

F32_BIAS = 127
F32_MANTISSA_BITS = 23
F32_MIN_NORMAL = 0x0080_0000
F32_INF = 0x7F80_0000

_F16_MIN_NORMAL = 0x0400
_F16_INF = 0x7C00
_F16_BIAS = 15
_F16_MIN_NORMAL_AS_F32 = (F32_BIAS + 1 - _F16_BIAS) << F32_MANTISSA_BITS
_HALF = 0x3F00_0000  # float32 0.5, whose last place is float16's smallest subnormal, 2**-24


def as_float(bits: jax.Array) -> jax.Array:
    """Reads int32 bits as float32."""
    return lax.bitcast_convert_type(bits, jnp.float32)


def as_bits(value: jax.Array) -> jax.Array:
    """Reads float32 as int32 bits."""
    return lax.bitcast_convert_type(value, jnp.int32)


def float32_exponent(magnitude: jax.Array) -> jax.Array:
    """The biased exponent field of float32 bits with the sign bit clear."""
    return magnitude >> F32_MANTISSA_BITS


def magnitude_to_float32_bits(magnitude: jax.Array, source: jnp.dtype) -> jax.Array:
    """Widens bfloat16 or float16 magnitudes (uint16 bits, sign bit clear) to float32 bits, exactly."""
    wide = magnitude.astype(jnp.int32)
    if source == jnp.bfloat16:
        return wide << 16
    rebias = (F32_BIAS - _F16_BIAS) << F32_MANTISSA_BITS
    normal = (wide << 13) + jnp.where(wide >= _F16_INF, 2 * rebias, rebias)
    # 0.5 plus a subnormal is exact, and so is taking the 0.5 away: both have float16's quantum.
    subnormal = as_bits(as_float(wide | _HALF) - as_float(jnp.int32(_HALF)))
    return jnp.where(wide < _F16_MIN_NORMAL, subnormal, normal)


def round_float32_bits(bits: jax.Array, target: jnp.dtype) -> jax.Array:
    """Rounds float32 magnitude bits (no NaN) once to `target`'s bits, ties to even; overflow gives Inf."""
    if target == jnp.bfloat16:
        return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    rebias = (F32_BIAS - _F16_BIAS) << F32_MANTISSA_BITS
    normal = (bits - rebias + 0x0FFF + ((bits >> 13) & 1)) >> 13
    half = as_float(jnp.int32(_HALF))
    subnormal = as_bits(as_float(bits) + half) - _HALF
    rounded = jnp.where(bits < _F16_MIN_NORMAL_AS_F32, subnormal, normal)
    return jnp.minimum(rounded, _F16_INF)
