"""Bytes never written, and accesses that no dependency orders: found, and named with instruction and address."""

import dataclasses

import numpy as np
import pytest

from lowering.bir import LegalizedCall, LowerOptions, Module, SimulationError, lower_calls, simulate
from lowering.bir.adversarial import adversarial_bits
from lowering.bir.program import AccessPattern, Immediate, Instruction

from .programs import allocation, dtype, module_of, pattern, sbuf
from .test_simulator import dma, memset

CALL = LegalizedCall((9, 132), "bfloat16", "float8_e4m3fn")
# Five padded tiles of equal height, so that every edge guards bytes that both ends touch.
TILED = lower_calls([CALL], LowerOptions(columns_per_tile=2))
BITS = adversarial_bits((9, 132), "bfloat16")


def changed(module: Module, name: str, instruction: Instruction | None) -> Module:
    """`module` with the instruction `name` replaced or left out."""
    function = module.functions[0]
    instructions = []
    for item in function.instructions():
        if item.name != name:
            keep = tuple(edge for edge in item.dependencies if instruction is not None or edge[0] != name)
            instructions.append(dataclasses.replace(item, dependencies=keep))
        elif instruction is not None:
            instructions.append(instruction)
    return module_of(function.allocations, tuple(instructions))


def edges(module: Module) -> list[tuple[str, str]]:
    """Every dependency as (instruction, the one it waits for)."""
    return [(item.name, name) for item in module.functions[0].instructions() for name, _ in item.dependencies]


def test_the_program_has_every_kind_of_edge() -> None:
    kinds = {kind.name for item in TILED.functions[0].instructions() for _, kind in item.dependencies}
    assert kinds == {"FLOW", "ANTI", "OUTPUT"}


def test_dropping_a_dependency_is_found_unless_others_imply_it() -> None:
    """Every edge that no other chain of edges implies is needed, and its loss is reported."""
    instructions = {item.name: item for item in TILED.functions[0].instructions()}
    implied = 0
    for later, earlier in edges(TILED):
        item = instructions[later]
        rest = tuple(edge for edge in item.dependencies if edge[0] != earlier)
        reached, pending = set(), [name for name, _ in rest]
        while pending:
            name = pending.pop()
            if name not in reached:
                reached.add(name)
                pending += [other for other, _ in instructions[name].dependencies]
        module = changed(TILED, later, dataclasses.replace(item, dependencies=rest))
        if earlier in reached:
            implied += 1
            simulate(module, {"x": BITS})
        else:
            with pytest.raises(SimulationError, match=f"^{later} (reads|writes) .*no dependency orders it after"):
                simulate(module, {"x": BITS})
    # Only what a padded tile waits for twice: directly, and through the Memset that goes before its Load.
    assert 0 < implied < len(edges(TILED)) // 2


def test_dropping_an_instruction_is_found() -> None:
    for name, message in (
        ("Load-0", "QuantizeMX-0 reads SB partition 0 byte 0x0 (tile.src0), which nothing has written"),
        ("QuantizeMX-0", "Save-0 reads SB partition 0 byte 0x20 (tile.data0), which nothing has written"),
        ("Save-0", "output data: DRAM byte 0x0 was never written"),
    ):
        with pytest.raises(SimulationError) as caught:
            simulate(changed(TILED, name, None), {"x": BITS})
        assert str(caught.value) == message


def test_padding_partitions_must_be_set() -> None:
    """K = 36 fills 9 of 32 partitions; without the Memset the quantize reads partition 9, which nothing wrote."""
    module = lower_calls([LegalizedCall((2, 36), "bfloat16", "float8_e4m3fn")])
    with pytest.raises(SimulationError) as caught:
        simulate(changed(module, "Memset-0", None), {"x": adversarial_bits((2, 36), "bfloat16")})
    assert str(caught.value) == ("QuantizeMX-0 reads SB partition 9 byte 0x0 (tile.src0), which nothing has written")


