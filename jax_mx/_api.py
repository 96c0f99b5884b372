"""The functions that model authors call: arguments are validated here and nowhere below."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jax_mx import _dequantize_primitive, _primitive
from jax_mx._check import (
    OUT_DTYPES,
    SCALE_DTYPES,
    SOURCE_DTYPES,
    check_array,
    check_axis,
    check_block_size,
    check_container_dtype,
    check_dtype,
    check_multiple_of_lanes,
    check_rule,
    check_scale_fits,
)
from jax_mx._compat import api_boundary
from jax_mx._formats import BLOCK_SIZE, DTypeLike, ElementFormat, as_format
from jax_mx._scale_rule import EMAX, ScaleRule


@api_boundary
def quantize_mx(
    x: Any,
    dtype: DTypeLike = "float8_e4m3fn",
    *,
    axis: int = -1,
    block_size: int = BLOCK_SIZE,
    rule: ScaleRule = EMAX,
    scale_dtype: DTypeLike = jnp.uint8,
) -> tuple[jax.Array, jax.Array]:
    """Quantizes `x` to an MX format: four narrow elements a container, one E8M0 scale byte per 32 elements.

    Each block of 32 consecutive elements along `axis` shares the scale `2**(s - 127)`, where the byte `s` follows from
    the block's largest exponent by `rule`. Elements are scaled, rounded once to nearest even and saturated. The result
    is exact to the last bit on every platform, for subnormals, NaN and Inf as well.

    On the platform "neuron" this is the custom call `QuantizeMX`; see `lowering_mode`. It has no derivative; see
    `fake_quantize_mx`.

    A sharded array is quantized where it lies, if every shard holds whole blocks of 32 along `axis`. Where shards split
    blocks, jit communicates once, what the blocks' largest exponents need, and on a mesh with explicit axes it is an
    error. In `jax.shard_map`, blocks start anew in every shard.

    Args:
        x: bfloat16 or float16[..., K, ...], of rank 1 or more. K, the length of `axis`, is a multiple of 4; where it is
            not a multiple of 32, the last block holds the remaining elements.
        dtype: the element format: float8_e4m3fn, float8_e5m2 or float4_e2m1fn, as a string or dtype.
        axis: the quantized axis.
        block_size: 32, the only block size MX has.
        rule: how a block's scale follows from its largest exponent.
        scale_dtype: uint8, or float8_e8m0fnu for the same bytes under that dtype.

    Returns:
        data: uint32[..., K/4, ...] (uint16 for float4), element 0 of a container in its lowest bits.
        scale: scale_dtype[..., ceil(K/32), ...].

    Raises:
        TypeError: `x`, `dtype`, `axis`, `block_size`, `rule` or `scale_dtype` is of another type.
        ValueError: `axis` is out of range, its length is not a multiple of 4, `block_size` is not 32, or shards split
            blocks over an explicit axis of a mesh.
    """
    fmt = as_format(dtype)
    x = check_array("x", x, SOURCE_DTYPES)
    axis = check_axis(axis, x.shape)
    check_block_size(block_size)
    rule = check_rule(rule)
    scale_dtype = check_dtype("scale_dtype", scale_dtype, SCALE_DTYPES)
    check_multiple_of_lanes("x", x.shape, axis)
    data, scale = _primitive.bind(x, fmt=fmt, rule=rule, axis=axis)
    if scale_dtype != scale.dtype:
        scale = lax.bitcast_convert_type(scale, scale_dtype)
    return data, scale


@api_boundary
def dequantize_mx(
    data: Any, scale: Any, dtype: DTypeLike, *, axis: int = -1, out_dtype: DTypeLike = jnp.float32
) -> jax.Array:
    """The values that `data` and `scale` stand for: `element * 2**(s - 127)`, exactly.

    Subnormal results are kept on every platform. A scale byte 0xFF gives NaN. A product beyond the range gives Inf.
    Sharded arrays are dequantized where they lie.

    Args:
        data: uint32[..., K/4, ...] (uint16 for float4), as `quantize_mx` returns it.
        scale: uint8 or float8_e8m0fnu[..., ceil(K/32), ...].
        dtype: the element format of `data`.
        axis: the quantized axis.
        out_dtype: float32, which holds every value exactly; or bfloat16 or float16, rounded once to nearest even.

    Returns:
        out_dtype[..., K, ...].

    Raises:
        TypeError: an argument is of another dtype.
        ValueError: `axis` is out of range, or the shape of `scale`, or its sharding over explicit axes of a mesh, does
            not belong to `data`.
    """
    fmt = as_format(dtype)
    data = check_container_dtype("data", data, fmt)
    scale = check_array("scale", scale, SCALE_DTYPES)
    axis = check_axis(axis, data.shape)
    check_scale_fits(scale, data, axis)
    out_dtype = check_dtype("out_dtype", out_dtype, OUT_DTYPES)
    return _dequantize(data, scale, fmt=fmt, axis=axis, out_dtype=out_dtype)


@api_boundary
def fake_quantize_mx(
    x: Any,
    dtype: DTypeLike = "float8_e4m3fn",
    *,
    axis: int = -1,
    block_size: int = BLOCK_SIZE,
    rule: ScaleRule = EMAX,
) -> jax.Array:
    """Quantizes `x` and dequantizes it to its own dtype, with a straight-through gradient.

    The derivative is that of the identity, forward and reverse, so a model can be trained through it.

    Args:
        x: as for `quantize_mx`.
        dtype: as for `quantize_mx`.
        axis: as for `quantize_mx`.
        block_size: as for `quantize_mx`.
        rule: as for `quantize_mx`.

    Returns:
        An array like `x`.

    Raises:
        TypeError: as `quantize_mx` does.
        ValueError: as `quantize_mx` does.
    """
    fmt = as_format(dtype)
    x = check_array("x", x, SOURCE_DTYPES)
    axis = check_axis(axis, x.shape)
    check_block_size(block_size)
    check_multiple_of_lanes("x", x.shape, axis)
    return _straight_through(x, fmt, check_rule(rule), axis)


@functools.partial(jax.jit, static_argnames=("fmt", "axis", "out_dtype"))
def _dequantize(data: jax.Array, scale: jax.Array, *, fmt: ElementFormat, axis: int, out_dtype: Any) -> jax.Array:
    scale = lax.bitcast_convert_type(scale, jnp.uint8)
    return _dequantize_primitive.bind(data, scale, fmt=fmt, axis=axis, out_dtype=out_dtype)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2, 3))
def _straight_through(x: jax.Array, fmt: ElementFormat, rule: ScaleRule, axis: int) -> jax.Array:
    data, scale = _primitive.bind(x, fmt=fmt, rule=rule, axis=axis)
    return _dequantize(data, scale, fmt=fmt, axis=axis, out_dtype=x.dtype)


@_straight_through.defjvp
def _straight_through_jvp(
    fmt: ElementFormat, rule: ScaleRule, axis: int, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    (x,), (tangent,) = primals, tangents
    return _straight_through(x, fmt, rule, axis), tangent
