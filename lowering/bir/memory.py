"""The simulator's memories: SBUF and DRAM tensors as bytes, and beside each byte the instruction that wrote it.

An access becomes a strided NumPy view of those bytes, so a whole tile moves in one assignment. SBUF rows are only as
long as the program's locations reach.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lowering.bir.access import Access, locations_of
from lowering.bir.errors import SimulationError
from lowering.bir.geometry import CORE_V4
from lowering.bir.program import AccessPattern, Function

__all__ = ["GIVEN", "NEVER", "Memory", "copy"]

NEVER = 0
"""Writer number of a byte nothing has written."""
GIVEN = 1
"""Writer number of a byte the caller provided; instruction i writes i + 2."""

_MAX_BYTES = 1 << 32

U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]


class Memory:
    """Bytes and writers of one function's memories."""

    def __init__(self, function: Function) -> None:
        """Lays out the memories that `function` names; no byte is initialised.

        Raises:
            SimulationError: They are larger than a laptop's.
        """
        places = locations_of(function)
        self._row = max((p.addr + p.dims[1] for p in places.values() if p.type == "SB"), default=0)
        # Named after the place in DRAM, and "" for SBUF, where locations may share bytes.
        sizes = {name: place.dims[0] * place.dims[1] for name, place in places.items() if place.type == "DRAM"}
        sizes[""] = CORE_V4.partitions * self._row
        if sum(sizes.values()) > _MAX_BYTES:
            raise SimulationError(f"{function.name} has {sum(sizes.values())} bytes of memory, more than {_MAX_BYTES}")
        self._bytes: dict[str, U8] = {name: np.zeros(size, np.uint8) for name, size in sizes.items()}
        written = {
            operand.memref
            for instruction in function.instructions()
            for operand in instruction.outs
            if isinstance(operand, AccessPattern)
        }
        # Tensors no instruction writes need no record of writers: their bytes can only come from the caller.
        self._writers: dict[str, I32] = {
            name: np.full(size, NEVER, np.int32) for name, size in sizes.items() if name in written or not name
        }
        self._given: set[str] = set()

    def give(self, name: str, content: U8) -> None:
        """Fills the DRAM location `name` with the caller's bytes."""
        self._bytes[name][:] = content
        self._given.add(name)
        if name in self._writers:
            self._writers[name][:] = GIVEN

    def content(self, name: str) -> U8:
        """All bytes of the DRAM location `name`."""
        return self._bytes[name]

    def unwritten(self, name: str) -> int | None:
        """The first byte of the DRAM location `name` that nothing has written, or None."""
        if name not in self._writers:
            return None if name in self._given or not self._bytes[name].size else 0
        missing = self._writers[name] == NEVER
        return int(missing.argmax()) if missing.any() else None

    def view(self, access: Access) -> NDArray[np.unsignedinteger]:
        """The units `access` names, as unsigned integers, in its own order and shape."""
        shape, strides = self._strides(access)
        size = access.dtype.bytes
        return np.ndarray(shape, f"<u{size}", self._bytes[_plane(access)], self._start(access), strides)

    def is_constant(self, access: Access) -> bool:
        """Whether `access` is to bytes that the caller provided and that no instruction writes."""
        plane = _plane(access)
        return plane in self._given and plane not in self._writers

    def writers(self, access: Access) -> I32:
        """Writer numbers of every byte `access` names, one axis more than `view`; not for constants."""
        plane = _plane(access)
        if plane not in self._writers:
            self._writers[plane] = np.full(self._bytes[plane].size, NEVER, np.int32)
        shape, strides = self._strides(access)
        shape, strides = (*shape, access.dtype.bytes), (*(4 * stride for stride in strides), 4)
        return np.ndarray(shape, np.int32, self._writers[plane], 4 * self._start(access), strides)

    def _start(self, access: Access) -> int:
        return access.partition * self._row + access.byte

    def _strides(self, access: Access) -> tuple[tuple[int, ...], tuple[int, ...]]:
        dims = [(step * self._row, num) for step, num in access.partition_dims]
        dims += [(step * access.dtype.bytes, num) for step, num in access.free_dims]
        return tuple(num for _, num in dims), tuple(stride for stride, _ in dims)


def _plane(access: Access) -> str:
    return access.location.name if access.in_dram else ""


def copy(target: NDArray[np.unsignedinteger], source: NDArray[np.unsignedinteger]) -> None:
    """Copies the n-th element of `source` to the n-th of `target`, whatever the two shapes.

    Raises:
        SimulationError: The two have different numbers of elements.
    """
    if target.size != source.size:
        raise SimulationError(f"{source.size} elements cannot fill {target.size}")
    shape = _common_shape(target.shape, source.shape)
    if shape is None:
        target[...] = np.ascontiguousarray(source).reshape(target.shape)
    else:
        target, source = _split(target, shape), _split(source, shape)
        words = _word(target, source)
        _words(target, words)[...] = _words(source, words)


def _common_shape(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...] | None:
    """The coarsest shape both split into, or None: (6, 4) and (2, 12) give (2, 3, 4)."""
    lefts, rights, shape = list(left), list(right), []
    while lefts or rights:
        a, b = lefts.pop() if lefts else 1, rights.pop() if rights else 1
        small, large = sorted((a, b))
        if large % small:
            return None
        shape.append(small)
        if small != large:
            (lefts if a == large else rights).append(large // small)
    return tuple(reversed(shape))


def _split(array: NDArray[np.unsignedinteger], shape: Sequence[int]) -> NDArray[np.unsignedinteger]:
    """`array` in the finer `shape`, as a view."""
    strides: list[int] = []
    axis, left = array.ndim - 1, array.shape[-1] if array.ndim else 1
    for size in reversed(shape):
        while left == 1 and axis > 0:
            axis -= 1
            left = array.shape[axis]
        strides.append(array.strides[axis] * (array.shape[axis] // left) if array.ndim else 0)
        left //= size
    return np.lib.stride_tricks.as_strided(array, tuple(shape), tuple(reversed(strides)))


def _word(*arrays: NDArray[np.unsignedinteger]) -> int:
    """Bytes of the largest word, up to 8, that the innermost runs of all `arrays` consist of."""
    size = arrays[0].itemsize
    if any(array.ndim == 0 or array.strides[-1] != size for array in arrays):
        return size
    run = arrays[0].shape[-1] * size
    return next(word for word in (8, 4, 2, 1) if run % word == 0 and word >= size)


def _words(array: NDArray[np.unsignedinteger], word: int) -> NDArray[np.unsignedinteger]:
    return array if word == array.itemsize else array.view(f"<u{word}")
