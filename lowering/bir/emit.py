"""Emits the instructions of a tiled call, with the dependencies that make double buffering safe.

Edges are written where the reason is visible: a Load waits for the QuantizeMx that last read its buffer (Anti), a
QuantizeMx for its Loads (Flow) and for the Saves that last read its outputs' buffers (Anti), a Save for its
QuantizeMx (Flow). Everything else follows from these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

from lowering.bir.buffers import TileBuffers
from lowering.bir.dtypes import Dtype
from lowering.bir.geometry import CORE_V4
from lowering.bir.program import (
    DMA,
    DVE,
    AccessPattern,
    Allocation,
    Debug,
    EdgeKind,
    Engine,
    Immediate,
    Instruction,
    Operand,
)
from lowering.bir.quantize_mx_rules import scale_partitions
from lowering.bir.tiling import Layout, Segment, Tile, segments, tiles

__all__ = ["emit_tiles"]

Pairs = tuple[tuple[int, int], ...]


def emit_tiles(
    layout: Layout, tensors: tuple[Allocation, Allocation, Allocation], buffers: TileBuffers, debug: Debug | None
) -> list[Instruction]:
    """Every instruction of the call, in program order.

    Args:
        layout: The array.
        tensors: DRAM input, data output and scale output.
        buffers: SBUF buffers.
        debug: The user's source line.
    """
    emitter = _Emitter(layout, tensors, buffers, debug)
    pending = [_TileSlots(index, tile, buffers) for index, tile in enumerate(tiles(layout, buffers.columns))]
    for slots in pending[:1]:
        emitter.load(slots)
    for slots in pending:
        for ahead in pending[slots.index + 1 : slots.index + 2]:
            emitter.load(ahead)
        emitter.quantize(slots)
        emitter.save(slots)
    return emitter.instructions


@dataclass(frozen=True)
class _TileSlots:
    """A tile and the buffers it uses."""

    index: int
    tile: Tile
    buffers: TileBuffers

    @property
    def source(self) -> Allocation:
        return self.buffers.source[self.index % len(self.buffers.source)]

    @property
    def data(self) -> Allocation:
        return self.buffers.data[self.index % len(self.buffers.data)]

    @property
    def scale(self) -> Allocation:
        return self.buffers.scale[self.index % len(self.buffers.scale)]

    @property
    def pack_offset(self) -> int:
        return 4 * (self.index % self.buffers.pack)


@dataclass
class _Emitter:
    layout: Layout
    tensors: tuple[Allocation, Allocation, Allocation]
    buffers: TileBuffers
    debug: Debug | None
    instructions: list[Instruction] = field(default_factory=list)
    _counts: dict[str, int] = field(default_factory=dict)
    _zeroed: dict[str, str] = field(default_factory=dict)
    _filled: dict[int, list[str]] = field(default_factory=dict)
    _quantized: dict[int, str] = field(default_factory=dict)
    _saved_data: dict[int, list[str]] = field(default_factory=dict)
    _saved_scale: dict[int, list[str]] = field(default_factory=dict)

    def load(self, slots: _TileSlots) -> None:
        """Fills the source buffer: zeros in the last quadrant when it has spare partitions, then the elements.

        Only the last chunk has spare partitions, its first tiles are the widest, and Loads leave those partitions
        alone: one Memset of each buffer serves all tiles that use it.
        """
        tile, chunk, index = slots.tile, slots.tile.chunk, slots.index
        reader = self._quantized.get(index - len(self.buffers.source))
        waits = _edges(EdgeKind.ANTI, [reader] if reader else [])
        names: list[str] = []
        if chunk.padded and slots.source.name in self._zeroed:
            names.append(self._zeroed[slots.source.name])
        elif chunk.padded:
            # An engine starts at a quadrant, so the zeros go under the last rows too and the Load overwrites those.
            start = chunk.rows // CORE_V4.quadrant * CORE_V4.quadrant
            zeros = _sbuf(slots.source, start, chunk.partitions - start, 0, 4 * tile.columns)
            zero = Immediate(slots.source.dtype, 0.0)
            names.append(self._add("Memset", DVE, zero, (zeros,), waits))
            self._zeroed[slots.source.name] = names[0]
            waits = (*waits, *_edges(EdgeKind.OUTPUT, names))
        for piece in segments(self.layout, tile):
            source = self._dram(self.tensors[0], piece, 4 * chunk.first, 4, chunk.rows, 4)
            columns = piece.outer_count * piece.inner_count
            target = _sbuf(slots.source, 0, chunk.rows, 4 * piece.column, 4 * columns)
            names.append(self._add("Load", DMA, source, (target,), waits))
        self._filled[index] = names

    def quantize(self, slots: _TileSlots) -> None:
        """The QuantizeMx of a tile."""
        tile, chunk, index = slots.tile, slots.tile.chunk, slots.index
        source = _sbuf(slots.source, 0, chunk.partitions, 0, 4 * tile.columns)
        data = _sbuf(slots.data, 0, chunk.partitions, 0, tile.columns)
        rows = scale_partitions(chunk.partitions, slots.pack_offset)
        scale = _sbuf(slots.scale, slots.pack_offset, rows, 0, tile.columns)
        scale_age = self.buffers.pack * len(self.buffers.scale)
        readers = [
            *self._saved_data.get(index - len(self.buffers.data), []),
            *self._saved_scale.get(index - scale_age, []),
        ]
        waits = (*_edges(EdgeKind.FLOW, self._filled[index]), *_edges(EdgeKind.ANTI, readers))
        self._quantized[index] = self._add("QuantizeMx", DVE, source, (data, scale), waits)

    def save(self, slots: _TileSlots) -> None:
        """Stores the rows of data and scale that exist."""
        tile, chunk, index = slots.tile, slots.tile.chunk, slots.index
        waits = _edges(EdgeKind.FLOW, [self._quantized[index]])
        data_names, scale_names = [], []
        for piece in segments(self.layout, tile):
            columns = piece.outer_count * piece.inner_count
            data = _sbuf(slots.data, 0, chunk.rows, piece.column, columns)
            stored = self._dram(self.tensors[1], piece, chunk.first, 1, chunk.rows, 1)
            data_names.append(self._add("Save", DMA, data, (stored,), waits))
            for first in range(0, chunk.scale_rows, 4):
                rows = min(4, chunk.scale_rows - first)
                partition = CORE_V4.quadrant * (first // 4) + slots.pack_offset
                scale = _sbuf(slots.scale, partition, rows, piece.column, columns)
                stored = self._dram(self.tensors[2], piece, chunk.scale_first + first, 1, rows, 1)
                scale_names.append(self._add("Save", DMA, scale, (stored,), waits))
        self._saved_data[index], self._saved_scale[index] = data_names, scale_names

    def _dram(self, tensor: Allocation, piece: Segment, first: int, step: int, rows: int, run: int) -> AccessPattern:
        """Rows `first`, `first + step`, .. of the quantized axis, each with the piece's columns and `run` elements."""
        inner, k = self.layout.inner, self._axis_size(tensor)
        offset = piece.outer_first * k * inner + first * inner + piece.inner_first
        pairs = ((step * inner, rows), (k * inner, piece.outer_count), (1, piece.inner_count), (inner, run))
        return _pattern(tensor, tensor.dtype, _dropped(pairs), offset)

    def _axis_size(self, tensor: Allocation) -> int:
        """Size of `tensor`'s quantized axis; all three tensors agree in every other axis."""
        return prod(tensor.tensor_shape) // self.layout.columns

    def _add(
        self,
        opcode: str,
        engine: Engine,
        operand: Operand,
        outs: tuple[Operand, ...],
        waits: tuple[tuple[str, EdgeKind], ...],
    ) -> str:
        number = self._counts.get(opcode, 0)
        self._counts[opcode] = number + 1
        name = f"{'QuantizeMX' if opcode == 'QuantizeMx' else opcode}-{number}"
        self.instructions.append(
            Instruction(opcode, name, engine.name, engine.number, "Internal", (operand,), outs, waits, self.debug)
        )
        return name


def _edges(kind: EdgeKind, names: Iterable[str]) -> tuple[tuple[str, EdgeKind], ...]:
    return tuple((name, kind) for name in names)


def _sbuf(buffer: Allocation, partition: int, partitions: int, first: int, units: int) -> AccessPattern:
    """`units` consecutive units from `first` in each of some partitions."""
    pitch = buffer.tensor_shape[1]
    return _pattern(buffer, buffer.dtype, ((pitch, partitions), (1, units)), partition * pitch + first)


def _pattern(allocation: Allocation, dtype: Dtype, pairs: Pairs, offset: int) -> AccessPattern:
    return AccessPattern(allocation.memorylocations[0].name, allocation.name, dtype, pairs, offset)


def _dropped(pairs: Pairs) -> Pairs:
    """`pairs` without those of num 1, which move nothing."""
    return tuple(pair for pair in pairs if pair[1] != 1) or ((1, 1),)
