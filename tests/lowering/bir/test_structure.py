"""Structural checks: names, references, ranges, dependencies and copies, each tripped alone."""

import dataclasses

import pytest

from lowering.bir.program import DMA, EdgeKind, Immediate, Instruction, Module, OpaqueOperand
from lowering.bir.verify import verify

from .programs import (
    allocation,
    dtype,
    module_of,
    pattern,
    quantize_module,
    sbuf,
    with_instruction,
    with_location,
    with_operand,
)


def load_module() -> Module:
    """A Load of 32 x 8 bf16 elements."""
    allocations = (
        allocation("x", "ExternalInput", "bfloat16", (8, 32), "DRAM", (1, 512)),
        sbuf("src", "bfloat16", 8, 0, 32),
    )
    load = Instruction(
        "Load",
        "Load-0",
        DMA.name,
        DMA.number,
        "Internal",
        (pattern("x", "bfloat16", ((1, 32), (32, 8))),),
        (pattern("src", "bfloat16", ((8, 32), (1, 8))),),
    )
    return module_of(allocations, (load,))


LOAD = load_module()
QUANTIZE = quantize_module()


def said(module: Module) -> str:
    (violation,) = verify(module)
    return str(violation)


def test_the_load_is_clean() -> None:
    assert verify(LOAD) == []


def test_unknown_memref() -> None:
    assert said(with_operand(LOAD, "ins", 0, memref="y")) == (
        "[reference] Load-0, ins[0]: found memref y, wanted the name of a memory location"
    )


def test_wrong_memsetref() -> None:
    assert said(with_operand(LOAD, "outs", 0, memsetref="x_set")) == (
        "[reference] Load-0, outs[0]: found memsetref x_set, wanted src_set, which holds src"
    )


@pytest.mark.parametrize(
    ("side", "changes", "found"),
    [
        (
            "ins",
            {"offset": 1},
            "element 256 is outside DRAM location x, wanted 0 to 255 (at offset 1 of DRAM location x)",
        ),
        (
            "ins",
            {"ap": ((-1, 32), (32, 8))},
            "element -31 is outside DRAM location x, wanted 0 to 255 (at offset 0 of DRAM location x)",
        ),
        (
            "outs",
            {"offset": 8},
            "partition 32 is outside SB location src, wanted 0 to 31 (at offset 8 of SB location src)",
        ),
        (
            "outs",
            {"offset": 1},
            "bfloat16 unit 8 is outside SB location src, wanted 0 to 7 (at offset 1 of SB location src)",
        ),
        (
            "outs",
            {"ap": ((9, 32), (1, 8))},
            "the partition step is 9, wanted a multiple of the pitch of src, 8 units of bfloat16 "
            "(at offset 0 of SB location src)",
        ),
    ],
)
def test_out_of_range(side: str, changes: dict[str, object], found: str) -> None:
    assert said(with_operand(LOAD, side, 0, **changes)) == (
        f"[access] Load-0, {side}[0]: found {found}, wanted an access inside its memory location"
    )


@pytest.mark.parametrize("ap", [(), ((8, 32), (1, 0)), ((8, 32), (1, -8))])
def test_patterns_without_elements(ap: tuple[tuple[int, int], ...]) -> None:
    assert "[access]" in " ".join(str(violation) for violation in verify(with_operand(LOAD, "outs", 0, ap=ap)))


@pytest.mark.parametrize(
    "ap", [((8, 32), (0, 8)), ((8, 32), (2, 2), (1, 4)), ((0, 32), (1, 8)), ((8, 32), (0, 1 << 40), (1, 8))]
)
def test_an_element_written_twice(ap: tuple[tuple[int, int], ...]) -> None:
    assert str(verify(with_operand(LOAD, "outs", 0, ap=ap))[0]) == (
        f"[access] Load-0, outs[0]: found ap {[list(pair) for pair in ap]} writes an element twice, "
        "wanted every element written once"
    )


def test_interleaved_steps_that_do_not_meet_are_fine() -> None:
    assert verify(with_operand(LOAD, "outs", 0, ap=((8, 32), (1, 2), (2, 4)))) == []


def test_reading_an_element_twice_is_fine() -> None:
    assert verify(with_operand(LOAD, "ins", 0, ap=((0, 32), (1, 8)))) == []


def test_copy_counts_and_sizes() -> None:
    assert said(with_operand(LOAD, "ins", 0, ap=((1, 32), (32, 4)))) == (
        "[copy] Load-0, ins[0] and outs[0]: found 128 and 256 elements, wanted equal counts"
    )
    half = with_operand(LOAD, "ins", 0, dtype=dtype("uint8"))
    assert said(half) == (
        "[copy] Load-0, ins[0] and outs[0]: found uint8 of 1 bytes and bfloat16 of 2, wanted equal element sizes"
    )


