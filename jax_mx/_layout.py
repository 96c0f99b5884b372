"""How codes and scales lie along the quantized axis.

An x4 container holds four consecutive element codes in one unsigned integer, the first in the lowest bits.
"""

import jax
import jax.numpy as jnp
from jax import lax

from jax_mx._formats import BLOCK_SIZE, LANES, ElementFormat


def split_axis(x: jax.Array, axis: int, size: int) -> jax.Array:
    """Splits `axis` into (length / size, size)."""
    shape = x.shape
    return x.reshape(*shape[:axis], shape[axis] // size, size, *shape[axis + 1 :])


def merge_axis(x: jax.Array, axis: int) -> jax.Array:
    """Merges `axis` with the one after it: what `split_axis` split."""
    shape = x.shape
    return x.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])


def repeat_per_block(scale: jax.Array, axis: int) -> jax.Array:
    """Repeats each scale along `axis` for every element of its block."""
    shape = (*scale.shape[: axis + 1], BLOCK_SIZE, *scale.shape[axis + 1 :])
    return merge_axis(jnp.broadcast_to(jnp.expand_dims(scale, axis + 1), shape), axis)


def pack_containers(codes: jax.Array, fmt: ElementFormat, axis: int) -> jax.Array:
    """Packs uint8 codes along the non-negative `axis`, whose length is a multiple of 4."""
    if _can_bitcast(codes, axis):
        # The barrier keeps the bitcast out of the loop that makes the codes: with it, the loop is not vectorized.
        lanes = split_axis(lax.optimization_barrier(codes), axis, LANES)
        word = lax.bitcast_convert_type(lanes, jnp.uint32)
        if fmt.bits == 4:  # bytes 0c0c0c0c to nibbles cccc
            word = (word | (word >> 4)) & 0x00FF_00FF
            word = word | (word >> 8)
        return word.astype(fmt.container_dtype)
    lanes = split_axis(codes, axis, LANES)
    word = jnp.zeros((), fmt.container_dtype)
    for lane in range(LANES):
        code = lax.index_in_dim(lanes, lane, axis + 1, keepdims=False).astype(fmt.container_dtype)
        word = word | (code << (lane * fmt.bits))
    return word


def unpack_containers(data: jax.Array, fmt: ElementFormat, axis: int) -> jax.Array:
    """Unpacks containers along the non-negative `axis` to uint8 codes: the inverse of `pack_containers`.

    Every lane shifts its container by itself, so that this becomes part of whatever loop uses the codes.
    """
    shape = [1] * (data.ndim + 1)
    shape[axis + 1] = LANES
    shifts = lax.iota(data.dtype, LANES).reshape(shape) * fmt.bits
    lanes = (jnp.expand_dims(data, axis + 1) >> shifts) & ((1 << fmt.bits) - 1)
    return merge_axis(lanes.astype(jnp.uint8), axis)


def _can_bitcast(x: jax.Array, axis: int) -> bool:
    """Whether the lanes are next to each other in memory and StableHLO can type a bitcast between widths.

    It cannot refine the shape of such a bitcast when a dimension is symbolic, as in `jax.export`.
    """
    return axis == x.ndim - 1 and all(isinstance(length, int) for length in x.shape)


def permute_lanes(codes: jax.Array, axis: int, lane_stride: int, parity: int) -> jax.Array:
    """Reorders 4-bit codes along `axis` as the simulator's lane permutation and nibble parity do. Its own inverse.

    `lane_stride` reverses the order of the bytes (pairs of codes) in each window of that many bytes; `parity` 0 puts
    the odd code of each pair in the low nibble.
    """
    if lane_stride > 1:
        pairs = split_axis(split_axis(codes, axis, 2 * lane_stride), axis + 1, 2)
        codes = merge_axis(merge_axis(jnp.flip(pairs, axis + 1), axis + 1), axis)
    if parity == 0:
        codes = merge_axis(jnp.flip(split_axis(codes, axis, 2), axis + 1), axis)
    return codes
