"""The simulator on programs written out by hand: what each instruction does, and what it refuses."""

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lowering.bir import LegalizedCall, SimulationError, VerificationError, lower_calls, simulate
from lowering.bir.access import AccessError, resolve
from lowering.bir.adversarial import adversarial_bits
from lowering.bir.program import DMA, DVE, EdgeKind, Immediate, Instruction, Module, Operand
from lowering.bir.simulator import physical_scale

from .programs import allocation, dtype, module_of, pattern, sbuf

FLOW = EdgeKind.FLOW


def dma(opcode: str, name: str, source: Operand, target: Operand, *after: str) -> Instruction:
    waits = tuple((earlier, FLOW) for earlier in after)
    return Instruction(opcode, name, DMA.name, DMA.number, "Internal", (source,), (target,), waits)


def memset(name: str, value: Immediate, target: Operand, *after: str) -> Instruction:
    waits = tuple((earlier, FLOW) for earlier in after)
    return Instruction("Memset", name, DVE.name, DVE.number, "Internal", (value,), (target,), waits)


def copy_module(load: Operand, save: Operand) -> Module:
    """X (6 x 4 uint16) through SBUF "t" (6 partitions of 8 units) to y (24 uint16)."""
    allocations = (
        allocation("x", "ExternalInput", "uint16", (6, 4), "DRAM", (1, 48)),
        allocation("y", "ExternalOutput", "uint16", (24,), "DRAM", (1, 48)),
        sbuf("t", "uint16", 8, 0, 6),
    )
    flat = ((1, 24),)
    return module_of(
        allocations,
        (
            dma("Load", "Load-0", pattern("x", "uint16", flat), load),
            dma("Save", "Save-0", save, pattern("y", "uint16", flat), "Load-0"),
        ),
    )


X = np.arange(24, dtype=np.uint16).reshape(6, 4)


def test_a_load_and_a_save_pair_elements_in_order() -> None:
    """Loaded row by row into every second unit; saved column by column."""
    into = pattern("t", "uint16", ((8, 6), (2, 4)))
    module = copy_module(into, into)
    np.testing.assert_array_equal(simulate(module, {"x": X})["y"], np.arange(24))
    # A partition is the outermost index, so a transposing order needs the reversed pattern of one partition each.
    reverse = pattern("t", "uint16", ((-8, 6), (-2, 4)), offset=5 * 8 + 6)
    np.testing.assert_array_equal(simulate(copy_module(into, reverse), {"x": X})["y"], np.arange(24)[::-1])


def test_patterns_of_different_rank_pair_up() -> None:
    """24 elements as 6 partitions of 4 and as 3 partitions of 2 x 4."""
    allocations = (
        allocation("x", "ExternalInput", "uint16", (6, 4), "DRAM", (1, 48)),
        allocation("y", "ExternalOutput", "uint16", (24,), "DRAM", (1, 48)),
        sbuf("t", "uint16", 8, 0, 3),
    )
    module = module_of(
        allocations,
        (
            dma("Load", "Load-0", pattern("x", "uint16", ((1, 24),)), pattern("t", "uint16", ((8, 3), (4, 2), (1, 4)))),
            dma(
                "Save", "Save-0", pattern("t", "uint16", ((8, 3), (1, 8))), pattern("y", "uint16", ((1, 24),)), "Load-0"
            ),
        ),
    )
    np.testing.assert_array_equal(simulate(module, {"x": X})["y"], np.arange(24))


def test_shapes_with_no_common_refinement_pair_up() -> None:
    """Source 4 x 6, target 6 x 4: neither splits into the other."""
    load = pattern("t", "uint16", ((8, 6), (1, 4)))
    module = copy_module(load, load)
    instructions = list(module.functions[0].instructions())
    transposed = pattern("x", "uint16", ((1, 4), (4, 6)))
    instructions[0] = dataclasses.replace(instructions[0], ins=(transposed,))
    module = module_of(module.functions[0].allocations, tuple(instructions))
    np.testing.assert_array_equal(simulate(module, {"x": X})["y"], X.T.ravel())


@pytest.mark.parametrize(
    ("name", "value", "bits"),
    [
        ("bfloat16", 1.5, 0x3FC0),
        ("float16", 1.5, 0x3E00),
        ("float32", -2, 0xC0000000),
        ("uint8", 7, 7),
        ("int8", -1, 0xFF),
        ("uint32", 2**32 - 1, 0xFFFFFFFF),
        ("float8_e4m3fn_x4", 0, 0),
    ],
)
def test_memset_writes_the_bits_of_its_value(name: str, value: float, bits: int) -> None:
    size = dtype(name).bytes
    allocations = (
        allocation("y", "ExternalOutput", name, (8,), "DRAM", (1, 8 * size)),
        sbuf("t", name, 2, 0, 4),
    )
    whole = pattern("t", name, ((2, 4), (1, 2)))
    module = module_of(
        allocations,
        (
            memset("Memset-0", Immediate(dtype(name), value), whole),
            dma("Save", "Save-0", whole, pattern("y", name, ((1, 8),)), "Memset-0"),
        ),
    )
    np.testing.assert_array_equal(simulate(module, {})["y"], np.full(8, bits))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("uint8", 256, "Memset-0: the value 256 does not fit uint8"),
        ("float8_e4m3fn_x4", 1.0, "Memset-0: a nonzero float8_e4m3fn_x4 immediate 1.0 is not simulated"),
        ("int8", 1.5, "Memset-0: a nonzero int8 immediate 1.5 is not simulated"),
    ],
)
def test_values_memset_cannot_write(name: str, value: float, message: str) -> None:
    allocations = (sbuf("t", name, 2, 0, 4),)
    module = module_of(
        allocations, (memset("Memset-0", Immediate(dtype(name), value), pattern("t", name, ((2, 4), (1, 2)))),)
    )
    with pytest.raises(SimulationError) as caught:
        simulate(module, {})
    assert str(caught.value) == message


