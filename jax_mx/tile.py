"""The tile view: what the hardware instruction sees, and what an NKI kernel compares itself against.

A tile is [P partitions, F free elements]; a block is 8 consecutive partitions by 4 consecutive free elements. Element
`k` of the quantized axis, at index `n` of everything else, sits at partition `k // 4` and free index `4 * n + k % 4`
(this project's decision, the "1x32" layout). A logical block of 32 is then one 8 x 4 block of the tile, and the
containers and scale bytes of both views are the same numbers at the same indices:
`tile_data[p, n] == data[p, n]` and `tile_scale[b, n] == scale[b, n]` for a logical [K, N] array quantized along axis 0.
"""

import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_mx._api import quantize_mx
from jax_mx._check import SCALE_DTYPES, SOURCE_DTYPES, as_array, check_array, check_axis, check_multiple_of_lanes
from jax_mx._compat import api_boundary
from jax_mx._formats import BLOCK_SIZE, LANES, DTypeLike
from jax_mx._integers import check_integer
from jax_mx._scale_rule import EMAX, ScaleRule

PARTITIONS = (32, 64, 96, 128)
"""Partition counts that the instruction accepts: one to four quadrants."""

QUADRANT = 32
"""Partitions of one quadrant."""

SCALE_ROWS_PER_QUADRANT = 4
"""Scale rows that a quadrant of source partitions produces."""

PACK_OFFSETS = (0, 4, 8, 12)
"""Row offsets within a quadrant at which scales can be stored, so that four tiles can share one buffer."""


