"""Plans the SBUF buffers of a lowered call: how wide tiles are, how many copies there are, where they lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from lowering.bir.allocator import SbufAllocator
from lowering.bir.dtypes import Dtype, dtype_named
from lowering.bir.errors import BirLoweringError
from lowering.bir.program import Allocation, MemoryLocation
from lowering.bir.tiling import MAX_COLUMNS, Layout, partition_chunks

__all__ = ["TileBuffers", "dram_tensor", "plan_buffers"]

_DEPTH = 2  # double buffering
_PACKED = 4  # tiles whose scales share a buffer: pack offsets 0, 4, 8, 12
_UINT8 = dtype_named("uint8")


@dataclass(frozen=True)
class TileBuffers:
    """The SBUF buffers of one call.

    Attributes:
        columns: Columns of a full tile.
        source: Source buffers; tile t uses the one at t modulo their number.
        data: Data buffers, likewise.
        scale: Scale buffers, likewise, or a single one shared through pack offsets.
        pack: Tiles that share one scale buffer at a time.
    """

    columns: int
    source: tuple[Allocation, ...]
    data: tuple[Allocation, ...]
    scale: tuple[Allocation, ...]
    pack: int

    def allocations(self) -> tuple[Allocation, ...]:
        """All buffers."""
        return (*self.source, *self.data, *self.scale)


def dram_tensor(name: str, kind: str, dtype: Dtype, shape: tuple[int, ...], tensor_id: int) -> Allocation:
    """An input or output tensor in DRAM."""
    location = MemoryLocation(name, "DRAM", 0, (1, prod(shape) * dtype.bytes), tensor_id=tensor_id)
    return Allocation(f"{name}_set", kind, dtype, shape, (location,))


def plan_buffers(
    layout: Layout, source: Dtype, data: Dtype, budget: int, columns: int | None, *, pack_scales: bool
) -> TileBuffers:
    """Chooses the tile width, the number of buffers and their addresses.

    Args:
        layout: The array.
        source: Source dtype, 4 elements a column in each partition.
        data: Data dtype, one container a column in each partition.
        budget: Bytes per partition that may be used.
        columns: Tile width asked for; the widest that fits when None.
        pack_scales: Share one scale buffer through pack offsets.

    Raises:
        BirLoweringError: The width is out of range or its buffers exceed the budget.
    """
    allocator = SbufAllocator(budget)
    chunks = partition_chunks(layout.k)
    total = layout.columns
    if not chunks or not total:
        return TileBuffers(1, (), (), (), 1)

    def needed(width: int) -> int:
        count = len(chunks) * -(-total // width)
        depth = min(_DEPTH, count)
        return width * (depth * (4 * source.bytes + data.bytes) + (1 if pack_scales else depth))

    width = _widest(total, budget, needed) if columns is None else columns
    if not 1 <= width <= MAX_COLUMNS:
        raise BirLoweringError(
            f"columns_per_tile is {width}, wanted 1 to {MAX_COLUMNS}: 4 elements a column, counted in u16"
        )
    width = min(width, total)
    if needed(width) > budget:
        raise BirLoweringError(
            f"a tile of {width} columns wants {needed(width)} bytes per partition of SBUF for its buffers; "
            f"{budget} are available"
        )
    count = len(chunks) * -(-total // width)
    depth, rows = min(_DEPTH, count), max(chunk.partitions for chunk in chunks)
    pack = min(_PACKED, count) if pack_scales else 1

    def buffer(name: str, dtype: Dtype, units: int, alignment: int, tensor_id: int) -> Allocation:
        size = units * dtype.bytes
        address = allocator.allocate(name, size, alignment)
        place = MemoryLocation(name, "SB", address, (rows, size), tensor_id=tensor_id)
        return Allocation(f"{name}_set", "Internal", dtype, (rows, units), (place,))

    sources = tuple(buffer(f"tile.src{i}", source, 4 * width, 4, 3 + i) for i in range(depth))
    datas = tuple(buffer(f"tile.data{i}", data, width, data.bytes, 3 + depth + i) for i in range(depth))
    copies = 1 if pack_scales else depth
    scales = tuple(buffer(f"tile.scale{i}", _UINT8, width, 1, 3 + 2 * depth + i) for i in range(copies))
    return TileBuffers(width, sources, datas, scales, pack)


def _widest(total: int, budget: int, needed: Callable[[int], int]) -> int:
    """The widest tile that fits, evened out so that the last tile is not a sliver; 1 when none fits."""
    widest = min(total, MAX_COLUMNS)
    if needed(widest) <= budget:
        return widest
    most = min(budget // needed(1), MAX_COLUMNS)
    if most < 4:
        return max(most, 1)
    most &= ~3  # whole words in every buffer
    even = -(-total // -(-total // most))
    return min(most, -(-even // 4) * 4)