def test_only_sbuf_and_dram_are_simulated() -> None:
    place = allocation("t", "Internal", "uint8", (4, 8), "PSUM", (4, 8))
    target = pattern("t", "uint8", ((8, 3), (1, 8)), offset=8)
    with pytest.raises(SimulationError) as caught:
        simulate(module_of((place,), (memset("Memset-0", Immediate(dtype("uint8"), 0), target),)), {})
    assert str(caught.value) == "Memset-0 touches PSUM partition 1 byte 0x0 (t); only SB and DRAM are simulated"


def test_quantize_writes_scales_at_physical_rows_and_nowhere_else() -> None:
    """64 partitions, pack offset 8: scale rows 8-11 and 40-43. The other rows keep the 0xEE put there before."""
    module = lower_calls([LegalizedCall((4, 256), "bfloat16", "float8_e4m3fn")])
    function = module.functions[0]
    allocations = (
        *function.allocations[:-1],
        sbuf("tile.scale0", "uint8", 4, 4096, 64),
        allocation("rows", "ExternalOutput", "uint8", (64, 4), "DRAM", (1, 256)),
    )
    load, quantize, save_data, *save_scale = function.instructions()
    whole = pattern("tile.scale0", "uint8", ((4, 64), (1, 4)))
    fill = memset("Memset-9", Immediate(dtype("uint8"), 0xEE), whole)
    scale = pattern("tile.scale0", "uint8", ((4, 56), (1, 4)), offset=8 * 4)
    quantize = dataclasses.replace(
        quantize,
        outs=(quantize.outs[0], scale),
        dependencies=(*quantize.dependencies, ("Memset-9", EdgeKind.OUTPUT)),
    )
    rows = pattern("rows", "uint8", ((4, 64), (1, 4)))
    moved = [
        dataclasses.replace(item, ins=(pattern("tile.scale0", "uint8", ((4, 4), (1, 4)), offset=(8 + 32 * q) * 4),))
        for q, item in enumerate(save_scale)
    ]
    instructions = (fill, load, quantize, save_data, *moved, dma("Save", "Save-9", whole, rows, "QuantizeMX-0"))
    bits = adversarial_bits((4, 256), "bfloat16")
    found = simulate(module_of(allocations, instructions), {"x": bits})
    written = [*range(8, 12), *range(40, 44)]
    np.testing.assert_array_equal(found["rows"][written], found["scale"].T)
    others = np.delete(found["rows"], written, axis=0)
    np.testing.assert_array_equal(others, np.full((56, 4), 0xEE))
    np.testing.assert_array_equal(found["scale"], simulate(module, {"x": bits})["scale"])


def test_scale_rows_of_every_height() -> None:
    """Rows 0-3, 32-35, 64-67, 96-99 for 128 partitions, shifted by the pack offset."""
    place = sbuf("scale", "uint8", 2, 0).memorylocations[0]
    scale = resolve(pattern("scale", "uint8", ((2, 116), (1, 2)), offset=12 * 2), place)
    for partitions, rows in ((32, [12]), (64, [12, 44]), (96, [12, 44, 76]), (128, [12, 44, 76, 108])):
        mask = sum(0b1111 << row for row in rows)
        assert physical_scale(scale, partitions).partition_mask == mask


def test_scale_rows_past_the_buffer() -> None:
    place = sbuf("scale", "uint8", 2, 0, 64).memorylocations[0]
    scale = resolve(pattern("scale", "uint8", ((2, 4), (1, 2))), place)
    with pytest.raises(SimulationError) as caught:
        physical_scale(scale, 96)
    assert str(caught.value) == "the scale rows reach partition 67; scale ends at partition 63"


CALL = LegalizedCall((4, 32), "bfloat16", "float8_e4m3fn")
LOWERED = lower_calls([CALL])
BITS = adversarial_bits((4, 32), "bfloat16")


def test_inputs_may_be_values_or_bits() -> None:
    as_bits, as_values = (simulate(LOWERED, {"x": x}) for x in (BITS, BITS.view(ml_dtypes.bfloat16)))
    np.testing.assert_array_equal(as_bits["data"], as_values["data"])