def two_writers(first: AccessPattern, second: AccessPattern, *after: str) -> Module:
    allocations = (sbuf("a", "uint8", 8, 0, 4), sbuf("b", "uint8", 8, 4, 4))
    zero = Immediate(dtype("uint8"), 0)
    return module_of(allocations, (memset("Memset-0", zero, first), memset("Memset-1", zero, second, *after)))


def test_locations_that_share_bytes_share_hazards() -> None:
    """A is bytes 0-7 and b bytes 4-11 of the same partitions: b's first byte is a's byte 4."""
    whole_a, whole_b = pattern("a", "uint8", ((8, 4), (1, 8))), pattern("b", "uint8", ((8, 4), (1, 8)))
    with pytest.raises(SimulationError) as caught:
        simulate(two_writers(whole_a, whole_b), {})
    assert str(caught.value) == (
        "Memset-1 writes SB partition 0 byte 0x4 (b) while the write of Memset-0 may be in flight: "
        "no dependency orders it after Memset-0"
    )
    assert simulate(two_writers(whole_a, whole_b, "Memset-0"), {}) == {}


def test_interleaved_writes_that_share_no_byte_are_fine() -> None:
    even, odd = pattern("a", "uint8", ((8, 4), (2, 4))), pattern("a", "uint8", ((8, 4), (2, 4)), offset=1)
    assert simulate(two_writers(even, odd), {}) == {}


def test_a_write_waits_for_earlier_readers() -> None:
    allocations = (
        allocation("y", "ExternalOutput", "uint8", (16,), "DRAM", (1, 16)),
        sbuf("a", "uint8", 8, 0, 4),
    )
    zero = Immediate(dtype("uint8"), 0)
    whole, half = pattern("a", "uint8", ((8, 4), (1, 8))), pattern("a", "uint8", ((8, 4), (2, 4)))

    def program(rewritten: AccessPattern, after: str) -> Module:
        save = dma("Save", "Save-0", half, pattern("y", "uint8", ((1, 16),)), "Memset-0")
        return module_of(
            allocations, (memset("Memset-0", zero, whole), save, memset("Memset-1", zero, rewritten, after))
        )

    with pytest.raises(SimulationError) as caught:
        simulate(program(whole, "Memset-0"), {})
    assert str(caught.value) == (
        "Memset-1 writes SB partition 0 byte 0x0 (a) while the read of Save-0 may be in flight: "
        "no dependency orders it after Save-0"
    )
    simulate(program(whole, "Save-0"), {})
    # The save read even bytes; a write of odd ones need not wait for it.
    odd = pattern("a", "uint8", ((8, 4), (2, 4)), offset=1)
    np.testing.assert_array_equal(simulate(program(odd, "Memset-0"), {})["y"], np.zeros(16))


def test_operands_of_one_instruction_may_not_overlap() -> None:
    """A quantize in place: data over the source."""
    module = lower_calls([LegalizedCall((2, 128), "bfloat16", "float8_e4m3fn")])
    function = module.functions[0]
    allocations = tuple(
        dataclasses.replace(item, memorylocations=(dataclasses.replace(item.memorylocations[0], addr=8),))
        if item.tensor == "tile.data0"
        else item
        for item in function.allocations
    )
    with pytest.raises(SimulationError) as caught:
        simulate(module_of(allocations, tuple(function.instructions())), {"x": adversarial_bits((2, 128), "bfloat16")})
    assert str(caught.value) == (
        "QuantizeMX-0 writes SB partition 0 byte 0x8 (tile.data0), which another of its operands shares"
    )


