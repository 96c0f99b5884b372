"""Cuts a quantized array into tiles the instruction can take, and says where each piece lies in DRAM.

The array is seen as [outer, K, inner], K the quantized axis, and flattened to (K, N) with N = outer * inner: column n
is (n // inner, n % inner). Element (k, n) goes to partition k // 4 and free index 4 n + k % 4, so that the 1 x 32
block of the array is the 8 x 4 block of the tile. This "1x32" layout is this project's decision; what the real
compiler does with `dim` is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from lowering.bir.geometry import CORE_V4

__all__ = ["MAX_COLUMNS", "Layout", "PartitionChunk", "Segment", "Tile", "partition_chunks", "segments", "tiles"]

MAX_COLUMNS = 65535 // 4
"""Columns of one tile: the wire counts 4 elements a column in 16 bits."""


@dataclass(frozen=True)
class Layout:
    """An array around its quantized axis: sizes before it, of it and after it."""

    outer: int
    k: int
    inner: int

    @classmethod
    def of(cls, shape: tuple[int, ...], axis: int) -> Layout:
        """The layout of `shape` for a non-negative `axis`."""
        return cls(prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))

    @property
    def columns(self) -> int:
        """N, everything but the quantized axis."""
        return self.outer * self.inner


@dataclass(frozen=True)
class PartitionChunk:
    """Partitions of one tile.

    Attributes:
        first: First row of [K/4, N] it holds.
        rows: Rows that exist.
        partitions: Rows of the tile, `rows` padded up to a whole number of quadrants.
    """

    first: int
    rows: int
    partitions: int

    @property
    def scale_first(self) -> int:
        """First row of the logical scale it makes."""
        return self.first // 8

    @property
    def scale_rows(self) -> int:
        """Rows of the logical scale it makes; the last block may be partial."""
        return -(-self.rows // 8)

    @property
    def padded(self) -> bool:
        """Whether some partitions hold no element."""
        return self.partitions > self.rows


@dataclass(frozen=True)
class Tile:
    """One QuantizeMx: a chunk of partitions by a range of columns."""

    chunk: PartitionChunk
    first: int
    columns: int


@dataclass(frozen=True)
class Segment:
    """Columns of a tile that one access pattern reaches: a range of `outer` by a range of `inner`.

    Attributes:
        column: First column, counted in the tile.
        outer_first: First index of the outer axis.
        outer_count: Indices of the outer axis.
        inner_first: First index of the inner axis.
        inner_count: Indices of the inner axis.
    """

    column: int
    outer_first: int
    outer_count: int
    inner_first: int
    inner_count: int


def partition_chunks(k: int) -> list[PartitionChunk]:
    """Chunks of at most 128 partitions that cover the K/4 rows."""
    rows, most, quadrant = k // 4, CORE_V4.partitions, CORE_V4.quadrant
    return [
        PartitionChunk(first, count, -(-count // quadrant) * quadrant)
        for first in range(0, rows, most)
        for count in (min(most, rows - first),)
    ]


def tiles(layout: Layout, columns: int) -> Iterator[Tile]:
    """Tiles of at most `columns` columns, chunk by chunk."""
    for chunk in partition_chunks(layout.k):
        for first in range(0, layout.columns, columns):
            yield Tile(chunk, first, min(columns, layout.columns - first))


def segments(layout: Layout, tile: Tile) -> Iterator[Segment]:
    """The columns of `tile` as at most three segments: the rest of an outer index, whole ones, a part of one."""
    column, end = tile.first, tile.first + tile.columns
    while column < end:
        outer, inner = divmod(column, layout.inner)
        whole = (end - column) // layout.inner
        if inner or not whole:
            count = min(layout.inner - inner, end - column)
            yield Segment(column - tile.first, outer, 1, inner, count)
            column += count
        else:
            yield Segment(column - tile.first, outer, whole, 0, layout.inner)
            column += whole * layout.inner