def test_inputs_may_lie_in_memory_in_any_way() -> None:
    want = simulate(LOWERED, {"x": BITS})
    read_only = BITS.copy()
    read_only.setflags(write=False)
    values = BITS.view(ml_dtypes.bfloat16)
    for given in (
        BITS.astype(">u2"),
        values.astype(values.dtype.newbyteorder(">")),
        np.asfortranarray(BITS),
        np.repeat(BITS, 2, axis=1)[:, ::2],
        BITS[::-1].copy()[::-1],
        read_only,
        np.broadcast_to(BITS, BITS.shape),
    ):
        found = simulate(LOWERED, {"x": given})
        for name in ("data", "scale"):
            np.testing.assert_array_equal(found[name], want[name])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (BITS.tolist(), "input x is int64[4, 32], wanted bfloat16[4, 32] or its bits as uint16"),
        ([[1], [1, 2]], "input x is no array (setting an array element with a sequence."),
        (BITS.view("V2"), "input x is void16[4, 32], wanted"),
        (BITS.view([("bits", "u2")]), "input x is void16[4, 32], wanted"),
        (BITS.astype(object), "input x is object[4, 32], wanted"),
        (BITS.view(np.int16), "input x is int16[4, 32], wanted"),
        (BITS.T, "input x is uint16[32, 4], wanted"),
        (np.ma.masked_array(BITS, BITS > 9), "input x is a masked array, wanted bfloat16[4, 32] or its bits as uint16"),
        (None, "input x is object[], wanted"),
    ],
)
def test_what_is_no_array_of_the_inputs_bits_is_refused(given: Any, message: str) -> None:
    with pytest.raises(SimulationError) as caught:
        simulate(LOWERED, {"x": given})
    assert str(caught.value).startswith(message)


def test_inputs_have_names() -> None:
    with pytest.raises(SimulationError, match="the inputs are a list, wanted a dict of arrays by name"):
        simulate(LOWERED, [BITS])  # type: ignore[arg-type]
    with pytest.raises(SimulationError, match="sg0000 has no input 0; its inputs are x"):
        simulate(LOWERED, {"x": BITS, "z": BITS, 0: BITS})  # type: ignore[dict-item]


def test_the_rule_given_wins_over_the_modules() -> None:
    nki = lower_calls([dataclasses.replace(CALL, scale_rule="NKI")])
    found = simulate(LOWERED, {"x": BITS}, scale_rule="NKI")
    np.testing.assert_array_equal(found["scale"], simulate(nki, {"x": BITS})["scale"])
    assert not np.array_equal(found["scale"], simulate(LOWERED, {"x": BITS})["scale"])


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ({}, {}, "sg0000 wants a value for its input x"),
        ({"x": BITS, "z": BITS}, {}, "sg0000 has no input z; its inputs are x"),
        (
            {"x": BITS[:2]},
            {},
            "input x is uint16[2, 32], wanted bfloat16[4, 32] or its bits as uint16",
        ),
        (
            {"x": BITS.view(np.float16)},
            {},
            "input x is float16[4, 32], wanted bfloat16[4, 32] or its bits as uint16",
        ),
        ({"x": BITS}, {"function": "main"}, "the module has no function main; it has sg0000"),
        (
            {"x": BITS},
            {"scale_rule": "CEIL"},
            "the scale rule is CEIL; wanted EMAX, EMAX_ALT, NKI, OCP_FLOOR or jax_mx's rule of that name",
        ),
    ],
)
def test_arguments_that_do_not_fit(inputs: dict[str, np.ndarray], options: dict[str, str], message: str) -> None:
    with pytest.raises(SimulationError) as caught:
        simulate(LOWERED, inputs, **options)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_one_function_of_several_must_be_named() -> None:
    with pytest.raises(SimulationError, match="the module has the functions sg0000, sg0001; say which one"):
        simulate(lower_calls([CALL, CALL]), {"x": BITS})


def test_opcodes_the_simulator_does_not_run() -> None:
    function = LOWERED.functions[0]
    instructions = tuple(function.instructions())
    other = dataclasses.replace(instructions[0], opcode="Activation")
    with pytest.raises(SimulationError) as caught:
        simulate(module_of(function.allocations, (other, *instructions[1:])), {"x": BITS})
    name = instructions[0].name
    assert str(caught.value) == f"{name} is a Activation; the simulator runs Memset, Load, Save, QuantizeMx"


def test_a_module_that_breaks_rules_is_not_run() -> None:
    with pytest.raises(VerificationError) as caught:
        simulate(dataclasses.replace(LOWERED, arch="core_v5"), {"x": BITS})
    assert str(caught.value).splitlines() == [
        "the program breaks the rules: 1 violation",
        "[367] QuantizeMX-0: found arch level 50, wanted arch level 40 (core_v4) or earlier",
    ]


def test_out_of_range_access_is_refused_with_instruction_and_address() -> None:
    into = pattern("t", "uint16", ((8, 6), (2, 4)), offset=8)
    with pytest.raises(VerificationError) as caught:
        simulate(copy_module(into, into), {"x": X})
    assert "[access] Load-0, outs[0]: found partition 6 is outside SB location t, wanted 0 to 5" in str(caught.value)
    with pytest.raises(AccessError):
        resolve(into, sbuf("t", "uint16", 8, 0, 6).memorylocations[0])