def test_copies_of_equal_size_may_change_the_dtype() -> None:
    assert verify(with_operand(LOAD, "ins", 0, dtype=dtype("uint16"))) == []


def test_a_load_reads_dram() -> None:
    found = [str(violation) for violation in verify(with_instruction(LOAD, opcode="Save"))]
    assert found == [
        "[memory] Load-0, ins[0]: found memory type DRAM, wanted SB",
        "[memory] Load-0, outs[0]: found memory type SB, wanted DRAM",
    ]


@pytest.mark.parametrize(
    ("name", "found"), [("Load-9", "Load-9, no instruction"), ("Load-0", "Load-0, itself or a later instruction")]
)
def test_dependencies_name_earlier_instructions(name: str, found: str) -> None:
    module = with_instruction(LOAD, dependencies=((name, EdgeKind.FLOW),))
    wanted = f"[dependency] Load-0, dependencies: found {found}, wanted the name of an earlier instruction"
    assert said(module) == wanted


def test_operand_counts_and_kinds() -> None:
    assert said(with_instruction(QUANTIZE, outs=())) == "[operands] QuantizeMX-0, outs: found 0 operands, wanted 2"
    module = with_instruction(QUANTIZE, ins=(OpaqueOperand("register_ap"),))
    assert said(module) == "[operands] QuantizeMX-0, ins[0]: found OpaqueOperand, wanted kind physical_ap"
    memset = with_instruction(LOAD, opcode="Memset")
    assert said(memset) == "[operands] Load-0, ins[0]: found AccessPattern, wanted kind imm_value"
    assert verify(with_instruction(memset, ins=(Immediate(dtype("bfloat16"), 0.0),))) == []


def test_names_are_unique() -> None:
    function = LOAD.functions[0]
    (load,) = function.instructions()
    twice = module_of(function.allocations, (load, load))
    assert "[name] sg0000, instruction: found 2 instructions named Load-0, wanted one of each name" in map(
        str, verify(twice)
    )


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"base": 100}, "found partitions 100 to 131, wanted partitions below 128"),
        ({"base": -1}, "found base -1, addr 0, dims [32, 16], wanted no negative number"),
        # 256 KiB less the 0x4008 reserved bytes leave 0x3bff8.
        (
            {"addr": 0x3BFF8 - 8},
            "found bytes 0x3bff0 to 0x3bfff of each partition, wanted bytes below 0x3bff8, the rest is reserved",
        ),
    ],
)
def test_locations_lie_inside_sbuf(changes: dict[str, int], found: str) -> None:
    assert said(with_location(LOAD, "src", **changes)) == f"[location] sg0000, src: {found}"


@pytest.mark.parametrize("changes", [{"base": 1}, {"addr": 4}, {"dims": (2, 512)}])
def test_dram_has_neither_partitions_nor_addresses(changes: dict[str, object]) -> None:
    assert said(with_location(LOAD, "x", **changes)).endswith(", wanted base 0, addr 0, dims [1, bytes] in DRAM")


def test_outside_tensors_fill_one_dram_location() -> None:
    found = said(with_location(LOAD, "x", dims=(1, 514)))
    assert found == "[location] sg0000, x_set: found 514 bytes for bfloat16[8, 32], wanted 512 bytes"
    function = LOAD.functions[0]
    moved = dataclasses.replace(function.allocations[1], kind="ExternalOutput")
    module = module_of((function.allocations[0], moved), tuple(function.instructions()))
    assert said(module) == (
        "[location] sg0000, src_set: found memory types SB, wanted one DRAM location for an ExternalOutput"
    )


def test_the_last_usable_byte_may_be_used() -> None:
    assert verify(with_location(LOAD, "src", addr=0x3BFF8 - 16)) == []


def test_location_count() -> None:
    function = LOAD.functions[0]
    allocations = (dataclasses.replace(function.allocations[0], location_count=2), function.allocations[1])
    assert said(module_of(allocations, tuple(function.instructions()))) == (
        "[location] sg0000, x_set.tensorId2MemLocSize: found 2 for 1 locations, wanted their number"
    )


def test_opcodes_without_rules_still_get_structural_checks() -> None:
    module = with_instruction(LOAD, opcode="Activation", outs=())
    assert verify(module) == []
    assert said(with_operand(module, "ins", 0, memref="y")).startswith("[reference] Load-0, ins[0]")
