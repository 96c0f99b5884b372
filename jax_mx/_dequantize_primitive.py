"""The `dequantize_mx` primitive: how it is typed, run eagerly and batched.

Its parameters are `fmt` (ElementFormat), `axis` (a non-negative int) and `out_dtype`. Its operands are the containers
and the uint8 scale bytes: integers, so it is constant to derivatives without a rule that says so. `_lowering` registers
what it becomes in a compiled module.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_mx._compat import Primitive, auto_insert_reshard, register_batcher, with_mapped_dimension
from jax_mx._formats import LANES, ElementFormat

dequantize_mx_p = Primitive("dequantize_mx")


def bind(data: jax.Array, scale: jax.Array, *, fmt: ElementFormat, axis: int, out_dtype: Any) -> jax.Array:
    """Applies the primitive to arguments that are already validated."""
    data, scale = auto_insert_reshard(data, scale)
    return dequantize_mx_p.bind(data, scale, fmt=fmt, axis=axis, out_dtype=jnp.dtype(out_dtype))


@functools.partial(jax.jit, static_argnames=("fmt", "axis", "out_dtype"))
def _dequantize_mx(data: jax.Array, scale: jax.Array, *, fmt: ElementFormat, axis: int, out_dtype: Any) -> jax.Array:
    return bind(data, scale, fmt=fmt, axis=axis, out_dtype=out_dtype)


def _run_eagerly(data: jax.Array, scale: jax.Array, **params: Any) -> jax.Array:
    with jax.disable_jit(False):  # the primitive is its own smallest step: without jit it would call itself
        return _dequantize_mx(data, scale, **params)


def _abstract_eval(data: Any, scale: Any, *, fmt: ElementFormat, axis: int, out_dtype: Any) -> Any:
    shape = (*data.shape[:axis], data.shape[axis] * LANES, *data.shape[axis + 1 :])
    return data.update(shape=shape, dtype=out_dtype, weak_type=False)


def _batch(
    mesh_axes: Any,
    args: Sequence[jax.Array],
    dims: Sequence[int | None],
    *,
    fmt: ElementFormat,
    axis: int,
    out_dtype: Any,
) -> tuple[jax.Array, int]:
    size = next(x.shape[dim] for x, dim in zip(args, dims, strict=True) if dim is not None)
    if dims[0] is not None and dims[0] == dims[1]:
        batch_dim = dims[0]
    else:
        batch_dim = 0
        args = [with_mapped_dimension(x, dim, 0, size, mesh_axes) for x, dim in zip(args, dims, strict=True)]
    return bind(*args, fmt=fmt, axis=axis + (batch_dim <= axis), out_dtype=out_dtype), batch_dim


dequantize_mx_p.def_impl(_run_eagerly)
dequantize_mx_p.def_abstract_eval(_abstract_eval)
register_batcher(dequantize_mx_p, _batch)
