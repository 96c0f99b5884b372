"""Runs a verified BIR function on DRAM inputs: Memset, Load, Save and QuantizeMx, byte by byte as the machine would.

The scale rule is a setting of the whole module, as on the machine: taken from the module's attributes unless given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import jax_mx
from lowering.bir.access import Access, locations_of, resolve
from lowering.bir.errors import SimulationError
from lowering.bir.geometry import CORE_V4
from lowering.bir.hazards import HazardTracker
from lowering.bir.lower import SCALE_RULE_KEY
from lowering.bir.memory import Memory, copy
from lowering.bir.numerics import SCALE_RULES, ScaleRule, quantize_tile
from lowering.bir.program import (
    AccessPattern,
    Allocation,
    Function,
    Immediate,
    Instruction,
    MemoryLocation,
    Module,
    Operand,
    chosen_function,
)
from lowering.bir.scale_rules import rule_name
from lowering.bir.verify import check

__all__ = ["physical_scale", "simulate"]


def simulate(
    module: Module,
    inputs: Mapping[str, NDArray[np.generic]],
    *,
    function: Function | str | None = None,
    scale_rule: str | jax_mx.ScaleRule | None = None,
    allow_fp4: bool = False,
) -> dict[str, NDArray[np.unsignedinteger]]:
    """Runs one function and returns its outputs.

    Args:
        module: The program; it is verified first.
        inputs: A value for every ExternalInput and Const tensor, by name: its shape, and its dtype or the unsigned
            integers of its bits, in any memory order and either byte order.
        function: Which function to run, or its name; may be left out when there is one.
        scale_rule: "EMAX", "EMAX_ALT", "NKI" or "OCP_FLOOR", or `jax_mx`'s rule of that name; the module's own when
            None, else EMAX.
        allow_fp4: Accept fp4 output.

    Returns:
        Every ExternalOutput tensor by name, as unsigned integers of its element size.

    Raises:
        VerificationError: The module breaks a rule.
        SimulationError: An input does not fit, or an instruction reads bytes never written, touches bytes another
            may have in flight, or is none of the four above.
    """
    check(module, allow_fp4=allow_fp4)
    chosen = chosen_function(module, function, SimulationError)
    rule = _rule(module, scale_rule)
    memory = Memory(chosen)
    _give_inputs(chosen, memory, inputs)
    instructions = list(chosen.instructions())
    places = locations_of(chosen)
    hazards = HazardTracker(instructions, memory)
    for index, instruction in enumerate(instructions):
        if instruction.opcode not in _EXECUTE:
            known = ", ".join(_EXECUTE)
            raise SimulationError(f"{instruction.name} is a {instruction.opcode}; the simulator runs {known}")
        ins, outs = (_accesses(instruction, operands, places) for operands in (instruction.ins, instruction.outs))
        if instruction.opcode == "QuantizeMx":
            outs[1] = physical_scale(outs[1], ins[0].partitions)
        hazards.start(index)
        for access in ins:
            hazards.read(index, access)
        for access in outs:
            hazards.write(index, access)
        _EXECUTE[instruction.opcode](instruction, ins, outs, memory, rule)
    return {item.tensor: _output(item, memory) for item in chosen.allocations_of_kind("ExternalOutput")}


def _accesses(
    instruction: Instruction, operands: Sequence[Operand], places: Mapping[str, MemoryLocation]
) -> list[Access]:
    """The accesses of one side of an instruction."""
    accesses = [resolve(o, places[o.memref]) for o in operands if isinstance(o, AccessPattern)]
    for access in accesses:
        if access.location.type not in ("SB", "DRAM"):
            raise SimulationError(f"{instruction.name} touches {access.address}; only SB and DRAM are simulated")
    return accesses


def physical_scale(scale: Access, source_partitions: int) -> Access:
    """The rows a QuantizeMx writes of its scale operand: four in each quadrant of the source, and nothing else.

    Row i of [P/8, F/4] is written at partition start + (i & 3) + 32 * (i >> 2).
    """
    quadrants = source_partitions // CORE_V4.quadrant
    last = scale.partition + CORE_V4.quadrant * (quadrants - 1) + 3
    if last >= scale.location.base + scale.location.dims[0]:
        raise SimulationError(
            f"the scale rows reach partition {last}; {scale.location.name} ends at partition "
            f"{scale.location.base + scale.location.dims[0] - 1}"
        )
    return dataclasses.replace(scale, partition_dims=((CORE_V4.quadrant, quadrants), (1, 4)))


Executor = Callable[[Instruction, list[Access], list[Access], Memory, ScaleRule], None]


def _copy(instruction: Instruction, ins: list[Access], outs: list[Access], memory: Memory, rule: ScaleRule) -> None:
    copy(memory.view(outs[0]), memory.view(ins[0]))


def _memset(instruction: Instruction, ins: list[Access], outs: list[Access], memory: Memory, rule: ScaleRule) -> None:
    value = instruction.ins[0]
    if not isinstance(value, Immediate) or value.dtype != outs[0].dtype:
        raise SimulationError(f"{instruction.name}: wanted an immediate of dtype {outs[0].dtype.name}")
    memory.view(outs[0])[...] = _immediate_bits(instruction.name, value)


def _quantize(instruction: Instruction, ins: list[Access], outs: list[Access], memory: Memory, rule: ScaleRule) -> None:
    source, (data, scale) = ins[0], outs
    bits = memory.view(source).reshape(source.partitions, source.per_partition)
    codes, scales = quantize_tile(np.ascontiguousarray(bits, np.uint16), source.dtype, data.dtype, rule)
    copy(memory.view(data), codes.view(f"<u{data.dtype.bytes}"))
    copy(memory.view(scale), scales)


_EXECUTE: dict[str, Executor] = {"Memset": _memset, "Load": _copy, "Save": _copy, "QuantizeMx": _quantize}


def _immediate_bits(name: str, value: Immediate) -> int:
    """The bits of an immediate in its own dtype."""
    size = value.dtype.bytes
    if value.value == 0:
        return 0
    if value.dtype.name == "bfloat16":
        number: NDArray[np.generic] = np.array(value.value, ml_dtypes.bfloat16)
    elif value.dtype.name in ("float16", "float32"):
        number = np.array(value.value, value.dtype.name)
    elif value.dtype.name.startswith(("uint", "int")) and isinstance(value.value, int):
        limits = np.iinfo(value.dtype.name)
        if not limits.min <= value.value <= limits.max:
            raise SimulationError(f"{name}: the value {value.value} does not fit {value.dtype.name}")
        number = np.array(value.value, value.dtype.name)
    else:
        raise SimulationError(f"{name}: a nonzero {value.dtype.name} immediate {value.value} is not simulated")
    return int(number.view(f"<u{size}"))


def _rule(module: Module, rule: str | jax_mx.ScaleRule | None) -> ScaleRule:
    chosen = module.attributes.get(SCALE_RULE_KEY, "EMAX") if rule is None else rule
    return SCALE_RULES[rule_name(chosen, SimulationError)]


def _give_inputs(function: Function, memory: Memory, inputs: Mapping[str, NDArray[np.generic]]) -> None:
    if not isinstance(inputs, Mapping):
        raise SimulationError(f"the inputs are a {type(inputs).__name__}, wanted a dict of arrays by name")
    items = [*function.allocations_of_kind("ExternalInput"), *function.allocations_of_kind("Const")]
    unknown = sorted(set(inputs) - {item.tensor for item in items}, key=str)
    if unknown:
        wanted = ", ".join(item.tensor for item in items) or "none"
        raise SimulationError(f"{function.name} has no input {unknown[0]}; its inputs are {wanted}")
    for item in items:
        if item.tensor not in inputs:
            raise SimulationError(f"{function.name} wants a value for its input {item.tensor}")
        memory.give(item.memorylocations[0].name, _bytes_of(item, inputs[item.tensor]))


def _bytes_of(item: Allocation, given: object) -> NDArray[np.uint8]:
    """The bytes of an input in the machine's order."""
    bits = f"uint{8 * item.dtype.bytes}"
    wanted = f"{item.dtype.name}{list(item.tensor_shape)} or its bits as {bits}"
    if isinstance(given, np.ma.MaskedArray):
        raise SimulationError(f"input {item.tensor} is a masked array, wanted {wanted}: the machine has no masks")
    try:
        value = np.asarray(given)
    except ValueError as error:
        raise SimulationError(f"input {item.tensor} is no array ({error}), wanted {wanted}") from error
    if value.shape != item.tensor_shape or value.dtype.name not in (item.dtype.name, bits):
        raise SimulationError(f"input {item.tensor} is {value.dtype.name}{list(value.shape)}, wanted {wanted}")
    # A dtype's name does not tell the order of its bytes; the machine's memories are little-endian.
    ordered = value.astype(value.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(ordered).reshape(-1).view(np.uint8)


def _output(item: Allocation, memory: Memory) -> NDArray[np.unsignedinteger]:
    name = item.memorylocations[0].name
    missing = memory.unwritten(name)
    if missing is not None:
        raise SimulationError(f"output {item.tensor}: DRAM byte {missing:#x} was never written")
    return memory.content(name).view(f"<u{item.dtype.bytes}").reshape(item.tensor_shape)
