"""Checks that hold for every instruction: names, references, access ranges, dependencies, copy shapes.

Their codes are words, not numbers: they are this project's, and most guard what the simulator then relies on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod

import numpy as np

from lowering.bir.access import Access, AccessError, locations_of, resolve
from lowering.bir.geometry import CORE_V4
from lowering.bir.program import AccessPattern, Allocation, Function, Immediate, Instruction, MemoryLocation
from lowering.bir.rules import Violation

__all__ = ["check_structure", "label"]

_OPERANDS: dict[str, tuple[int, int]] = {
    "Load": (1, 1),
    "Save": (1, 1),
    "Memset": (1, 1),
    "QuantizeMx": (1, 2),
    "MatmultMx": (4, 1),
}
"""Operands of the opcodes this package knows: ins, outs."""

_MAX_LISTED = 1 << 24

_OUTSIDE = ("ExternalInput", "ExternalOutput", "Const")

_COPIES = {"Load": ("DRAM", "SB"), "Save": ("SB", "DRAM")}
"""Memory types a copy reads and writes."""


def label(side: str, index: int) -> str:
    """How messages name an operand: "ins[0]", "outs[1]"."""
    return f"{side}[{index}]"


def check_structure(function: Function) -> list[Violation]:
    """Every structural violation of `function`, in program order."""
    locations = locations_of(function)
    holders = {place.name: item.name for item in function.allocations for place in item.memorylocations}
    violations = [*_check_names(function), *_check_locations(function)]
    order = {instruction.name: i for i, instruction in enumerate(function.instructions())}
    for i, instruction in enumerate(function.instructions()):
        violations += _check_dependencies(instruction, i, order)
        violations += _check_operand_counts(instruction)
        for side, operands in (("ins", instruction.ins), ("outs", instruction.outs)):
            for n, operand in enumerate(operands):
                if isinstance(operand, AccessPattern):
                    where = label(side, n)
                    violations += _check_access(instruction, where, operand, locations, holders)
        if instruction.opcode in _COPIES:
            violations += _check_copy(instruction, locations)
    return violations


def _check_names(function: Function) -> Iterator[Violation]:
    names = {
        "instruction": [instruction.name for instruction in function.instructions()],
        "memory location": [place.name for item in function.allocations for place in item.memorylocations],
        "allocation": [item.name for item in function.allocations],
    }
    for what, listed in names.items():
        for name, count in Counter(listed).items():
            if count > 1:
                yield Violation("name", function.name, what, f"{count} {what}s named {name}", "one of each name")


def _check_locations(function: Function) -> Iterator[Violation]:
    for item in function.allocations:
        if item.location_count != len(item.memorylocations):
            found = f"{item.location_count} for {len(item.memorylocations)} locations"
            yield Violation("location", function.name, f"{item.name}.tensorId2MemLocSize", found, "their number")
        if item.kind in _OUTSIDE:
            yield from _check_outside(function, item)
        for place in item.memorylocations:
            last = place.base + place.dims[0]
            if min(place.base, place.addr, *place.dims) < 0:
                found = f"base {place.base}, addr {place.addr}, dims {list(place.dims)}"
                yield Violation("location", function.name, place.name, found, "no negative number")
            elif place.type == "DRAM" and (place.dims[0], place.base, place.addr) != (1, 0, 0):
                found = f"base {place.base}, addr {place.addr}, dims {list(place.dims)}"
                yield Violation("location", function.name, place.name, found, "base 0, addr 0, dims [1, bytes] in DRAM")
            elif place.type in ("SB", "PSUM") and last > CORE_V4.partitions:
                found = f"partitions {place.base} to {last - 1}"
                yield Violation("location", function.name, place.name, found, f"partitions below {CORE_V4.partitions}")
            elif place.type == "SB" and place.addr + place.dims[1] > CORE_V4.sbuf_usable:
                found = f"bytes {place.addr:#x} to {place.addr + place.dims[1] - 1:#x} of each partition"
                wanted = f"bytes below {CORE_V4.sbuf_usable:#x}, the rest is reserved"
                yield Violation("location", function.name, place.name, found, wanted)


def _check_outside(function: Function, item: Allocation) -> Iterator[Violation]:
    """A tensor that comes from outside or goes there lies in DRAM, whole and in one piece."""
    kinds = [place.type for place in item.memorylocations]
    if kinds != ["DRAM"]:
        found = f"memory types {', '.join(kinds) or 'none'}"
        yield Violation("location", function.name, item.name, found, f"one DRAM location for an {item.kind}")
        return
    size, found_size = prod(item.tensor_shape) * item.dtype.bytes, item.memorylocations[0].dims[1]
    if min(item.tensor_shape, default=0) < 0 or size != found_size:
        found = f"{found_size} bytes for {item.dtype.name}{list(item.tensor_shape)}"
        yield Violation("location", function.name, item.name, found, f"{max(size, 0)} bytes")


def _check_dependencies(instruction: Instruction, index: int, order: dict[str, int]) -> Iterator[Violation]:
    for name, _ in instruction.dependencies:
        if order.get(name, index) >= index:
            found = "itself or a later instruction" if name in order else "no instruction"
            yield Violation(
                "dependency", instruction.name, "dependencies", f"{name}, {found}", "the name of an earlier instruction"
            )


def _check_operand_counts(instruction: Instruction) -> Iterator[Violation]:
    if instruction.opcode not in _OPERANDS:
        return
    ins, outs = _OPERANDS[instruction.opcode]
    for side, operands, wanted in (("ins", instruction.ins, ins), ("outs", instruction.outs, outs)):
        if len(operands) != wanted:
            yield Violation("operands", instruction.name, side, f"{len(operands)} operands", f"{wanted}")
        kind = Immediate if (instruction.opcode, side) == ("Memset", "ins") else AccessPattern
        for n, operand in enumerate(operands):
            if not isinstance(operand, kind):
                wanted_kind = "imm_value" if kind is Immediate else "physical_ap"
                found = type(operand).__name__
                yield Violation("operands", instruction.name, label(side, n), found, f"kind {wanted_kind}")


def _check_access(
    instruction: Instruction,
    where: str,
    operand: AccessPattern,
    locations: dict[str, MemoryLocation],
    holders: dict[str, str],
) -> Iterator[Violation]:
    if operand.memref not in locations:
        wanted = "the name of a memory location"
        yield Violation("reference", instruction.name, where, f"memref {operand.memref}", wanted)
        return
    if holders[operand.memref] != operand.memsetref:
        found, wanted = f"memsetref {operand.memsetref}", f"{holders[operand.memref]}, which holds {operand.memref}"
        yield Violation("reference", instruction.name, where, found, wanted)
    try:
        access = resolve(operand, locations[operand.memref])
    except AccessError as error:
        place = locations[operand.memref]
        at = f"offset {operand.offset} of {place.type} location {place.name}"
        wanted = "an access inside its memory location"
        yield Violation("access", instruction.name, where, f"{error} (at {at})", wanted)
        return
    if where.startswith("outs") and _repeats(access):
        found = f"ap {[list(pair) for pair in operand.ap]} writes an element twice"
        yield Violation("access", instruction.name, where, found, "every element written once")


def _repeats(access: Access) -> bool:
    """Whether two indices of the pattern meet the same element."""
    return any(_dims_repeat(dims) for dims in (access.partition_dims, access.free_dims))


def _dims_repeat(dims: tuple[tuple[int, int], ...]) -> bool:
    reach = 0
    for step, num in sorted((abs(step), num) for step, num in dims if num > 1):
        if step <= reach:
            break
        reach += step * (num - 1)
    else:
        return False  # each step clears all smaller ones together: no two indices can meet
    count, reach = prod(num for _, num in dims), sum(abs(step) * (num - 1) for step, num in dims)
    # More indices than places must meet somewhere; and so many of both cannot be listed, so they are refused.
    if count > reach + 1 or count > _MAX_LISTED:
        return True
    places = np.zeros(1, np.int64)
    for step, num in dims:
        places = np.add.outer(places, np.arange(num) * step).ravel()
    return len(np.unique(places)) < len(places)


def _check_copy(instruction: Instruction, locations: dict[str, MemoryLocation]) -> Iterator[Violation]:
    operands = [*instruction.ins, *instruction.outs]
    found: list[tuple[AccessPattern, MemoryLocation]] = [
        (operand, locations[operand.memref])
        for operand in operands
        if isinstance(operand, AccessPattern) and operand.memref in locations
    ]
    if len(operands) != 2 or len(found) != 2:
        return
    for where, (_, place), wanted in zip(("ins[0]", "outs[0]"), found, _COPIES[instruction.opcode], strict=True):
        if place.type != wanted:
            yield Violation("memory", instruction.name, where, f"memory type {place.type}", wanted)
    (source, _), (target, _) = found
    counts = [_count(operand) for operand in (source, target)]
    if counts[0] != counts[1]:
        yield Violation(
            "copy", instruction.name, "ins[0] and outs[0]", f"{counts[0]} and {counts[1]} elements", "equal counts"
        )
    if source.dtype.bytes != target.dtype.bytes:
        sizes = f"{source.dtype.name} of {source.dtype.bytes} bytes and {target.dtype.name} of {target.dtype.bytes}"
        yield Violation("copy", instruction.name, "ins[0] and outs[0]", sizes, "equal element sizes")


def _count(operand: AccessPattern) -> int:
    return prod(num for _, num in operand.ap)
