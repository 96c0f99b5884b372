"""The formula of MX quantization as a user would write it in jnp."""

import math

import jax
import jax.numpy as jnp


def plain_jnp(x: jax.Array, dtype: str) -> tuple[jax.Array, jax.Array]:
    """The same formula as one would write it in jnp. Its bits are wrong for subnormals, NaN, Inf and some scales."""
    info = jnp.finfo(dtype)
    largest = float(info.max)
    blocks = x.astype(jnp.float32).reshape(*x.shape[:-1], -1, 32)
    exponent = jnp.floor(jnp.log2(jnp.max(jnp.abs(blocks), axis=-1, keepdims=True))) - math.floor(math.log2(largest))
    scaled = jnp.clip(blocks / jnp.exp2(exponent), -largest, largest)
    return scaled.astype(dtype).reshape(x.shape), (exponent[..., 0] + 127).astype(jnp.uint8)
