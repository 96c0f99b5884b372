"""Orders instructions on their engines the way their dependencies allow, one step each; for pictures, not for times.

Every instruction takes one step and starts as soon as what it waits for has ended. The vector and tensor engines run
one instruction at a time; DMA transfers run side by side, each in a lane of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowering.bir.program import DMA, EdgeKind, Instruction

__all__ = ["Slot", "schedule"]


@dataclass(frozen=True)
class Slot:
    """Where an instruction stands in the timeline.

    Attributes:
        instruction: The instruction.
        row: Name of its row: the engine, and for DMA the direction.
        lane: Lane of the row, 0 for the first.
        step: When it starts; it ends one step later.
        waits: Steps' reasons: the earlier slots it waits for.
    """

    instruction: Instruction
    row: str
    lane: int
    step: int
    waits: tuple[tuple[Slot, EdgeKind], ...]


def schedule(instructions: Sequence[Instruction]) -> list[Slot]:
    """A slot for each of `instructions`, in their order; dependencies on others than these are left out."""
    slots: dict[str, Slot] = {}
    taken: set[tuple[str, int, int]] = set()
    for instruction in instructions:
        waits = tuple((slots[name], kind) for name, kind in instruction.dependencies if name in slots)
        step = max((slot.step + 1 for slot, _ in waits), default=0)
        row, lane = _row(instruction), 0
        while (row, lane, step) in taken:
            if instruction.engine == DMA.name:
                lane += 1
            else:
                step += 1
        taken.add((row, lane, step))
        slots[instruction.name] = Slot(instruction, row, lane, step, waits)
    return list(slots.values())


def _row(instruction: Instruction) -> str:
    if instruction.engine != DMA.name:
        return instruction.engine
    return f"{DMA.name} {'in' if instruction.opcode == 'Load' else 'out'}"
