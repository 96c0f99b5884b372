"""The primitives behind `mx_dot_general`: a product of quantized operands, and its derivative.

`mx_dot` quantizes its operands along the contracting dimensions (float32 ones are rounded to bfloat16 first) and
multiplies them. `mx_dot_tangent` is its derivative in one operand: linear in the operand `side`, and straight-through,
as if quantizing were the identity. Transposing it gives the backward pass, in which the gradient from above is
quantized by the recipe.

They are primitives, not a `jax.custom_vjp`, because a custom_vjp is differentiated before it is mapped: under
`jax.vmap`, a weight's gradient would be one outer product for each example, summed afterwards. A primitive is mapped
first, to one product that contracts over the examples, which is what has to be quantized.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_mx import _primitive, _scaled_matmul
from jax_mx._compat import (
    Primitive,
    ad,
    auto_insert_reshard,
    batched_sharding,
    dot_general_aval,
    mlir,
    permuted_sharding,
    register_batcher,
    with_whole_blocks,
)
from jax_mx._dequantize import dequantize
from jax_mx._dot_dims import DotDims
from jax_mx._formats import BLOCK_SIZE, LANES, ElementFormat
from jax_mx._recipe import MXRecipe
from jax_mx._scale_rule import ScaleRule

mx_dot_p = Primitive("mx_dot")
mx_dot_tangent_p = Primitive("mx_dot_tangent")


def bind(lhs: jax.Array, rhs: jax.Array, **params: Any) -> jax.Array:
    """Applies `mx_dot` to arguments that are already validated.

    Its parameters are `dimension_numbers` (DotDims), `recipe` (MXRecipe), `out_dtype` and `out_sharding`.
    """
    return _bind(mx_dot_p, lhs, rhs, **params)


def _bind(primitive: Any, lhs: jax.Array, rhs: jax.Array, **params: Any) -> jax.Array:
    # As jax's own operators do: operands that vary over different mapped axes of a mesh are made to vary over all.
    return primitive.bind(*auto_insert_reshard(lhs, rhs), **params)


def _multiply(
    lhs: jax.Array,
    rhs: jax.Array,
    *,
    dimension_numbers: DotDims,
    recipe: MXRecipe,
    out_dtype: np.dtype[Any],
    out_sharding: Any,
) -> jax.Array:
    lhs, rhs, dims = _with_one_contracting_dimension(lhs, rhs, dimension_numbers)
    (lhs_axis,), (rhs_axis,) = dims.contracting
    lhs_fmt, rhs_fmt = recipe.operands
    lhs, rhs = _quantizable(lhs), _quantizable(rhs)
    lhs_data, lhs_scale = _primitive.bind(lhs, fmt=lhs_fmt, rule=recipe.rule, axis=lhs_axis)
    rhs_data, rhs_scale = _primitive.bind(rhs, fmt=rhs_fmt, rule=recipe.rule, axis=rhs_axis)
    return _scaled_matmul.bind(
        lhs_data,
        lhs_scale,
        rhs_data,
        rhs_scale,
        lhs_fmt=lhs_fmt,
        rhs_fmt=rhs_fmt,
        dimension_numbers=dims,
        out_dtype=out_dtype,
        out_sharding=out_sharding,
    )


def _quantizable(x: jax.Array) -> jax.Array:
    return x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x


def _with_one_contracting_dimension(
    lhs: jax.Array, rhs: jax.Array, dims: DotDims
) -> tuple[jax.Array, jax.Array, DotDims]:
    """The same product with one contracting dimension on each side, padded with zeros to whole containers."""
    if len(dims.contracting[0]) != 1:
        lhs = _contracting_last(lhs, dims, 0)
        rhs = _contracting_last(rhs, dims, 1)
        # `_contracting_last` also brings the batch dimensions first.
        batch = tuple(range(len(dims.batch[0])))
        dims = DotDims(((lhs.ndim - 1,), (rhs.ndim - 1,)), (batch, batch))
    (lhs_axis,), (rhs_axis,) = dims.contracting
    return _whole_containers(lhs, lhs_axis), _whole_containers(rhs, rhs_axis), dims


def _contracting_last(x: jax.Array, dims: DotDims, side: int) -> jax.Array:
    kept = (*dims.batch[side], *dims.free(side, x.ndim))
    moved = x.transpose(*kept, *dims.contracting[side])
    return moved.reshape(*(x.shape[d] for d in kept), int(np.prod([x.shape[d] for d in dims.contracting[side]])))


def _whole_containers(x: jax.Array, axis: int) -> jax.Array:
    x = with_whole_blocks(x, axis, BLOCK_SIZE)
    missing = -x.shape[axis] % LANES
    if missing == 0:
        return x
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, missing)
    return jnp.pad(x, widths)  # a zero adds nothing to a product and never raises a block's scale


def _multiply_tangent(
    lhs: jax.Array,
    rhs: jax.Array,
    *,
    side: int,
    dimension_numbers: DotDims,
    recipe: MXRecipe,
    out_dtype: np.dtype[Any],
    out_sharding: Any,
) -> jax.Array:
    """The tangent in operand `side` times the other operand as the forward pass saw it: quantized and back."""
    operands = [lhs, rhs]
    other = 1 - side
    axes = dimension_numbers.contracting[other]
    operands[other] = _fake_quantize(operands[other], recipe.operands[other], recipe.rule, axes)
    return _plain_product(operands[0], operands[1], dimension_numbers, out_dtype, out_sharding)


def _fake_quantize(x: jax.Array, fmt: ElementFormat, rule: ScaleRule, axes: tuple[int, ...]) -> jax.Array:
    kept = tuple(d for d in range(x.ndim) if d not in axes)
    order = (*kept, *axes)
    moved = x.transpose(order)
    length = int(np.prod([x.shape[d] for d in axes]))
    flat = _whole_containers(moved.reshape(*(x.shape[d] for d in kept), length), len(kept))
    data, scale = _primitive.bind(_quantizable(flat), fmt=fmt, rule=rule, axis=len(kept))
    values = dequantize(data, scale, fmt=fmt, axis=len(kept), out_dtype=x.dtype)
    return values[..., :length].reshape(moved.shape).transpose(tuple(np.argsort(order)))


def _plain_product(lhs: jax.Array, rhs: jax.Array, dims: DotDims, out_dtype: Any, out_sharding: Any) -> jax.Array:
    dtype = jnp.promote_types(lhs.dtype, rhs.dtype)
    product = lax.dot_general(
        lhs.astype(dtype),
        rhs.astype(dtype),
        dims.as_lax,
        preferred_element_type=jnp.float32,
        out_sharding=out_sharding,
    )
    return product.astype(out_dtype)


def _abstract_eval(
    lhs: Any, rhs: Any, *, dimension_numbers: DotDims, out_dtype: np.dtype[Any], out_sharding: Any, **_: Any
) -> Any:
    return dot_general_aval(lhs, rhs, dimension_numbers.as_lax, out_dtype, out_sharding)


def _batcher(primitive: Any) -> Callable[..., tuple[jax.Array, int]]:
    def batch(
        mesh_axes: Any,
        operands: Sequence[jax.Array],
        mapped: Sequence[int | None],
        *,
        dimension_numbers: DotDims,
        out_sharding: Any,
        **params: Any,
    ) -> tuple[jax.Array, int]:
        ranks = [x.ndim - (at is not None) for x, at in zip(operands, mapped, strict=True)]
        dims, out_at = dimension_numbers.mapped((mapped[0], mapped[1]), (ranks[0], ranks[1]))
        out_sharding = batched_sharding(out_sharding, out_at, mesh_axes)
        return _bind(primitive, *operands, dimension_numbers=dims, out_sharding=out_sharding, **params), out_at

    return batch


def _jvp(primals: Sequence[jax.Array], tangents: Sequence[Any], **params: Any) -> tuple[jax.Array, Any]:
    lhs, rhs = primals
    out = _bind(mx_dot_p, lhs, rhs, **params)
    parts = []
    if not isinstance(tangents[0], ad.Zero):
        parts.append(_bind(mx_dot_tangent_p, tangents[0], rhs, side=0, **params))
    if not isinstance(tangents[1], ad.Zero):
        parts.append(_bind(mx_dot_tangent_p, lhs, tangents[1], side=1, **params))
    return out, parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _tangent_jvp(primals: Sequence[jax.Array], tangents: Sequence[Any], *, side: int, **params: Any) -> Any:
    """The derivative of the derivative: bilinear, and straight-through in the operand that is quantized."""
    out = _bind(mx_dot_tangent_p, *primals, side=side, **params)
    parts = []
    if not isinstance(tangents[side], ad.Zero):
        operands = list(primals)
        operands[side] = tangents[side]
        parts.append(_bind(mx_dot_tangent_p, *operands, side=side, **params))
    other = 1 - side
    if not isinstance(tangents[other], ad.Zero):
        operands = list(primals)
        operands[other] = tangents[other]
        parts.append(_bind(mx_dot_tangent_p, *operands, side=other, **params))
    return out, parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _tangent_transpose(
    cotangent: Any,
    lhs: Any,
    rhs: Any,
    *,
    side: int,
    dimension_numbers: DotDims,
    recipe: MXRecipe,
    out_dtype: np.dtype[Any],
    out_sharding: Any,
) -> list[Any]:
    operands = [lhs, rhs]
    aval = operands[side].aval
    if isinstance(cotangent, ad.Zero):
        result: Any = ad.Zero(aval)
    else:
        other = operands[1 - side]
        ranks = (np.ndim(lhs) if side else aval.ndim, aval.ndim if side else np.ndim(rhs))
        dims, layout = dimension_numbers.transposed(side, ranks)
        # On a mesh with explicit axes, an operand's cotangent is sharded as the operand is.
        sharding = permuted_sharding(aval, tuple(np.argsort(layout).tolist()))
        result = _backward_product(cotangent, other, 1 - side, dims, recipe, sharding)
        result = result.transpose(layout).astype(aval.dtype)
    return [result, None] if side == 0 else [None, result]


def _backward_product(
    cotangent: jax.Array, other: jax.Array, other_side: int, dims: DotDims, recipe: MXRecipe, out_sharding: Any
) -> jax.Array:
    if recipe.gradient is None:
        return _plain_product(cotangent.astype(other.dtype), other, dims, jnp.float32, out_sharding)
    backward = MXRecipe(recipe.gradient, recipe.operands[other_side], recipe.gradient, recipe.rule)
    float32 = jnp.dtype(jnp.float32)
    return bind(cotangent, other, dimension_numbers=dims, recipe=backward, out_dtype=float32, out_sharding=out_sharding)


def _register(primitive: Any, multiply: Callable[..., jax.Array], *params: str) -> None:
    jitted = jax.jit(multiply, static_argnames=params)

    def run_eagerly(lhs: jax.Array, rhs: jax.Array, **params: Any) -> jax.Array:
        with jax.disable_jit(False):  # else the smaller primitives in it would be run one by one
            return jitted(lhs, rhs, **params)

    primitive.def_impl(run_eagerly)
    primitive.def_abstract_eval(_abstract_eval)
    register_batcher(primitive, _batcher(primitive))
    mlir.register_lowering(primitive, mlir.lower_fun(multiply, multiple_results=False))


_register(mx_dot_p, _multiply, "dimension_numbers", "recipe", "out_dtype", "out_sharding")
_register(mx_dot_tangent_p, _multiply_tangent, "side", "dimension_numbers", "recipe", "out_dtype", "out_sharding")
ad.primitive_jvps[mx_dot_p] = _jvp
ad.primitive_jvps[mx_dot_tangent_p] = _tangent_jvp
ad.primitive_transposes[mx_dot_tangent_p] = _tangent_transpose
