"""`scaled_matmul_mx`: the product of two quantized arrays, and its primitive.

The primitive's parameters are `lhs_fmt` and `rhs_fmt` (ElementFormat), `dimension_numbers` (DotDims; one dimension is
contracted, the quantized one), `out_dtype` and `out_sharding`. Its operands are data and scale of the lhs, then of the
rhs. `_scaled_matmul_lowering` registers what it becomes in a compiled module.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_mx._check import SCALE_DTYPES, check_array, check_container_dtype, check_dtype, check_scale_fits
from jax_mx._compat import (
    Primitive,
    api_boundary,
    auto_insert_reshard,
    batched_sharding,
    canonicalize_sharding,
    dot_general_aval,
    register_batcher,
    with_mapped_dimension,
)
from jax_mx._dot_dims import DotDims, check_dimension_numbers
from jax_mx._formats import DTypeLike, ElementFormat, as_format

RESULT_DTYPES = (jnp.dtype(jnp.float32), jnp.dtype(jnp.bfloat16))

scaled_matmul_mx_p = Primitive("scaled_matmul_mx")


@api_boundary
def scaled_matmul_mx(
    lhs_data: Any,
    lhs_scale: Any,
    rhs_data: Any,
    rhs_scale: Any,
    dtype: DTypeLike | tuple[DTypeLike, DTypeLike] = "float8_e4m3fn",
    *,
    dimension_numbers: Any = None,
    out_dtype: DTypeLike = jnp.float32,
    out_sharding: Any = None,
) -> jax.Array:
    """Multiplies two quantized arrays: the sum over k of dequantized lhs times dequantized rhs, in float32.

    On the platform "neuron" this is the custom call `__op$block_scaled_dot`, where it can say it: both sides of the
    same 8-bit format. Elsewhere, and for other formats, both sides are dequantized, which is exact, and multiplied with
    float32 accumulation; a backend whose multiplier takes subnormals for zero does so here too. See `lowering_mode`.

    No gradient flows through it, since its operands are integer codes; see `mx_dot_general`.

    Args:
        lhs_data: uint32[..., K/4, ...] (uint16 for float4), as `quantize_mx` returns it.
        lhs_scale: uint8 or float8_e8m0fnu[..., ceil(K/32), ...], as `quantize_mx` returns it.
        rhs_data: as `lhs_data`.
        rhs_scale: as `lhs_scale`.
        dtype: the element format of both sides, or a pair of formats, lhs first.
        dimension_numbers: as for `jax.lax.dot_general`, ((lhs contracting, rhs contracting), (lhs batch, rhs batch)).
            Each side has one contracting dimension, the one that it was quantized along. By default the last dimension
            of both sides is contracted and nothing is batch.
        out_dtype: float32, or bfloat16, rounded once from float32.
        out_sharding: on a mesh with explicit axes, the result's sharding; as for `jax.lax.dot_general`.

    Returns:
        out_dtype[batch..., lhs's other dimensions..., rhs's other dimensions...].

    Raises:
        TypeError: an argument is of another type or dtype.
        ValueError: a shape or dimension does not fit.
    """
    lhs_fmt, rhs_fmt = check_format_pair(dtype)
    lhs_data = check_container_dtype("lhs_data", lhs_data, lhs_fmt)
    lhs_scale = check_array("lhs_scale", lhs_scale, SCALE_DTYPES)
    rhs_data = check_container_dtype("rhs_data", rhs_data, rhs_fmt)
    rhs_scale = check_array("rhs_scale", rhs_scale, SCALE_DTYPES)
    if dimension_numbers is None:
        dimension_numbers = (((-1,), (-1,)), ((), ()))
    dims = check_dimension_numbers(dimension_numbers, lhs_data.shape, rhs_data.shape)
    if len(dims.contracting[0]) != 1:
        raise ValueError(
            f"dimension_numbers: got {len(dims.contracting[0])} contracting dimensions, want one on each side, "
            "the quantized one"
        )
    check_scale_fits(lhs_scale, lhs_data, dims.contracting[0][0], "lhs_scale")
    check_scale_fits(rhs_scale, rhs_data, dims.contracting[1][0], "rhs_scale")
    out_dtype = check_dtype("out_dtype", out_dtype, RESULT_DTYPES)
    params = {"lhs_fmt": lhs_fmt, "rhs_fmt": rhs_fmt, "dimension_numbers": dims, "out_dtype": out_dtype}
    params["out_sharding"] = canonicalize_sharding(out_sharding, "scaled_matmul_mx")
    return bind(lhs_data, _as_bytes(lhs_scale), rhs_data, _as_bytes(rhs_scale), **params)


def check_format_pair(dtype: Any) -> tuple[ElementFormat, ElementFormat]:
    """The formats of lhs and rhs that `dtype`, one format or a pair, names.

    Raises:
        TypeError: it names something else.
    """
    if isinstance(dtype, tuple | list):
        if len(dtype) != 2:
            raise TypeError(f"dtype: got {len(dtype)} formats, want one, or two, of lhs and rhs")
        return as_format(dtype[0], "dtype[0]"), as_format(dtype[1], "dtype[1]")
    fmt = as_format(dtype)
    return fmt, fmt


def _as_bytes(scale: jax.Array) -> jax.Array:
    return scale if scale.dtype == jnp.uint8 else lax.bitcast_convert_type(scale, jnp.uint8)


def bind(*operands: jax.Array, **params: Any) -> jax.Array:
    """Applies the primitive to arguments that are already validated."""
    # As jax's own operators do: operands that vary over different mapped axes of a mesh are made to vary over all.
    return scaled_matmul_mx_p.bind(*auto_insert_reshard(*operands), **params)


@functools.partial(jax.jit, static_argnames=("lhs_fmt", "rhs_fmt", "dimension_numbers", "out_dtype", "out_sharding"))
def _scaled_matmul(*operands: jax.Array, **params: Any) -> jax.Array:
    return bind(*operands, **params)


def _run_eagerly(*operands: jax.Array, **params: Any) -> jax.Array:
    with jax.disable_jit(False):  # the primitive is its own smallest step: without jit it would call itself
        return _scaled_matmul(*operands, **params)


def _abstract_eval(
    lhs_data: Any,
    lhs_scale: Any,
    rhs_data: Any,
    rhs_scale: Any,
    *,
    lhs_fmt: ElementFormat,
    rhs_fmt: ElementFormat,
    dimension_numbers: DotDims,
    out_dtype: np.dtype[Any],
    out_sharding: Any,
) -> Any:
    return dot_general_aval(lhs_data, rhs_data, dimension_numbers.as_lax, out_dtype, out_sharding)


def _batch(
    mesh_axes: Any,
    operands: Sequence[jax.Array],
    mapped: Sequence[int | None],
    *,
    dimension_numbers: DotDims,
    out_sharding: Any,
    **params: Any,
) -> tuple[jax.Array, int]:
    lhs, lhs_at = _aligned(mesh_axes, operands[:2], mapped[:2])
    rhs, rhs_at = _aligned(mesh_axes, operands[2:], mapped[2:])
    ranks = (lhs[0].ndim - (lhs_at is not None), rhs[0].ndim - (rhs_at is not None))
    dims, out_at = dimension_numbers.mapped((lhs_at, rhs_at), ranks)
    out_sharding = batched_sharding(out_sharding, out_at, mesh_axes)
    return bind(*lhs, *rhs, dimension_numbers=dims, out_sharding=out_sharding, **params), out_at


def _aligned(
    mesh_axes: Any, operands: Sequence[jax.Array], mapped: Sequence[int | None]
) -> tuple[tuple[jax.Array, jax.Array], int | None]:
    """Data and scale of one side with their mapped dimension at the same place; where one has none, it is repeated."""
    (data, scale), (data_at, scale_at) = operands, mapped
    if data_at is None and scale_at is not None:
        data = with_mapped_dimension(data, None, 0, scale.shape[scale_at], mesh_axes)
        data_at = 0
    if data_at is not None:
        scale = with_mapped_dimension(scale, scale_at, data_at, data.shape[data_at], mesh_axes)
    return (data, scale), data_at


scaled_matmul_mx_p.def_impl(_run_eagerly)
scaled_matmul_mx_p.def_abstract_eval(_abstract_eval)
register_batcher(scaled_matmul_mx_p, _batch)
