"""Weights in the layout of Trainium's tiles: K on partitions, scale rows where the instruction reads them.

A weight [..., N, K] quantized along K becomes data [..., K/4, N], partition first, and scale bytes [..., K/4, N] of
which only the physical rows are used: row `i` of the logical scales [K/32, N] lies at row `(i & 3) + 32 * (i >> 2)`,
optionally moved by a pack offset. Rows 128 t to 128 t + 127 are tile t, of up to 512 elements of K; so K is a multiple
of 128, whole quadrants of 32 partitions. See `jax_mx.tile` for one tile.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_mx._check import check_array, check_container_dtype, check_rule
from jax_mx._compat import api_boundary
from jax_mx._formats import BLOCK_SIZE, LANES, DTypeLike, as_format
from jax_mx._integers import check_integer
from jax_mx._mx_array import MXArray
from jax_mx._scale_rule import ScaleRule
from jax_mx.tile import PACK_OFFSETS, QUADRANT, SCALE_ROWS_PER_QUADRANT

QUADRANT_ELEMENTS = QUADRANT * LANES
"""Elements of K in one quadrant of partitions."""


@api_boundary
def to_tiles(array: MXArray, offset: int = 0) -> tuple[jax.Array, jax.Array]:
    """Lays a weight out as tiles.

    Args:
        array: [..., N, K] quantized along its last axis; K is a multiple of 128.
        offset: the pack offset of the scale rows, 0, 4, 8 or 12.

    Returns:
        data: uint32[..., K/4, N] (uint16 for float4).
        scale: uint8[..., K/4, N]; rows that no scale is stored in are zero.

    Raises:
        TypeError: `array` is no MXArray, or `offset` no integer.
        ValueError: the array is of another shape or axis, or `offset` is none of these.
    """
    if not isinstance(array, MXArray):
        raise TypeError(f"array: got {type(array).__name__}, want an MXArray")
    offset = check_offset(offset)
    problem = tiles_problem(array.shape) or ("" if array.axis == array.ndim - 1 else f"axis {array.axis}")
    if problem:
        raise ValueError(f"array: got {problem}, want [..., N, K] quantized along K, a multiple of {QUADRANT_ELEMENTS}")
    data = jnp.swapaxes(array.data, -1, -2)
    scale = jnp.swapaxes(array.scale, -1, -2)
    physical = jnp.zeros(data.shape, jnp.uint8).at[..., physical_rows(scale.shape[-2], offset), :].set(scale)
    return data, physical


@api_boundary
def from_tiles(
    data: Any,
    scale: Any,
    format: DTypeLike,  # noqa: A002  the field's own word
    *,
    offset: int = 0,
    rule: ScaleRule | None = None,
    dtype: DTypeLike = jnp.bfloat16,
) -> MXArray:
    """Reads a weight back from its tiles: the inverse of `to_tiles`.

    Args:
        data: uint32[..., K/4, N] (uint16 for float4).
        scale: uint8[..., K/4, N].
        format: the element format.
        offset: the pack offset of the scale rows.
        rule: the scale rule it was quantized by, if it is known.
        dtype: the logical dtype.

    Returns:
        [..., N, K], quantized along its last axis.

    Raises:
        TypeError: an argument is of another type.
        ValueError: shapes do not fit each other, or `offset` is none of 0, 4, 8 and 12.
    """
    fmt = as_format(format, "format")
    data = check_container_dtype("data", data, fmt)
    scale = check_array("scale", scale, (np.dtype(np.uint8),))
    offset = check_offset(offset)
    if rule is not None:
        check_rule(rule)
    if data.ndim < 2 or data.shape != scale.shape or data.shape[-2] % QUADRANT:
        raise ValueError(
            f"data and scale: got shapes {data.shape} and {scale.shape}, want both [..., K/4, N], "
            f"K/4 a multiple of {QUADRANT}"
        )
    rows = physical_rows(data.shape[-2] * LANES // BLOCK_SIZE, offset)
    return MXArray(
        jnp.swapaxes(data, -1, -2), jnp.swapaxes(scale[..., rows, :], -1, -2), fmt.name, rule=rule, dtype=dtype
    )


def check_offset(offset: Any) -> int:
    """`offset`, if it is a pack offset.

    Raises:
        TypeError: it is no integer.
        ValueError: it is another one.
    """
    return check_integer("offset", offset, PACK_OFFSETS)


def tiles_problem(shape: tuple[int, ...]) -> str:
    """What keeps a weight of this shape from being laid out as tiles, empty when nothing does."""
    if len(shape) < 2 or shape[-1] % QUADRANT_ELEMENTS:
        return f"shape {list(shape)}"
    return ""


def physical_rows(logical_rows: int, offset: int) -> np.ndarray[Any, Any]:
    """The row that each logical scale row is stored in."""
    row = np.arange(logical_rows)
    return row % SCALE_ROWS_PER_QUADRANT + QUADRANT * (row // SCALE_ROWS_PER_QUADRANT) + offset
