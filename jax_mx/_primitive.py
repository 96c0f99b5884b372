"""The `quantize_mx` primitive: how it is typed, run eagerly, batched and refused a derivative.

Its parameters are `fmt` (ElementFormat), `rule` (ScaleRule) and `axis` (a non-negative int). Its results are the
containers and the uint8 scale bytes. `_lowering` registers what it becomes in a compiled module.
"""

import functools
from collections.abc import Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp

from jax_mx._check import check_whole_blocks, scale_length
from jax_mx._compat import Primitive, ad, batching
from jax_mx._formats import BLOCK_SIZE, LANES, ElementFormat
from jax_mx._scale_rule import ScaleRule

quantize_mx_p = Primitive("quantize_mx")
quantize_mx_p.multiple_results = True


def bind(x: jax.Array, *, fmt: ElementFormat, rule: ScaleRule, axis: int) -> tuple[jax.Array, jax.Array]:
    """Applies the primitive to arguments that are already validated."""
    data, scale = quantize_mx_p.bind(x, fmt=fmt, rule=rule, axis=axis)
    return data, scale


@functools.partial(jax.jit, static_argnames=("fmt", "rule", "axis"))
def _quantize_mx(x: jax.Array, *, fmt: ElementFormat, rule: ScaleRule, axis: int) -> tuple[jax.Array, jax.Array]:
    return bind(x, fmt=fmt, rule=rule, axis=axis)


def _run_eagerly(x: jax.Array, **params: Any) -> tuple[jax.Array, jax.Array]:
    with jax.disable_jit(False):  # the primitive is its own smallest step: without jit it would call itself
        return _quantize_mx(x, **params)


def _abstract_eval(x: Any, *, fmt: ElementFormat, rule: ScaleRule, axis: int) -> tuple[Any, Any]:
    # `update` keeps what x's type says of meshes; a fresh ShapedArray would make shard_map accept wrong out_specs.
    def result(length: int, dtype: Any) -> Any:
        shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
        return x.update(shape=shape, dtype=jnp.dtype(dtype), weak_type=False)

    check_whole_blocks("x", x, axis, BLOCK_SIZE)
    length = x.shape[axis]
    return result(length // LANES, fmt.container_dtype), result(scale_length(length), jnp.uint8)


def _batch(
    args: Sequence[jax.Array], dims: Sequence[int], *, fmt: ElementFormat, rule: ScaleRule, axis: int
) -> tuple[tuple[jax.Array, jax.Array], tuple[int, int]]:
    (x,), (batch_dim,) = args, dims
    return bind(x, fmt=fmt, rule=rule, axis=axis + (batch_dim <= axis)), (batch_dim, batch_dim)


def _jvp(*_args: Any, **_params: Any) -> NoReturn:
    raise TypeError(
        "quantize_mx has no derivative: its results are integer codes. "
        "Use jax_mx.fake_quantize_mx, which quantizes and dequantizes with a straight-through gradient, "
        "or jax.lax.stop_gradient on what is quantized"
    )


quantize_mx_p.def_impl(_run_eagerly)
quantize_mx_p.def_abstract_eval(_abstract_eval)
batching.primitive_batchers[quantize_mx_p] = _batch
ad.primitive_jvps[quantize_mx_p] = _jvp