def test_overlapping_outputs_in_dram() -> None:
    allocations = (
        allocation("y", "ExternalOutput", "uint8", (16,), "DRAM", (1, 16)),
        sbuf("a", "uint8", 8, 0, 4),
    )
    zero = Immediate(dtype("uint8"), 0)
    rows = [pattern("a", "uint8", ((8, 1), (1, 8)), offset=8 * row) for row in range(2)]
    fill = memset("Memset-0", zero, pattern("a", "uint8", ((8, 4), (1, 8))))
    saves = [
        dma("Save", f"Save-{i}", row, pattern("y", "uint8", ((1, 8),), offset=5 * i), "Memset-0")
        for i, row in enumerate(rows)
    ]
    with pytest.raises(SimulationError) as caught:
        simulate(module_of(allocations, (fill, *saves)), {})
    assert str(caught.value) == (
        "Save-1 writes DRAM byte 0x5 (y) while the write of Save-0 may be in flight: "
        "no dependency orders it after Save-0"
    )


def test_three_writers_of_one_read_are_all_checked() -> None:
    """The middle one of three writers is the one that is not waited for."""
    allocations = (
        allocation("y", "ExternalOutput", "uint8", (24,), "DRAM", (1, 24)),
        sbuf("a", "uint8", 24, 0, 1),
    )
    zero = Immediate(dtype("uint8"), 0)
    fills = [memset(f"Memset-{i}", zero, pattern("a", "uint8", ((24, 1), (1, 8)), offset=8 * i)) for i in range(3)]
    target = pattern("y", "uint8", ((1, 24),))
    save = dma("Save", "Save-0", pattern("a", "uint8", ((24, 1), (1, 24))), target, "Memset-0", "Memset-2")
    with pytest.raises(SimulationError) as caught:
        simulate(module_of(allocations, (*fills, save)), {})
    assert str(caught.value) == (
        "Save-0 reads SB partition 0 byte 0x8 (a) while the write of Memset-1 may be in flight: "
        "no dependency orders it after Memset-1"
    )


def read_then_written(*writes: tuple[AccessPattern, str]) -> Module:
    """The buffer is set and saved whole, Save-0 reading it; then come Memset-1, Memset-2 and so on."""
    allocations = (
        allocation("y", "ExternalOutput", "uint8", (32,), "DRAM", (1, 32)),
        sbuf("a", "uint8", 8, 0, 4),
    )
    zero = Immediate(dtype("uint8"), 0)
    whole = pattern("a", "uint8", ((8, 4), (1, 8)))
    save = dma("Save", "Save-0", whole, pattern("y", "uint8", ((1, 32),)), "Memset-0")
    more = [memset(f"Memset-{i}", zero, target, after) for i, (target, after) in enumerate(writes, 1)]
    return module_of(allocations, (memset("Memset-0", zero, whole), save, *more))


WHOLE = pattern("a", "uint8", ((8, 4), (1, 8)))
LEFT, RIGHT = pattern("a", "uint8", ((8, 4), (1, 4))), pattern("a", "uint8", ((8, 4), (1, 4)), offset=4)


def test_a_write_after_a_read_that_was_overwritten_waits_for_the_overwriting() -> None:
    simulate(read_then_written((WHOLE, "Save-0"), (WHOLE, "Memset-1")), {})
    with pytest.raises(SimulationError, match=r"the write of Memset-1 may be in flight"):
        simulate(read_then_written((WHOLE, "Save-0"), (WHOLE, "Save-0")), {})


def test_a_read_that_was_overwritten_in_part_still_counts_for_the_rest() -> None:
    simulate(read_then_written((LEFT, "Save-0"), (RIGHT, "Save-0")), {})
    with pytest.raises(
        SimulationError, match=r"Memset-2 writes SB partition 0 byte 0x4 \(a\) while the read of Save-0"
    ):
        simulate(read_then_written((LEFT, "Save-0"), (RIGHT, "Memset-0")), {})


def test_a_read_overwritten_by_two_writes_together() -> None:
    """Once both halves are written the read is guarded by the two writers, and each must be waited for."""
    both = read_then_written((LEFT, "Save-0"), (RIGHT, "Save-0"), (WHOLE, "Memset-2"))
    with pytest.raises(
        SimulationError, match=r"Memset-3 writes SB partition 0 byte 0x0 \(a\) while the write of Memset-1"
    ):
        simulate(both, {})
