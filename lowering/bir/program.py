"""A BIR program as frozen dataclasses: Module, Function, Allocation, Block, Instruction and its operands.

Field names are the JSON keys, but for the two that JSON spells differently (`storage_kind` is "Skind",
`location_count` is "tensorId2MemLocSize"). Every record keeps the keys it does not know in `extra`, so that reading a
program and writing it back loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from lowering.bir.dtypes import Dtype
from lowering.bir.errors import BirError

__all__ = [
    "DMA",
    "DVE",
    "PE",
    "AccessPattern",
    "Allocation",
    "Block",
    "EdgeKind",
    "Engine",
    "Function",
    "Immediate",
    "Instruction",
    "MemoryLocation",
    "Module",
    "OpaqueOperand",
    "Operand",
    "chosen_function",
]

Extra = Mapping[str, Any]


@dataclass(frozen=True)
class Engine:
    """One engine of a NeuronCore: its JSON spelling and its number."""

    name: str
    number: int


PE = Engine("PE", 3)
DMA = Engine("DMA", 4)
DVE = Engine("DVE", 5)


class EdgeKind(IntEnum):
    """Why an instruction waits for an earlier one."""

    ORDERED = 1
    """Asked for by the program, no shared bytes."""
    ANTI = 2
    """Writes what the earlier one reads."""
    OUTPUT = 3
    """Writes what the earlier one writes."""
    FLOW = 4
    """Reads what the earlier one writes."""


@dataclass(frozen=True)
class AccessPattern:
    """An operand in memory ("physical_ap"): which elements of a location, in which order.

    Attributes:
        memref: Name of the memory location.
        memsetref: Name of the allocation that holds it.
        dtype: Dtype the bytes are read as; steps, counts and offset are in its units.
        ap: Pairs [step, num], the last fastest. The first pair is the partition pair, except in DRAM, which has none.
        offset: Units from the location's start to the first element.
    """

    memref: str
    memsetref: str
    dtype: Dtype
    ap: tuple[tuple[int, int], ...]
    offset: int
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True)
class Immediate:
    """A number inside the instruction ("imm_value")."""

    dtype: Dtype
    value: int | float
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True)
class OpaqueOperand:
    """An operand of a kind this package does not model; kept as read."""

    kind: str
    extra: Extra = field(default_factory=dict)


Operand = AccessPattern | Immediate | OpaqueOperand


@dataclass(frozen=True)
class Debug:
    """Where in the user's source an instruction comes from."""

    filename: str
    lineno: int
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        opcode: Class name, such as "QuantizeMx".
        name: Unique in its function.
        engine: Name of the engine that runs it.
        engine_id: Number of that engine; None where the program does not say.
        origin: Who made it: "Internal", "Penguin" or "NKI".
        ins: Operands read.
        outs: Operands written.
        dependencies: Earlier instructions it waits for, each with the reason.
        debug: Source file and line, when known.
        extra: Keys that belong to the opcode alone (MatmultMx has many) and unknown keys.
    """

    opcode: str
    name: str
    engine: str
    engine_id: int | None
    origin: str
    ins: tuple[Operand, ...]
    outs: tuple[Operand, ...]
    dependencies: tuple[tuple[str, EdgeKind], ...] = ()
    debug: Debug | None = None
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True)
class Block:
    """Instructions in program order."""

    name: str
    instructions: tuple[Instruction, ...]
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True)
class MemoryLocation:
    """A piece of memory.

    Attributes:
        name: What `memref` refers to.
        type: "DRAM", "SB", "PSUM" and others.
        addr: Byte offset, in every partition of SBUF or within the PSUM bank; 0 in DRAM.
        dims: Partitions and bytes per partition; [1, bytes] in DRAM.
        bank: PSUM bank.
        base: First partition.
    """

    name: str
    type: str
    addr: int
    dims: tuple[int, int]
    bank: int = 0
    base: int = 0
    allocated: bool = True
    pinned: bool = False
    tensor_id: int = 0
    storage_kind: str = field(default="memory_location", metadata={"json": "Skind"})
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True)
class Allocation:
    """A tensor and the memory it lives in; `name` is "<tensor>_set"."""

    name: str
    kind: str
    dtype: Dtype
    tensor_shape: tuple[int, ...]
    memorylocations: tuple[MemoryLocation, ...]
    partition_dim: int = 0
    addr_space: str = "Local"
    location_count: int = field(default=1, metadata={"json": "tensorId2MemLocSize"})
    storage_kind: str = field(default="memory_location_set", metadata={"json": "Skind"})
    extra: Extra = field(default_factory=dict)

    @property
    def tensor(self) -> str:
        """The tensor's name: the allocation's without its suffix."""
        return self.name.removesuffix("_set")


@dataclass(frozen=True)
class Function:
    """One function: its memory and its blocks.

    Attributes:
        name: Unique in its module; `lower_calls` names them "sg0000", "sg0001" and so on.
        allocations: Its tensors, in DRAM ("ExternalInput", "ExternalOutput", "Const") and in SBUF ("Internal").
        blocks: Its instructions, in program order.
        attributes: The compiler's attributes, kept as read.
        extra: Unknown keys.
    """

    name: str
    allocations: tuple[Allocation, ...]
    blocks: tuple[Block, ...]
    attributes: Mapping[str, Any] = field(default_factory=lambda: {"need_unroll": True})
    extra: Extra = field(default_factory=dict)

    def instructions(self) -> Iterator[Instruction]:
        """Every instruction, in program order."""
        for block in self.blocks:
            yield from block.instructions

    def allocations_of_kind(self, kind: str) -> tuple[Allocation, ...]:
        """The allocations whose kind is `kind`, in their order."""
        return tuple(allocation for allocation in self.allocations if allocation.kind == kind)


@dataclass(frozen=True)
class Module:
    """A whole BIR program.

    Attributes:
        functions: Its functions.
        arch: The core it is for, such as "core_v4", which is trn3's.
        version: Version of the format.
        attributes: The compiler's attributes; "mx_scale_rule" names the scale rule where it is not EMAX.
        extra: Unknown keys.
    """

    functions: tuple[Function, ...]
    arch: str = "core_v4"
    version: int = 2
    attributes: Mapping[str, Any] = field(default_factory=lambda: {"neuron_core_id": 0})
    extra: Extra = field(default_factory=dict)


def chosen_function(module: Module, function: Function | str | None, wrong: type[BirError]) -> Function:
    """The function of a module that a caller means.

    Args:
        module: The program.
        function: One of its functions, or the name of one; may be left out when there is one.
        wrong: The error to raise.

    Raises:
        BirError: Of the class `wrong`, when there is no such function, or None leaves it open.
    """
    names = [item.name for item in module.functions]
    known = ", ".join(names) or "none"
    if isinstance(function, Function):
        if function not in module.functions:
            raise wrong(f"the function {function.name} is not one of the module's; it has {known}")
        return function
    if function is None:
        if len(names) != 1:
            raise wrong(f"the module has the functions {known}; say which one")
        return module.functions[0]
    if function not in names:
        raise wrong(f"the module has no function {function}; it has {known}")
    return module.functions[names.index(function)]
