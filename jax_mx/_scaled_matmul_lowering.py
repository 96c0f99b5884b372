"""What the `scaled_matmul_mx` primitive becomes: the `__op$block_scaled_dot` custom call or plain operations.

The contract of the custom call:

    %out = __op$block_scaled_dot(%lhs, %rhs, %lhs_scale, %rhs_scale)
    lhs, rhs: ui32, rank >= 2; scales: ui8; out: f32 or bf16
    backend_config = {"scaled_dot_backend_config": {
        "element_dtype": "<element format of both sides>",
        "lhs_batch_dimensions": [...], "lhs_contracting_dimensions": [...],
        "rhs_batch_dimensions": [...], "rhs_contracting_dimensions": [...]}}

It has one element format, an 8-bit one. For a product of two formats, or of float4, there is no call.
"""

import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_mx import _scaled_matmul, _shardy
from jax_mx._compat import batched_sharding, mlir
from jax_mx._dequantize import dequantize
from jax_mx._dot_dims import DotDims
from jax_mx._formats import ElementFormat
from jax_mx._lowering_mode import SCALED_DOT_TARGET, current_mode, lowers_for_neuron, uses_custom_call
from jax_mx._scaled_matmul import scaled_matmul_mx_p

CONFIG_KEY = "scaled_dot_backend_config"


def _multiply(
    lhs_data: jax.Array,
    lhs_scale: jax.Array,
    rhs_data: jax.Array,
    rhs_scale: jax.Array,
    *,
    lhs_fmt: ElementFormat,
    rhs_fmt: ElementFormat,
    dimension_numbers: DotDims,
    out_dtype: np.dtype[Any],
    out_sharding: Any,
) -> jax.Array:
    """Dequantizes both sides, multiplies with float32 accumulation and rounds once."""
    (lhs_axis,), (rhs_axis,) = dimension_numbers.contracting
    float32 = jnp.dtype(jnp.float32)
    lhs = dequantize(lhs_data, lhs_scale, fmt=lhs_fmt, axis=lhs_axis, out_dtype=float32)
    rhs = dequantize(rhs_data, rhs_scale, fmt=rhs_fmt, axis=rhs_axis, out_dtype=float32)
    # Without HIGHEST, accelerators would round the operands first.
    product = lax.dot_general(
        lhs,
        rhs,
        dimension_numbers.as_lax,
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
        out_sharding=out_sharding,
    )
    return product.astype(out_dtype)


_lower_inline = mlir.lower_fun(_multiply, multiple_results=False)


def _lower(ctx: Any, *operands: Any, auto: bool, **params: Any) -> Any:
    """Lowers by the current mode; `auto` says what that mode means for the platforms of this rule."""
    if not uses_custom_call(auto):
        return _lower_inline(ctx, *operands, **params)
    lhs_fmt, rhs_fmt = params["lhs_fmt"], params["rhs_fmt"]
    if lhs_fmt == rhs_fmt and lhs_fmt.bits == 8:
        return _lower_custom_call(ctx, *operands, **params)
    if current_mode() == "auto":
        return _lower_inline(ctx, *operands, **params)
    raise ValueError(
        f"element formats: got {lhs_fmt} and {rhs_fmt}, which the {SCALED_DOT_TARGET} call cannot name; "
        "want float8_e4m3fn or float8_e5m2 on both sides"
    )


def _lower_default(ctx: Any, *operands: Any, **params: Any) -> Any:
    return _lower(ctx, *operands, auto=lowers_for_neuron(ctx), **params)


def _lower_custom_call(ctx: Any, *operands: Any, **params: Any) -> Any:
    _shardy.check_partitioner(ctx, SCALED_DOT_TARGET)
    lhs, _, rhs, _ = ctx.avals_in
    if lhs.ndim < 2 or rhs.ndim < 2:
        return mlir.lower_fun(_multiply_as_matrices, multiple_results=False)(ctx, *operands, **params)
    dims: DotDims = params["dimension_numbers"]
    config = {
        CONFIG_KEY: {
            "element_dtype": params["lhs_fmt"].name,
            "lhs_batch_dimensions": list(dims.batch[0]),
            "lhs_contracting_dimensions": list(dims.contracting[0]),
            "rhs_batch_dimensions": list(dims.batch[1]),
            "rhs_contracting_dimensions": list(dims.contracting[1]),
        }
    }
    emit = jax.ffi.ffi_lowering(SCALED_DOT_TARGET, backend_config=json.dumps(config), api_version=2)
    lhs_data, lhs_scale, rhs_data, rhs_scale = operands
    order = (0, 2, 1, 3)
    ctx = ctx.replace(avals_in=[ctx.avals_in[i] for i in order])
    results: Any = emit(ctx, lhs_data, rhs_data, lhs_scale, rhs_scale)
    _shardy.attach(ctx, results[0].owner, _shardy.scaled_dot_rule(lhs.shape, rhs.shape, dims))
    return results


def _multiply_as_matrices(
    *operands: jax.Array, dimension_numbers: DotDims, out_sharding: Any, **params: Any
) -> jax.Array:
    """The same product with a dimension of size 1 put before the only one of a vector."""
    lhs, rhs = operands[:2], operands[2:]
    vectors = (lhs[0].ndim == 1, rhs[0].ndim == 1)
    out_rank = lhs[0].ndim + rhs[0].ndim - 2 - len(dimension_numbers.batch[0])
    contracting, batch = dimension_numbers.contracting, dimension_numbers.batch
    if vectors[0]:
        lhs = tuple(x[None] for x in lhs)
        out_sharding = batched_sharding(out_sharding, 0, None)
        contracting = ((1,), contracting[1])
    if vectors[1]:
        rhs = tuple(x[None] for x in rhs)
        contracting = (contracting[0], (1,))
    dims = DotDims(contracting, batch)
    out = _scaled_matmul.bind(*lhs, *rhs, dimension_numbers=dims, out_sharding=out_sharding, **params)
    # A vector has no batch dimension to share, so the lhs's dimension comes first and the rhs's last.
    return out.reshape(out.shape[vectors[0] : vectors[0] + out_rank])


mlir.register_lowering(scaled_matmul_mx_p, _lower_default)
for _platform in ("cpu", "gpu", "tpu"):
    mlir.register_lowering(scaled_matmul_mx_p, functools.partial(_lower, auto=False), platform=_platform)
