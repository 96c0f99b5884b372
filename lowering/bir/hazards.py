"""Finds reads of bytes never written, and accesses to shared bytes that no dependency orders.

Two instructions are ordered when a chain of dependencies leads from one to the other; engines run side by side, so
being earlier in the program is not enough. For every byte the last writer is on record: a read or write must be
ordered after it. Reads are on record as a whole, and a write must be ordered after every one it overlaps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lowering.bir.access import Access
from lowering.bir.errors import SimulationError
from lowering.bir.memory import GIVEN, NEVER, Memory
from lowering.bir.program import Instruction

__all__ = ["HazardTracker"]


class HazardTracker:
    """Follows a run in program order and refuses the first unsafe access."""

    def __init__(self, instructions: Sequence[Instruction], memory: Memory) -> None:
        """Takes the instructions of a function in program order; dependencies name earlier ones."""
        self._instructions = instructions
        self._memory = memory
        self._order = {instruction.name: i for i, instruction in enumerate(instructions)}
        self._last_use = {self._order[name]: i for i, item in enumerate(instructions) for name, _ in item.dependencies}
        self._pasts: dict[int, int] = {}
        self._past = 0
        self._reads: dict[str, list[tuple[int, Access]]] = defaultdict(list)

    def start(self, index: int) -> None:
        """Moves on to instruction `index`; its reads come next, then its writes."""
        self._past = 0
        for name, _ in self._instructions[index].dependencies:
            earlier = self._order[name]
            self._past |= self._pasts[earlier] | 1 << earlier
        for name, _ in self._instructions[index].dependencies:
            if self._last_use[self._order[name]] == index:
                self._pasts.pop(self._order[name], None)
        if index in self._last_use:
            self._pasts[index] = self._past

    def read(self, index: int, access: Access) -> None:
        """Records that instruction `index` reads `access`.

        Raises:
            SimulationError: A byte was never written, or its writer is not ordered before.
        """
        if self._memory.is_constant(access):
            return
        writers = self._memory.writers(access)
        for writer in _distinct(writers):
            if writer == NEVER:
                where = _spell(access, _first(writers == writer))
                raise SimulationError(f"{self._name(index)} reads {where}, which nothing has written")
            if writer != GIVEN and not self._ordered(writer - 2):
                where = _spell(access, _first(writers == writer))
                raise SimulationError(self._unordered(index, "reads", where, "write", writer - 2))
        self._reads[_plane(access)].append((index, access))

    def write(self, index: int, access: Access) -> None:
        """Records that instruction `index` writes `access`.

        Raises:
            SimulationError: An earlier reader or writer of a byte is not ordered before.
        """
        writers = self._memory.writers(access)
        for writer in _distinct(writers):
            if writer not in (NEVER, GIVEN) and not self._ordered(writer - 2):
                where = _spell(access, _first(writers == writer))
                raise SimulationError(self._unordered(index, "writes", where, "write", writer - 2))
        near = [(reader, read) for reader, read in self._reads[_plane(access)] if _boxes_meet(access, read)]
        for reader, read in near:
            if not self._ordered(reader):
                shared = _first_shared(access, read)
                if shared is not None:
                    raise SimulationError(self._unordered(index, "writes", access.address_of(*shared), "read", reader))
        writers[...] = index + 2
        # A read whose bytes were all written since is guarded by those writers: what follows them follows it.
        for reader, read in near:
            if _covers(access, read) or int(self._memory.writers(read).min()) > reader + 2:
                self._reads[_plane(access)].remove((reader, read))

    def _ordered(self, earlier: int) -> bool:
        """Whether `earlier` must have finished before the current instruction."""
        return bool(self._past >> earlier & 1)

    def _name(self, index: int) -> str:
        return self._instructions[index].name

    def _unordered(self, index: int, does: str, where: str, other: str, earlier: int) -> str:
        if earlier == index:
            return f"{self._name(index)} {does} {where}, which another of its operands shares"
        return (
            f"{self._name(index)} {does} {where} while the {other} of {self._name(earlier)} may be in flight: "
            f"no dependency orders it after {self._name(earlier)}"
        )


def _distinct(values: NDArray[np.int32]) -> list[int]:
    """The distinct values, smallest first; fast when they are few, as writers of one tile are."""
    low, high = int(values.min()), int(values.max())
    found = [high]
    while found[-1] != low:
        found.append(int(np.max(values, initial=low, where=values < found[-1])))
    return found[::-1]


def _first(hits: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(hits.argmax()), hits.shape))


def _spell(access: Access, index: tuple[int, ...]) -> str:
    """The byte of `access` at `index`, an index into the array of writers."""
    rows = len(access.partition_dims)
    partition = access.partition + sum(i * step for i, (step, _) in zip(index, access.partition_dims, strict=False))
    place = sum(i * step for i, (step, _) in zip(index[rows:], access.free_dims, strict=False))
    return access.address_of(partition, access.byte + place * access.dtype.bytes + index[-1])


def _boxes_meet(left: Access, right: Access) -> bool:
    """Whether the partitions and the byte ranges of both overlap; their bytes may still lie between one another."""
    (left_low, left_high), (right_low, right_high) = left.byte_range, right.byte_range
    return left_low < right_high and right_low < left_high and bool(left.partition_mask & right.partition_mask)


def _covers(outer: Access, inner: Access) -> bool:
    """Whether `outer` surely touches every byte of `inner`: it has no gaps and its box contains the other."""
    (outer_low, outer_high), (inner_low, inner_high) = outer.byte_range, inner.byte_range
    dense = outer.per_partition * outer.dtype.bytes == outer_high - outer_low
    return (
        dense
        and outer_low <= inner_low
        and inner_high <= outer_high
        and not inner.partition_mask & ~outer.partition_mask
    )


def _first_shared(left: Access, right: Access) -> tuple[int, int] | None:
    """Partition and byte of the first byte both touch, or None."""
    rows = left.partition_mask & right.partition_mask
    shared = np.intersect1d(_bytes(left), _bytes(right))
    return ((rows & -rows).bit_length() - 1, int(shared[0])) if shared.size else None


def _bytes(access: Access) -> NDArray[np.int64]:
    """Every byte of a partition that `access` touches."""
    places = np.array([access.byte], np.int64)
    for step, num in access.free_dims:
        places = np.add.outer(places, np.arange(num) * (step * access.dtype.bytes)).ravel()
    return np.add.outer(places, np.arange(access.dtype.bytes)).ravel()


def _plane(access: Access) -> str:
    return access.location.name if access.in_dram else ""
