"""Indexing a quantized array: one logical index becomes an index of the containers and one of the scale bytes."""

import operator
from types import EllipsisType
from typing import Any

import jax.numpy as jnp

from jax_mx._check import scale_length
from jax_mx._formats import BLOCK_SIZE, LANES

Index = tuple[Any, ...]


def split_index(index: Any, shape: tuple[int, ...], axis: int) -> tuple[Index, Index, int]:
    """What a logical index means for the leaves of an array of `shape` quantized along `axis`.

    Returns:
        The index of data, the index of scale, and the quantized axis of the result, counted from its end.

    Raises:
        IndexError: too many indices, or an index out of range.
        TypeError: an index of another kind.
        ValueError: the index would cut through a block, or mixes integers with an array.
    """
    entries = _expanded(index if isinstance(index, tuple) else (index,), shape)
    arrays = [entry for entry in entries if _is_array(entry)]
    integers = [entry for entry in entries if _is_integer(entry)]
    if len(arrays) > 1 or (arrays and integers):
        raise ValueError(
            f"index: got {len(arrays)} arrays and {len(integers)} integers, want one array alone, or none: "
            "index in two steps"
        )
    data: list[Any] = []
    scale: list[Any] = []
    rank = at = 0
    axis_at = -1
    for entry in entries:
        if entry is None:
            data.append(None)
            scale.append(None)
            rank += 1
            continue
        if at == axis:
            data_part, scale_part = _between_blocks(entry, shape[axis], axis)
            axis_at = rank
        else:
            data_part = scale_part = _in_range(entry, shape[at], at)
        data.append(data_part)
        scale.append(scale_part)
        rank += 1 if isinstance(entry, slice) else jnp.ndim(entry)
        at += 1
    return tuple(data), tuple(scale), axis_at - rank


def _expanded(index: Index, shape: tuple[int, ...]) -> list[Any]:
    """The index with an entry for every axis; None entries add axes."""
    for entry in index:
        if not (entry is None or isinstance(entry, slice | EllipsisType) or _is_integer(entry) or _is_array(entry)):
            raise TypeError(
                f"index: got {_kind(entry)}, want an integer, a slice, None, an ellipsis or an array of integers; "
                "dequantize() gives an array that takes any index"
            )
    ellipses = sum(isinstance(entry, EllipsisType) for entry in index)
    if ellipses > 1:
        raise IndexError(f"index: got {ellipses} ellipses, want one at most")
    named = sum(entry is not None and not isinstance(entry, EllipsisType) for entry in index)
    if named > len(shape):
        raise IndexError(f"index: got {named} indices for shape {shape}, want {len(shape)} at most")
    missing = [slice(None)] * (len(shape) - named)
    if ellipses == 0:
        return [*index, *missing]
    at = next(i for i, entry in enumerate(index) if isinstance(entry, EllipsisType))
    return [*index[:at], *missing, *index[at + 1 :]]


def _between_blocks(entry: Any, length: int, axis: int) -> tuple[slice, slice]:
    if not isinstance(entry, slice):
        raise ValueError(
            f"index: got {_kind(entry)} for axis {axis}, along which this array is quantized, want a slice; "
            "dequantize() gives an array that takes any index"
        )
    try:
        start, stop, step = entry.indices(length)
    except TypeError:
        raise TypeError(f"index: got {entry} for axis {axis}, want a slice of integers") from None
    stop = max(start, stop)
    if step != 1 or start % BLOCK_SIZE or (stop % BLOCK_SIZE and stop != length and stop != start):
        raise ValueError(
            f"index: got {entry} for axis {axis}, which cuts through the blocks of {BLOCK_SIZE} along it, "
            f"want step 1 and bounds that are multiples of {BLOCK_SIZE}, or the end, {length}"
        )
    return slice(start // LANES, stop // LANES), slice(start // BLOCK_SIZE, scale_length(stop))


def _in_range(entry: Any, length: int, axis: int) -> Any:
    if isinstance(entry, int) and not -length <= entry < length:
        raise IndexError(f"index: got {entry} for axis {axis}, want one in [{-length}, {length})")
    return entry


def _is_integer(entry: Any) -> bool:
    if isinstance(entry, bool):
        return False
    if hasattr(entry, "dtype"):
        return entry.shape == () and jnp.issubdtype(entry.dtype, jnp.integer)
    try:
        operator.index(entry)
    except TypeError:
        return False
    return True


def _is_array(entry: Any) -> bool:
    return hasattr(entry, "dtype") and entry.shape != () and jnp.issubdtype(entry.dtype, jnp.integer)


def _kind(entry: Any) -> str:
    if hasattr(entry, "dtype"):
        return f"an array of dtype {entry.dtype} and shape {entry.shape}"
    return repr(entry) if isinstance(entry, int) else f"a {type(entry).__name__}"
