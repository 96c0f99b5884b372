"""Every verifier code of QuantizeMx, tripped alone, with the value found and the value wanted."""

import dataclasses

import pytest

from lowering.bir.program import Module
from lowering.bir.verify import arch_level, verify

from .programs import (
    DATA_PITCH,
    SCALE_PITCH,
    SRC_PITCH,
    dtype,
    quantize_module,
    with_instruction,
    with_location,
    with_operand,
)

GOOD = quantize_module()


def source(ap: tuple[tuple[int, int], ...], offset: int = 0) -> Module:
    return with_operand(GOOD, "ins", 0, ap=((SRC_PITCH, 32), *ap), offset=offset)


def tile(partitions: int, scale_partitions: int) -> Module:
    module = with_operand(GOOD, "ins", 0, ap=((SRC_PITCH, partitions), (1, 8)))
    module = with_operand(module, "outs", 0, ap=((DATA_PITCH, partitions), (1, 2)))
    return with_operand(module, "outs", 1, ap=((SCALE_PITCH, scale_partitions), (1, 2)))


def scale_at(partition: int, count: int = 4) -> Module:
    return with_operand(GOOD, "outs", 1, ap=((SCALE_PITCH, count), (1, 2)), offset=partition * SCALE_PITCH)


CASES = [
    ("366", dataclasses.replace(GOOD, arch="core_v3"), "", "arch level 30", "arch level 40 (core_v4) or later"),
    ("367", dataclasses.replace(GOOD, arch="core_v5"), "", "arch level 50", "arch level 40 (core_v4) or earlier"),
    ("400", with_instruction(GOOD, engine="PE"), "", "engine PE", "engine DVE"),
    ("207", with_instruction(GOOD, engine_id=3), "", "engine_id 3", "engine_id 5 (DVE)"),
    ("310", with_location(GOOD, "src", type="PSUM"), "src", "memory type PSUM", "memory type SB"),
    ("310", with_location(GOOD, "data", type="PSUM"), "data", "memory type PSUM", "memory type SB"),
    ("310", with_location(GOOD, "scale", type="PSUM"), "scale", "memory type PSUM", "memory type SB"),
    ("dtype", with_operand(GOOD, "ins", 0, dtype=dtype("uint16")), "src", "dtype uint16", "dtype bfloat16 or float16"),
    (
        "dtype",
        with_operand(GOOD, "outs", 1, dtype=dtype("int8")),
        "scale",
        "dtype int8",
        "dtype uint8 or float8_e8m0fnu",
    ),
    # 12 elements in runs of 6: a run that 4 does not divide.
    (
        "209",
        with_operand(
            with_operand(source(((8, 2), (1, 6))), "outs", 0, ap=((DATA_PITCH, 32), (1, 3))),
            "outs",
            1,
            ap=((SCALE_PITCH, 4), (1, 3)),
        ),
        "src",
        "free pairs [[8, 2], [1, 6]]",
        "a last free pair of step 1 whose num is divisible by 4",
    ),
    (
        "209",
        source(((2, 8),)),
        "src",
        "free pairs [[2, 8]]",
        "a last free pair of step 1 whose num is divisible by 4",
    ),
    (
        "210",
        source(((5, 2), (1, 4))),
        "src",
        "the free pair [5, 2]",
        "an even step, or num 1, in every free pair but the last",
    ),
    (
        "211",
        with_operand(GOOD, "outs", 0, ap=((DATA_PITCH, 32), (1, 3))),
        "src and data",
        "256 src elements and 384 data elements",
        "equal counts, a data container counted as 4",
    ),
    ("215", tile(48, 48), "src", "48 partitions", "32, 64, 96 or 128 partitions"),
    ("264", scale_at(16), "scale", "start partition 16", "start partition % 32 below 16 and divisible by 4"),
    ("264", scale_at(2), "scale", "start partition 2", "start partition % 32 below 16 and divisible by 4"),
    ("1821", scale_at(36), "data and scale", "start partitions 0 and 36", "start partitions in one quadrant"),
    (
        "270",
        with_operand(GOOD, "outs", 1, ap=((SCALE_PITCH, 4), (1, 1))),
        "scale and src",
        "1 scales and 8 src elements per partition",
        "four src elements per scale in a partition",
    ),
    (
        "shape",
        with_operand(GOOD, "outs", 0, ap=((DATA_PITCH, 64), (1, 1))),
        "src and data",
        "32 and 64 partitions",
        "equal partition counts",
    ),
    (
        "shape",
        scale_at(0, count=32),
        "scale",
        "32 scale partitions for 32 src partitions from 0",
        "4 scale partitions for 32 src partitions, otherwise the src partitions less the pack offset",
    ),
    (
        "isa-data-start",
        with_operand(GOOD, "outs", 0, offset=8 * DATA_PITCH),
        "data",
        "start partition 8",
        "start partition 0, 32, 64 or 96",
    ),
    (
        "isa-source-alignment",
        source(((1, 8),), offset=1),
        "src",
        "byte address 0x2",
        "a source address divisible by 4",
    ),
    (
        "isa-fp4",
        with_operand(GOOD, "outs", 0, dtype=dtype("float4_e2m1fn_x4"), ap=((2 * DATA_PITCH, 32), (1, 2))),
        "data",
        "dtype float4_e2m1fn_x4",
        "an fp8 x4 dtype; fp4 is accepted only when fp4 is allowed",
    ),
]