@api_boundary
def quantize_mx_tile(
    src: Any, dtype: DTypeLike = "float8_e4m3fn", *, rule: ScaleRule = EMAX, scale_dtype: DTypeLike = jnp.uint8
) -> tuple[jax.Array, jax.Array]:
    """Quantizes one tile as the hardware instruction does.

    Args:
        src: bfloat16 or float16[P, F], P one of 32, 64, 96, 128 and F a multiple of 4.
        dtype: the element format, as for `quantize_mx`.
        rule: the scale rule, as for `quantize_mx`.
        scale_dtype: as for `quantize_mx`.

    Returns:
        data: uint32[P, F/4] (uint16 for float4).
        scale: scale_dtype[P/8, F/4], logical rows; see `scale_to_physical`.

    Raises:
        TypeError: as `quantize_mx` does.
        ValueError: `src` is not of the shape of a tile.
    """
    src = check_array("src", src, SOURCE_DTYPES)
    _check_tile_shape("src", src.shape)
    partitions, free = src.shape
    logical = to_logical(src, (partitions * LANES, free // LANES), axis=0)
    return quantize_mx(logical, dtype, axis=0, rule=rule, scale_dtype=scale_dtype)


@api_boundary
def from_logical(x: Any, *, axis: int = -1) -> jax.Array:
    """Lays a logical array out as a tile.

    Args:
        x: an array [..., K, ...]; K, the length of `axis`, is a multiple of 4.
        axis: the axis to quantize along.

    Returns:
        [K/4, 4*N], N the product of the other axes' lengths in their order.

    Raises:
        TypeError: `x` is no array.
        ValueError: `axis` is out of range or its length is not a multiple of 4.
    """
    x = as_array("x", x)
    axis = check_axis(axis, x.shape)
    check_multiple_of_lanes("x", x.shape, axis)
    length = x.shape[axis]
    others = x.size // length if length else math.prod(x.shape[:axis] + x.shape[axis + 1 :])
    lanes = jnp.moveaxis(x, axis, 0).reshape(length // LANES, LANES, others)
    return lanes.swapaxes(1, 2).reshape(length // LANES, LANES * others)


@api_boundary
def to_logical(tile: Any, shape: tuple[int, ...], *, axis: int = -1) -> jax.Array:
    """Reads a tile back as a logical array: the inverse of `from_logical`.

    Args:
        tile: an array [K/4, 4*N].
        shape: the logical shape, K long at `axis` and of N elements otherwise.
        axis: the quantized axis of `shape`.

    Returns:
        An array of `shape`.

    Raises:
        TypeError: `tile` is no array, or `shape` no sequence of integers.
        ValueError: `axis` is out of range or `shape` does not belong to the tile.
    """
    tile = as_array("tile", tile)
    shape = _check_shape(shape)
    axis = check_axis(axis, shape)
    check_multiple_of_lanes("shape", shape, axis)
    moved = (shape[axis], *shape[:axis], *shape[axis + 1 :])
    others = math.prod(moved[1:])
    wanted = (shape[axis] // LANES, LANES * others)
    if tile.shape != wanted:
        raise ValueError(f"tile: got shape {tile.shape}, want {wanted} for the logical shape {shape} along axis {axis}")
    lanes = tile.reshape(wanted[0], others, LANES).swapaxes(1, 2)
    return jnp.moveaxis(lanes.reshape(moved), 0, axis)


@api_boundary
def scale_to_physical(scale: Any, offset: int = 0, *, into: Any = None) -> jax.Array:
    """Places a tile's scale rows where the instruction stores them.

    Row `i` goes to partition row `(i & 3) + 32 * (i >> 2) + offset`; no other row is written.

    Args:
        scale: uint8 or float8_e8m0fnu[P/8, F/4], as `quantize_mx_tile` returns it.
        offset: the pack offset, 0, 4, 8 or 12.
        into: [P, F/4] of scale's dtype whose rows are kept where none is written; zero bytes by default.

    Returns:
        [P, F/4] of scale's dtype.

    Raises:
        TypeError: an argument is of another type.
        ValueError: `offset` or a shape is none of these.
    """
    scale = check_array("scale", scale, SCALE_DTYPES)
    rows = _physical_rows(scale.shape, offset)
    shape = (scale.shape[0] * BLOCK_SIZE // LANES, scale.shape[1])
    if into is None:
        physical = jnp.zeros(shape, jnp.uint8)
    else:
        into = check_array("into", into, (scale.dtype,))
        if into.shape != shape:
            raise ValueError(f"into: got shape {into.shape}, want {shape} for scale of shape {scale.shape}")
        physical = lax.bitcast_convert_type(into, jnp.uint8)
    # As bytes: zeros of float8_e8m0fnu would be NaN, 0xFF.
    physical = physical.at[rows].set(lax.bitcast_convert_type(scale, jnp.uint8))
    return lax.bitcast_convert_type(physical, scale.dtype)


@api_boundary
def scale_from_physical(physical: Any, offset: int = 0) -> jax.Array:
    """Reads a tile's scale rows from where the instruction stores them: the inverse of `scale_to_physical`.

    Args:
        physical: uint8 or float8_e8m0fnu[P, F/4].
        offset: the pack offset, 0, 4, 8 or 12.

    Returns:
        [P/8, F/4] of the same dtype.

    Raises:
        TypeError: an argument is of another type.
        ValueError: `offset` or the shape is none of these.
    """
    physical = check_array("physical", physical, SCALE_DTYPES)
    if physical.ndim != 2 or physical.shape[0] not in PARTITIONS:
        raise ValueError(f"physical: got shape {physical.shape}, want [P, F/4] with P one of {PARTITIONS}")
    logical_shape = (physical.shape[0] * LANES // BLOCK_SIZE, physical.shape[1])
    return physical[_physical_rows(logical_shape, offset)]


def _physical_rows(scale_shape: tuple[int, ...], offset: int) -> np.ndarray:
    offset = check_integer("offset", offset, PACK_OFFSETS)
    counts = tuple(partitions * LANES // BLOCK_SIZE for partitions in PARTITIONS)
    if len(scale_shape) != 2 or scale_shape[0] not in counts:
        raise ValueError(f"scale: got shape {scale_shape}, want [P/8, F/4] with P/8 one of {counts}")
    row = np.arange(scale_shape[0])
    return row % SCALE_ROWS_PER_QUADRANT + QUADRANT * (row // SCALE_ROWS_PER_QUADRANT) + offset


def _check_tile_shape(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] not in PARTITIONS or shape[1] % LANES != 0:
        raise ValueError(
            f"{name}: got shape {shape}, want [P, F] with P one of {PARTITIONS} and F a multiple of {LANES}"
        )


def _check_shape(shape: Any) -> tuple[int, ...]:
    try:
        lengths = tuple(operator.index(length) for length in shape)
    except TypeError:
        raise TypeError(f"shape: got {shape!r}, want a sequence of integers") from None
    if any(length < 0 for length in lengths):
        raise ValueError(f"shape: got {lengths}, want no negative length")
    return lengths
