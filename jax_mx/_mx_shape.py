"""Shapes of a quantized array: what `reshape` and `transpose` do to its containers and scale bytes."""

import math
import operator
from typing import Any

from jax_mx._check import scale_length
from jax_mx._formats import BLOCK_SIZE, LANES

Shape = tuple[int, ...]


def reshaped(shape: Shape, axis: int, wanted: tuple[Any, ...]) -> tuple[Shape, Shape, int]:
    """The shapes of data and scale after a reshape, and the quantized axis counted from the end.

    Raises:
        TypeError: `wanted` is not made of integers.
        ValueError: the number of elements differs, or blocks would not stay whole.
    """
    new = _resolved(shape, wanted)
    new_axis = _axis_after(shape, axis, new)
    if new_axis is None:
        raise ValueError(
            f"shape: got {new} for an array of shape {shape} quantized along axis {axis}, which does not keep its "
            f"blocks of {BLOCK_SIZE} whole: want that axis kept, or split or merged at multiples of {BLOCK_SIZE}; "
            "dequantize() gives an array that takes any shape"
        )
    before, length, after = new[:new_axis], new[new_axis], new[new_axis + 1 :]
    data = (*before, length // LANES, *after)
    scale = (*before, scale_length(length), *after)
    return data, scale, new_axis - len(new)


def _axis_after(shape: Shape, axis: int, new: Shape) -> int | None:
    """The axis of `new` along which the blocks lie, None where they do not stay whole.

    Elements of a block are as far apart as the axes behind the quantized one are large, so those must have the same
    size in all; and a block must not reach over the end of the axis.
    """
    behind = math.prod(shape[axis + 1 :])
    before = math.prod(shape[:axis])
    for candidate in range(len(new)):
        if math.prod(new[candidate + 1 :]) != behind:
            continue
        unchanged = new[candidate] == shape[axis] and math.prod(new[:candidate]) == before
        whole_blocks = new[candidate] > 0 and new[candidate] % BLOCK_SIZE == 0 and shape[axis] % BLOCK_SIZE == 0
        if unchanged or whole_blocks:
            return candidate
    return None


def _resolved(shape: Shape, wanted: tuple[Any, ...]) -> Shape:
    try:
        new = [operator.index(n) for n in wanted]
    except TypeError:
        raise TypeError(f"shape: got {wanted!r}, want integers") from None
    size = math.prod(shape)
    unknown = [i for i, n in enumerate(new) if n == -1]
    if len(unknown) == 1:
        known = math.prod(n for n in new if n != -1)
        new[unknown[0]] = size // known if known else 0
    if len(unknown) > 1 or any(n < 0 for n in new) or math.prod(new) != size:
        raise ValueError(f"shape: got {tuple(wanted)}, want one of the {size} elements of shape {shape}")
    return tuple(new)


def permutation(axes: tuple[Any, ...], rank: int) -> tuple[int, ...]:
    """`axes` as a permutation of non-negative integers.

    Raises:
        TypeError: an axis is no integer.
        ValueError: it is no permutation.
    """
    try:
        indices = [operator.index(a) for a in axes]
    except TypeError:
        raise TypeError(f"axes: got {axes!r}, want integers") from None
    order = tuple(a + rank if a < 0 else a for a in indices)
    if sorted(order) != list(range(rank)):
        raise ValueError(f"axes: got {axes}, want a permutation of the {rank} axes")
    return order
