"""The simulator's copies and views against one element at a time."""

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.bir import SimulationError
from lowering.bir.access import resolve
from lowering.bir.memory import Memory, copy

from .programs import allocation, module_of, pattern, sbuf

Dims = list[tuple[int, int]]


@st.composite
def copies(draw: st.DrawFn) -> tuple[Dims, Dims]:
    """Two lists of [step, num] of equal count: one list of factors, regrouped twice."""
    factors = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))

    def grouped() -> Dims:
        nums, group = [], 1
        for factor in factors:
            group *= factor
            if draw(st.booleans()):
                nums.append(group)
                group = 1
        nums.append(group)
        dims: Dims = []
        reach = 1
        for num in reversed(nums):  # disjoint: each step clears all inner ones, with gaps
            step = reach + draw(st.integers(0, 2))
            dims.insert(0, (step, num))
            reach = step * num + 1
        return dims

    return grouped(), grouped()


def positions(dims: Dims) -> list[int]:
    return [sum(i * step for i, (step, _) in zip(index, dims, strict=True)) for index in np.ndindex(*_nums(dims))]


def _nums(dims: Dims) -> list[int]:
    return [num for _, num in dims]


@given(copies(), st.sampled_from([1, 2, 4]))
def test_the_nth_element_goes_to_the_nth(pair: tuple[Dims, Dims], size: int) -> None:
    source_dims, target_dims = pair
    dtype = np.dtype(f"<u{size}")
    source_at, target_at = positions(source_dims), positions(target_dims)
    memory = np.random.default_rng(0).integers(0, 256, (max(source_at) + 1) * size, np.uint8).view(dtype)
    target = np.zeros(max(target_at) + 1, dtype)
    copy(_view(target, target_dims), _view(memory, source_dims))
    want = np.zeros_like(target)
    for source, place in zip(source_at, target_at, strict=True):
        want[place] = memory[source]
    np.testing.assert_array_equal(target, want)


def test_counts_must_agree() -> None:
    with pytest.raises(SimulationError, match="6 elements cannot fill 8"):
        copy(np.zeros((2, 4), np.uint8), np.zeros((2, 3), np.uint8))


def _view(array: np.ndarray, dims: Dims) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(array, _nums(dims), [step * array.itemsize for step, _ in dims])


@pytest.mark.parametrize(
    ("ap", "offset", "rows"),
    [
        (((8, 3), (1, 2)), 8, [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)]),
        (((16, 2), (3, 2)), 2, [(0, 2), (0, 5), (2, 2), (2, 5)]),
        (((-8, 2), (-1, 3)), 3 * 8 + 7, [(3, 7), (3, 6), (3, 5), (2, 7), (2, 6), (2, 5)]),
        (((0, 2), (1, 1)), 9, [(1, 1), (1, 1)]),
    ],
)
def test_views_of_partitions(ap: tuple[tuple[int, int], ...], offset: int, rows: list[tuple[int, int]]) -> None:
    """Four partitions of 8 units; (partition, unit) of each element in order, for a location that starts at byte 6."""
    buffer = sbuf("t", "uint16", 8, 6, 4)
    module = module_of((buffer,), ())
    memory = Memory(module.functions[0])
    whole = resolve(pattern("t", "uint16", ((8, 4), (1, 8))), buffer.memorylocations[0])
    memory.view(whole)[...] = np.arange(32).reshape(4, 8)
    found = memory.view(resolve(pattern("t", "uint16", ap, offset), buffer.memorylocations[0]))
    assert found.ravel().tolist() == [8 * partition + unit for partition, unit in rows]


def test_locations_at_one_address_share_bytes() -> None:
    """Little-endian halves of a 32-bit word."""
    words, halves = sbuf("w", "uint32", 2, 4, 2), sbuf("h", "uint16", 4, 4, 2)
    memory = Memory(module_of((words, halves), ()).functions[0])
    memory.view(resolve(pattern("w", "uint32", ((2, 2), (1, 2))), words.memorylocations[0]))[1, 0] = 0x11223344
    low, high = memory.view(resolve(pattern("h", "uint16", ((4, 1), (1, 2)), 4), halves.memorylocations[0]))[0]
    assert (low, high) == (0x3344, 0x1122)


def test_dram_has_no_partitions() -> None:
    tensor = allocation("x", "ExternalInput", "uint8", (24,), "DRAM", (1, 24))
    memory = Memory(module_of((tensor,), ()).functions[0])
    memory.give("x", np.arange(24, dtype=np.uint8))
    access = resolve(pattern("x", "uint8", ((1, 2), (12, 2), (3, 2)), 1), tensor.memorylocations[0])
    want = [1 + a + 12 * b + 3 * c for a, b, c in itertools.product(range(2), repeat=3)]
    assert memory.view(access).ravel().tolist() == want
    assert (access.count, access.partitions, prod(memory.view(access).shape)) == (8, 1, 8)


def test_memories_beyond_a_laptop() -> None:
    tensor = allocation("y", "ExternalOutput", "uint8", (1 << 33,), "DRAM", (1, 1 << 33))
    with pytest.raises(SimulationError) as caught:
        Memory(module_of((tensor,), ()).functions[0])
    assert str(caught.value) == "sg0000 has 8589934592 bytes of memory, more than 4294967296"
