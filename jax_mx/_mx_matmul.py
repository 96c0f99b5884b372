"""The matrix product of two `MXArray`s, with the dimensions of `jnp.matmul`."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_mx._scaled_matmul import scaled_matmul_mx

if TYPE_CHECKING:
    from jax_mx._mx_array import MXArray


def multiply(lhs: "MXArray", rhs: "MXArray") -> jax.Array:
    """Multiplies [..., M, K] by [..., K, N] (or vectors of K) where both are quantized along K.

    Raises:
        ValueError: one of them is quantized along another axis, or the shapes do not fit.
    """
    lhs_axis = lhs.ndim - 1
    rhs_axis = max(rhs.ndim - 2, 0)
    for name, x, axis in (("left", lhs, lhs_axis), ("right", rhs, rhs_axis)):
        if x.axis != axis:
            raise ValueError(
                f"@: got a {name} operand {x} quantized along axis {x.axis}, want axis {axis}, which is contracted; "
                "dequantize it, or quantize it along that axis"
            )
    if lhs.shape[lhs_axis] != rhs.shape[rhs_axis]:
        raise ValueError(f"@: got shapes {lhs.shape} and {rhs.shape}, whose contracted dimensions differ in size")
    leaves: tuple[Any, ...] = (lhs.data, lhs.scale, rhs.data, rhs.scale)
    batch: tuple[int, ...] = ()
    if rhs.ndim > 2:
        shape = _batch_shape(lhs.shape, rhs.shape)
        batch = tuple(range(len(shape)))
        leaves = tuple(jnp.broadcast_to(x, (*shape, *x.shape[-2:])) for x in leaves)
        lhs_axis, rhs_axis = leaves[0].ndim - 1, leaves[2].ndim - 2
    out_dtype = jnp.bfloat16 if lhs.dtype == rhs.dtype == jnp.bfloat16 else jnp.float32
    lhs_data, lhs_scale, rhs_data, rhs_scale = leaves
    return scaled_matmul_mx(
        lhs_data,
        lhs_scale,
        rhs_data,
        rhs_scale,
        (lhs.format.name, rhs.format.name),
        dimension_numbers=(((lhs_axis,), (rhs_axis,)), (batch, batch)),
        out_dtype=out_dtype,
    )


def _batch_shape(lhs: tuple[int, ...], rhs: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(lhs[:-2], rhs[:-2])
    except ValueError:
        raise ValueError(f"@: got shapes {lhs} and {rhs}, whose batch dimensions cannot be broadcast") from None
