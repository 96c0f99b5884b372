"""Every verifier code of MatmultMx, tripped alone."""

import dataclasses

import pytest

from lowering.bir.access import locations_of
from lowering.bir.matmult_mx_rules import MATMULT_MX_ROLES, MATMULT_MX_RULES
from lowering.bir.program import AccessPattern, Module
from lowering.bir.rules import OperandView, Scene, apply_rules
from lowering.bir.verify import verify

from .programs import dtype, matmult_module, with_instruction, with_location, with_operand

GOOD = matmult_module()
IFMAP, WEIGHTS, IFMAP_SCALE, WEIGHTS_SCALE = range(4)


def ins(module: Module, *changes: tuple[int, int, int, int]) -> Module:
    """`module` with [partitions, units] of some inputs changed; each change is (index, pitch, partitions, units)."""
    for index, pitch, partitions, units in changes:
        module = with_operand(module, "ins", index, ap=((pitch, partitions), (1, units)))
    return module


def out(module: Module, partitions: int, units: int) -> Module:
    return with_operand(module, "outs", 0, ap=((5000, partitions), (1, units)))


def key(**extra: object) -> Module:
    return with_instruction(GOOD, extra=extra)


def heights(ifmap: int, weights: int) -> Module:
    return ins(
        GOOD,
        (IFMAP, 5000, ifmap, 8),
        (IFMAP_SCALE, 5000, ifmap, 8),
        (WEIGHTS, 200, weights, 4),
        (WEIGHTS_SCALE, 200, weights, 4),
    )


def start(index: int, pitch: int, partition: int) -> Module:
    return with_operand(GOOD, "ins", index, offset=partition * pitch)


def ifmap_and_scale_at(partition: int) -> Module:
    module = with_operand(GOOD, "ins", IFMAP, offset=partition * 5000)
    return with_operand(module, "ins", IFMAP_SCALE, offset=partition * 5000)


CASES = [
    ("205", with_instruction(GOOD, engine="DVE"), "", "engine DVE, engine_id 3"),
    ("205", with_instruction(GOOD, engine_id=5), "", "engine PE, engine_id 5"),
    ("204", key(replication_shift_amnt=32), "", "replication_shift_amnt 32"),
    ("310", with_location(GOOD, "ifmap", type="PSUM"), "ifmap", "memory type PSUM"),
    ("310", with_location(GOOD, "weights", type="PSUM"), "weights", "memory type PSUM"),
    ("310", with_location(GOOD, "ifmap_scale", type="PSUM"), "ifmap_scales", "memory type PSUM"),
    ("310", with_location(GOOD, "weights_scale", type="PSUM"), "weights_scales", "memory type PSUM"),
    ("memory", with_location(GOOD, "out", type="SB"), "out", "memory type SB"),
    ("dtype", with_operand(GOOD, "ins", IFMAP_SCALE, dtype=dtype("int8")), "ifmap_scales", "dtype int8"),
    ("dtype", with_operand(GOOD, "ins", WEIGHTS_SCALE, dtype=dtype("int8")), "weights_scales", "dtype int8"),
    ("dtype", with_operand(GOOD, "outs", 0, dtype=dtype("int32")), "out", "dtype int32"),
    ("212", start(IFMAP_SCALE, 5000, 32), "ifmap and ifmap_scales", "start partitions 0 and 32"),
    ("213", start(WEIGHTS_SCALE, 200, 32), "weights and weights_scales", "start partitions 0 and 32"),
    ("214", start(IFMAP_SCALE, 5000, 2), "ifmap_scales", "start partition 2"),
    ("214", start(WEIGHTS_SCALE, 200, 6), "weights_scales", "start partition 6"),
    (
        "228",
        ins(GOOD, (IFMAP_SCALE, 5000, 64, 7)),
        "ifmap and ifmap_scales",
        "32 elements and 7 scales per partition",
    ),
    (
        "229",
        ins(GOOD, (WEIGHTS_SCALE, 200, 64, 5)),
        "weights and weights_scales",
        "16 elements and 5 scales per partition",
    ),
    ("230", start(IFMAP_SCALE, 5000, 16), "ifmap_scales", "start partition 16"),
    ("231", start(WEIGHTS_SCALE, 200, 28), "weights_scales", "start partition 28"),
    # 4097 containers a partition are 16388 elements; eight banks hold 4096 float32 results.
    (
        "232",
        out(ins(GOOD, (IFMAP, 5000, 64, 4097), (IFMAP_SCALE, 5000, 64, 4097)), 4, 4097),
        "ifmap and out",
        "16388 elements per partition where 16384 fit",
    ),
    ("234", heights(96, 96), "ifmap", "96 partitions"),
    ("235", heights(64, 32), "ifmap and weights", "64 and 32 partitions"),
    (
        "236",
        out(GOOD, 5, 8),
        "out and weights",
        "5 out partitions and 16 weights elements per partition",
    ),
    (
        "237",
        out(GOOD, 4, 7),
        "out and ifmap",
        "7 out elements and 32 ifmap elements per partition",
    ),
    (
        "289",
        out(ins(GOOD, (WEIGHTS, 200, 64, 3), (WEIGHTS_SCALE, 200, 64, 3)), 3, 8),
        "weights",
        "3 containers per partition",
    ),
    ("240", key(tile_size=[32, 128]), "ifmap", "tile_size [32, 128]"),
    ("241", key(tile_size=[64, 64]), "", "tile_size [64, 64], tile_position None"),
    ("241", key(tile_position=[0, 32]), "", "tile_size None, tile_position [0, 32]"),
]


