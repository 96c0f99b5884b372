"""Small BIR programs written out by hand, for tests to break in one place at a time."""

import dataclasses
from typing import Any

from lowering.bir.dtypes import Dtype, dtype_named
from lowering.bir.program import (
    AccessPattern,
    Allocation,
    Block,
    Function,
    Instruction,
    MemoryLocation,
    Module,
    Operand,
)

Pairs = tuple[tuple[int, int], ...]


def allocation(
    name: str, kind: str, dtype: str, shape: tuple[int, ...], memory: str, dims: tuple[int, int], addr: int = 0
) -> Allocation:
    place = MemoryLocation(name, memory, addr, dims)
    return Allocation(f"{name}_set", kind, dtype_named(dtype), shape, (place,))


def sbuf(name: str, dtype: str, units: int, addr: int, partitions: int = 128) -> Allocation:
    size = units * dtype_named(dtype).bytes
    return allocation(name, "Internal", dtype, (partitions, units), "SB", (partitions, size), addr)


def pattern(name: str, dtype: str, ap: Pairs, offset: int = 0) -> AccessPattern:
    return AccessPattern(name, f"{name}_set", dtype_named(dtype), ap, offset)


def module_of(
    allocations: tuple[Allocation, ...], instructions: tuple[Instruction, ...], arch: str = "core_v4"
) -> Module:
    return Module((Function("sg0000", allocations, (Block("Block1", instructions),)),), arch=arch)


def with_instruction(module: Module, **changes: Any) -> Module:
    """`module`, whose only instruction gets `changes`."""
    function = module.functions[0]
    instruction = dataclasses.replace(next(function.instructions()), **changes)
    return module_of(function.allocations, (instruction,), module.arch)


def with_operand(module: Module, side: str, index: int, **changes: Any) -> Module:
    """`module`, whose only instruction has one operand changed."""
    instruction = next(module.functions[0].instructions())
    operands: list[Operand] = list(getattr(instruction, side))
    operands[index] = dataclasses.replace(operands[index], **changes)
    return with_instruction(module, **{side: tuple(operands)})


def with_location(module: Module, name: str, **changes: Any) -> Module:
    """`module`, with one memory location changed."""
    function = module.functions[0]
    allocations = tuple(
        dataclasses.replace(
            item,
            memorylocations=tuple(
                dataclasses.replace(place, **changes) if place.name == name else place for place in item.memorylocations
            ),
        )
        for item in function.allocations
    )
    return dataclasses.replace(module, functions=(dataclasses.replace(function, allocations=allocations),))


def dtype(name: str) -> Dtype:
    return dtype_named(name)


SRC_PITCH, DATA_PITCH, SCALE_PITCH = 64, 16, 16


def quantize_module() -> Module:
    """One QuantizeMx of a 32 x 8 bf16 tile; its three locations are 128 partitions high and wider than needed."""
    allocations = (
        sbuf("src", "bfloat16", SRC_PITCH, 0),
        sbuf("data", "float8_e4m3fn_x4", DATA_PITCH, 128),
        sbuf("scale", "uint8", SCALE_PITCH, 192),
    )
    quantize = Instruction(
        "QuantizeMx",
        "QuantizeMX-0",
        "DVE",
        5,
        "Internal",
        (pattern("src", "bfloat16", ((SRC_PITCH, 32), (1, 8))),),
        (
            pattern("data", "float8_e4m3fn_x4", ((DATA_PITCH, 32), (1, 2))),
            pattern("scale", "uint8", ((SCALE_PITCH, 4), (1, 2))),
        ),
    )
    return module_of(allocations, (quantize,))


def matmult_module() -> Module:
    """One MatmultMx: ifmap [64, 8 containers] and weights [64, 4 containers] into PSUM [4, 8] float32."""
    allocations = (
        sbuf("ifmap", "float8_e4m3fn_x4", 5000, 0),
        sbuf("weights", "float8_e4m3fn_x4", 200, 20000),
        sbuf("ifmap_scale", "uint8", 5000, 20800),
        sbuf("weights_scale", "uint8", 200, 25800),
        allocation("out", "Internal", "float32", (128, 5000), "PSUM", (128, 20000)),
    )
    matmult = Instruction(
        "MatmultMx",
        "MatmultMX-0",
        "PE",
        3,
        "Internal",
        (
            pattern("ifmap", "float8_e4m3fn_x4", ((5000, 64), (1, 8))),
            pattern("weights", "float8_e4m3fn_x4", ((200, 64), (1, 4))),
            pattern("ifmap_scale", "uint8", ((5000, 64), (1, 8))),
            pattern("weights_scale", "uint8", ((200, 64), (1, 4))),
        ),
        (pattern("out", "float32", ((5000, 4), (1, 8))),),
    )
    return module_of(allocations, (matmult,))