def test_the_unbroken_module_is_clean() -> None:
    assert verify(GOOD) == []


@pytest.mark.parametrize(("code", "module", "operand", "found", "wanted"), CASES)
def test_one_code_alone(code: str, module: Module, operand: str, found: str, wanted: str) -> None:
    (violation,) = verify(module)
    assert dataclasses.astuple(violation) == (code, "QuantizeMX-0", operand, found, wanted)


def test_data_that_is_not_x4_trips_the_dtype_and_the_count() -> None:
    """One dtype decides both the format and what a unit counts, so the two cannot part."""
    module = with_operand(GOOD, "outs", 0, dtype=dtype("uint32"))
    assert [violation.code for violation in verify(module)] == ["dtype", "211"]


@pytest.mark.parametrize(("partitions", "span"), [(32, 4), (64, 64), (96, 96), (128, 128)])
def test_every_height_is_accepted(partitions: int, span: int) -> None:
    assert verify(tile(partitions, span)) == []


@pytest.mark.parametrize(("pack", "span"), [(0, 4), (4, 4), (8, 4), (12, 4)])
def test_every_pack_offset_is_accepted(pack: int, span: int) -> None:
    assert verify(scale_at(pack, span)) == []


def test_pairs_that_continue_one_another_count_as_one_run() -> None:
    assert verify(source(((4, 2), (2, 2), (1, 2)))) == []


def test_fp4_is_accepted_when_allowed() -> None:
    module = with_operand(GOOD, "outs", 0, dtype=dtype("float4_e2m1fn_x4"), ap=((2 * DATA_PITCH, 32), (1, 2)))
    assert verify(module, allow_fp4=True) == []


def test_a_missing_engine_id_breaks_no_rule() -> None:
    assert verify(with_instruction(GOOD, engine_id=None)) == []


def test_all_violations_are_reported() -> None:
    module = with_instruction(scale_at(18), engine="PE", engine_id=3)
    assert [violation.code for violation in verify(module)] == ["400", "207", "264"]


def test_a_dram_operand_is_reported_once() -> None:
    module = with_location(GOOD, "src", type="DRAM", dims=(1, 16384))
    assert [violation.code for violation in verify(module)] == ["310"]


def test_text_of_a_violation() -> None:
    (violation,) = verify(scale_at(16))
    assert str(violation) == (
        "[264] QuantizeMX-0, scale: found start partition 16, wanted start partition % 32 below 16 and divisible by 4"
    )


@pytest.mark.parametrize(
    ("name", "level"), [("core_v4", 40), ("core_v2", 20), ("core_v", None), ("gen3", None), ("core_v²", None)]
)
def test_arch_levels(name: str, level: int | None) -> None:
    assert arch_level(name) == level


def test_an_unknown_arch_is_a_violation() -> None:
    (violation,) = verify(dataclasses.replace(GOOD, arch="gen3"))
    assert str(violation) == '[arch] module, arch: found gen3, wanted a name like "core_v4"'