def test_the_unbroken_module_is_clean() -> None:
    assert verify(GOOD) == []


@pytest.mark.parametrize(("code", "module", "operand", "found"), CASES)
def test_one_code_alone(code: str, module: Module, operand: str, found: str) -> None:
    (violation,) = verify(module)
    assert (violation.code, violation.operand, violation.found) == (code, operand, found)
    assert violation.instruction == "MatmultMX-0"
    assert violation.wanted


def test_233_alone() -> None:
    """Weights of more than 512 elements want more output partitions than PSUM has, so only the table trips it alone."""
    module = out(ins(GOOD, (WEIGHTS, 200, 64, 130), (WEIGHTS_SCALE, 200, 64, 130)), 130, 8)
    instruction = next(module.functions[0].instructions())
    places = locations_of(module.functions[0])
    roles = [role for side in MATMULT_MX_ROLES for role in side]
    operands = [operand for operand in (*instruction.ins, *instruction.outs) if isinstance(operand, AccessPattern)]
    views = {role: OperandView(o, places[o.memref]) for role, o in zip(roles, operands, strict=True)}
    (violation,) = apply_rules(MATMULT_MX_RULES, Scene(40, instruction, views, allow_fp4=False))
    assert (violation.code, violation.found) == ("233", "520 elements per partition")
    assert [violation.code for violation in verify(module)] == ["access", "233"]


@pytest.mark.parametrize("index", [IFMAP, WEIGHTS])
def test_an_input_that_is_not_x4(index: int) -> None:
    """Such a unit counts as one element, so the counts that build on it break as well."""
    violations = verify(with_operand(GOOD, "ins", index, dtype=dtype("uint32")))
    assert violations[0].code == "dtype"
    assert violations[0].operand == ("ifmap", "weights")[index]


@pytest.mark.parametrize(
    "extra", [{"tile_size": [-1, -1]}, {"tile_size": [64, 128], "tile_position": [0, 0]}, {"tile_position": [-1, -1]}]
)
def test_accepted_tiles(extra: dict[str, object]) -> None:
    assert verify(key(**extra)) == []


@pytest.mark.parametrize("value", [7, "all", [1]])
def test_a_malformed_tile_size_is_a_violation(value: object) -> None:
    codes = {violation.code for violation in verify(key(tile_size=value))}
    assert codes == {"240", "241"}


def test_a_bf16_output_doubles_the_ifmap_limit() -> None:
    """32 * (2048 / 2) = 32768 elements; 5000 containers, 20000 elements, are refused for float32 only."""
    wide = out(ins(GOOD, (IFMAP, 5000, 64, 5000), (IFMAP_SCALE, 5000, 64, 5000)), 4, 5000)
    assert [violation.code for violation in verify(wide)] == ["232"]
    narrow = with_operand(wide, "outs", 0, dtype=dtype("bfloat16"), ap=((10000, 4), (1, 5000)))
    assert verify(narrow) == []


def test_scale_and_data_may_start_in_any_quadrant() -> None:
    assert verify(ifmap_and_scale_at(32)) == []


def test_arch_and_operands_are_checked_together() -> None:
    module = with_instruction(GOOD, ins=next(GOOD.functions[0].instructions()).ins[:2])
    (violation,) = verify(dataclasses.replace(module))
    assert str(violation) == "[operands] MatmultMX-0, ins: found 2 operands, wanted 4"
