"""Allocator, partition chunks, tiles and segments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.bir import BirLoweringError
from lowering.bir.allocator import SbufAllocator
from lowering.bir.tiling import Layout, PartitionChunk, Segment, Tile, partition_chunks, segments, tiles


@pytest.mark.parametrize(
    ("k", "chunks"),
    [
        (0, []),
        (4, [PartitionChunk(0, 1, 32)]),
        (36, [PartitionChunk(0, 9, 32)]),
        (128, [PartitionChunk(0, 32, 32)]),
        (132, [PartitionChunk(0, 33, 64)]),
        (260, [PartitionChunk(0, 65, 96)]),
        (388, [PartitionChunk(0, 97, 128)]),
        (512, [PartitionChunk(0, 128, 128)]),
        (1300, [PartitionChunk(0, 128, 128), PartitionChunk(128, 128, 128), PartitionChunk(256, 69, 96)]),
    ],
)
def test_partition_chunks(k: int, chunks: list[PartitionChunk]) -> None:
    assert partition_chunks(k) == chunks


def test_scale_rows_of_a_chunk() -> None:
    """1300 elements make 41 scales; the last chunk begins at scale 32 and its 69 rows make 9, the last partial."""
    last = partition_chunks(1300)[-1]
    assert (last.scale_first, last.scale_rows, last.padded) == (32, 9, True)


def test_tiles_cover_each_chunk() -> None:
    layout = Layout.of((10, 516), 1)
    found = [(tile.chunk.first, tile.first, tile.columns) for tile in tiles(layout, 4)]
    assert found == [(0, 0, 4), (0, 4, 4), (0, 8, 2), (128, 0, 4), (128, 4, 4), (128, 8, 2)]


def test_segments_of_a_tile_that_crosses_batches() -> None:
    """Columns 3 to 17 of batches of 5: the end of batch 0, batches 1 and 2 whole, the start of batch 3."""
    layout = Layout.of((4, 8, 5), 1)
    tile = Tile(PartitionChunk(0, 2, 32), 3, 15)
    assert list(segments(layout, tile)) == [Segment(0, 0, 1, 3, 2), Segment(2, 1, 2, 0, 5), Segment(12, 3, 1, 0, 3)]


@given(st.integers(1, 6), st.integers(1, 9), st.data())
def test_segments_meet_every_column_once(outer: int, inner: int, data: st.DataObject) -> None:
    layout = Layout(outer, 4, inner)
    first = data.draw(st.integers(0, layout.columns - 1))
    columns = data.draw(st.integers(1, layout.columns - first))
    found = []
    pieces = list(segments(layout, Tile(PartitionChunk(0, 1, 32), first, columns)))
    for piece in pieces:
        assert piece.column == len(found)
        for o in range(piece.outer_first, piece.outer_first + piece.outer_count):
            found += [o * inner + i for i in range(piece.inner_first, piece.inner_first + piece.inner_count)]
    assert found == list(range(first, first + columns))
    assert len(pieces) <= 3


def test_the_allocator_fills_the_first_gap_that_fits() -> None:
    allocator = SbufAllocator(100)
    assert [allocator.allocate(name, size, 4) for name, size in (("a", 10), ("b", 20), ("c", 30))] == [0, 12, 32]
    allocator.release("b")
    assert allocator.allocate("d", 24, 4) == 64
    assert allocator.allocate("e", 20, 4) == 12
    assert allocator.allocate("f", 2, 1) == 10


def test_allocator_errors() -> None:
    allocator = SbufAllocator(100)
    allocator.allocate("a", 90, 4)
    with pytest.raises(BirLoweringError) as caught:
        allocator.allocate("b", 16, 4)
    assert str(caught.value) == "the buffer b wants 16 bytes per partition of SBUF; 8 of 100 are available"
    with pytest.raises(BirLoweringError, match="the buffer a is allocated already"):
        allocator.allocate("a", 1, 1)
    with pytest.raises(BirLoweringError, match="the buffer z is not allocated"):
        allocator.release("z")


@pytest.mark.parametrize("budget", [0, -1, 256 * 1024 - 0x4008 + 1])
def test_budgets_outside_the_core(budget: int) -> None:
    with pytest.raises(BirLoweringError) as caught:
        SbufAllocator(budget)
    assert str(caught.value) == (
        f"the SBUF budget is {budget} bytes per partition, wanted 1 to 245752, what core_v4 leaves to programs"
    )


@given(st.lists(st.tuples(st.integers(1, 40), st.sampled_from([1, 2, 4])), max_size=12))
def test_live_buffers_never_overlap(sizes: list[tuple[int, int]]) -> None:
    allocator = SbufAllocator(200)
    live: dict[str, range] = {}
    for i, (size, alignment) in enumerate(sizes):
        name = f"b{i}"
        try:
            start = allocator.allocate(name, size, alignment)
        except BirLoweringError:
            continue
        assert start % alignment == 0
        assert start + size <= 200
        assert all(start >= other.stop or start + size <= other.start for other in live.values())
        live[name] = range(start, start + size)
        if i % 3 == 2:
            gone = sorted(live)[0]
            allocator.release(gone)
            del live[gone]
