"""Resolves an operand to the bytes it touches: memory space, partitions, bytes within them, iteration order.

The linear position of an element is offset + sum of index * step. In DRAM that is the element's place in the tensor.
In SBUF and PSUM it is cut by the location's pitch (units per partition): the quotient is the partition, the remainder
the place inside it. Partition steps are whole pitches, so partition and place vary independently.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from lowering.bir.dtypes import Dtype
from lowering.bir.errors import BirError
from lowering.bir.program import AccessPattern, Function, MemoryLocation

__all__ = ["Access", "AccessError", "locations_of", "resolve"]

Dims = tuple[tuple[int, int], ...]


class AccessError(BirError):
    """An access pattern does not fit its memory location."""


@dataclass(frozen=True)
class Access:
    """Bytes an operand touches, in iteration order.

    Attributes:
        location: The memory location.
        dtype: Unit of the free steps.
        partition: First partition (0 in DRAM).
        partition_dims: Pairs [step, num] over partitions, outermost; empty in DRAM.
        byte: First byte in the partition of SBUF or PSUM (the location's `addr` included), or in the DRAM tensor.
        free_dims: Pairs [step, num] inside a partition, in units of `dtype`, the last fastest.
    """

    location: MemoryLocation
    dtype: Dtype
    partition: int
    partition_dims: Dims
    byte: int
    free_dims: Dims

    @property
    def in_dram(self) -> bool:
        """Whether this access is to DRAM."""
        return self.location.type == "DRAM"

    @property
    def partitions(self) -> int:
        """Partitions touched; 1 in DRAM."""
        return prod(num for _, num in self.partition_dims)

    @property
    def per_partition(self) -> int:
        """Units of `dtype` in one partition."""
        return prod(num for _, num in self.free_dims)

    @property
    def count(self) -> int:
        """Units of `dtype` in all."""
        return self.partitions * self.per_partition

    @cached_property
    def partition_mask(self) -> int:
        """One bit per partition touched; 1 in DRAM."""
        rows = [self.partition]
        for step, num in self.partition_dims:
            rows = [row + step * i for row in rows for i in range(num)]
        return sum(1 << row for row in set(rows))

    @cached_property
    def byte_range(self) -> tuple[int, int]:
        """First byte touched in a partition, and one past the last."""
        low, high = _extent(self.free_dims)
        return self.byte + low * self.dtype.bytes, self.byte + (high + 1) * self.dtype.bytes

    @property
    def address(self) -> str:
        """Where the access starts, for messages."""
        return self.address_of(self.partition, self.byte)

    def address_of(self, partition: int, byte: int) -> str:
        """Spells one byte of this access's memory, for messages."""
        where = f"byte {byte:#x}" if self.in_dram else f"partition {partition} byte {byte:#x}"
        return f"{self.location.type} {where} ({self.location.name})"


def locations_of(function: Function) -> dict[str, MemoryLocation]:
    """Memory locations of `function` by name."""
    return {location.name: location for item in function.allocations for location in item.memorylocations}


def resolve(operand: AccessPattern, location: MemoryLocation) -> Access:
    """The bytes `operand` touches.

    Raises:
        AccessError: A count is below 1, the partition step is not a whole pitch, or some element lies outside
            `location`.
    """
    size = operand.dtype.bytes
    if not operand.ap or any(num < 1 for _, num in operand.ap):
        raise AccessError(f"ap is {_pairs(operand.ap)}, wanted at least one pair and every num at least 1")
    pitch, rest = divmod(location.dims[1], size)
    if location.type == "DRAM":
        _check_inside(operand.ap, operand.offset, pitch, "element", location)
        return Access(location, operand.dtype, 0, (), operand.offset * size, operand.ap)
    if rest or pitch == 0:
        raise AccessError(
            f"{location.name} has {location.dims[1]} bytes per partition, wanted a multiple of {operand.dtype.name}'s "
            f"{size} bytes"
        )
    (step, num), free = operand.ap[0], operand.ap[1:]
    if num > 1 and step % pitch:
        raise AccessError(
            f"the partition step is {step}, wanted a multiple of the pitch of {location.name}, "
            f"{pitch} units of {operand.dtype.name}"
        )
    start, place = divmod(operand.offset, pitch)
    rows = ((step // pitch, num),)
    _check_inside(rows, start, location.dims[0], "partition", location)
    _check_inside(free, place, pitch, f"{operand.dtype.name} unit", location)
    return Access(location, operand.dtype, location.base + start, rows, location.addr + place * size, free)


def _check_inside(dims: Dims, start: int, size: int, what: str, location: MemoryLocation) -> None:
    low, high = _extent(dims)
    if start + low < 0 or start + high >= size:
        outside = start + low if start + low < 0 else start + high
        raise AccessError(
            f"{what} {outside} is outside {location.type} location {location.name}, wanted 0 to {size - 1}"
        )


def _extent(dims: Dims) -> tuple[int, int]:
    """Smallest and largest of sum of index * step."""
    spans = [step * (num - 1) for step, num in dims]
    return sum(min(span, 0) for span in spans), sum(max(span, 0) for span in spans)


def _pairs(dims: Dims) -> str:
    return str([list(pair) for pair in dims])
