"""What a verifier rule is: a code, the operands it speaks of, what must hold, and a check.

A check returns what it found when the rule is broken, and None when it holds; the driver turns that into a
`Violation`. Rules never see operands in DRAM, where partitions have no meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from lowering.bir.geometry import CORE_V4
from lowering.bir.program import AccessPattern, Instruction, MemoryLocation

__all__ = ["OperandView", "Rule", "Scene", "Violation", "apply_rules", "dtype_in", "in_sbuf", "start_at_most"]


@dataclass(frozen=True)
class Violation:
    """One broken rule.

    Attributes:
        code: The compiler's number for the rule, or a word for this project's own.
        instruction: Name of the instruction, or of the function for whole-function rules.
        operand: The operand or key at fault, empty when it is the instruction itself.
        found: What is there.
        wanted: What must be there.
    """

    code: str
    instruction: str
    operand: str
    found: str
    wanted: str

    def __str__(self) -> str:
        subject = f"{self.instruction}, {self.operand}" if self.operand else self.instruction
        return f"[{self.code}] {subject}: found {self.found}, wanted {self.wanted}"


@dataclass(frozen=True)
class OperandView:
    """An operand in memory, with the numbers the rules ask for."""

    pattern: AccessPattern
    location: MemoryLocation

    @property
    def start_partition(self) -> int:
        """First partition, counted in the whole memory."""
        return self.location.base + self.pattern.offset // max(self._pitch, 1)

    @property
    def start_byte(self) -> int:
        """First byte in that partition."""
        place = self.pattern.offset % max(self._pitch, 1)
        return self.location.addr + place * self.pattern.dtype.bytes

    @property
    def partitions(self) -> int:
        """Count of the partition pair."""
        return self.pattern.ap[0][1] if self.pattern.ap else 0

    @property
    def free(self) -> tuple[tuple[int, int], ...]:
        """The pairs inside a partition."""
        return self.pattern.ap[1:]

    @property
    def units(self) -> int:
        """Units of the dtype in one partition."""
        return prod(num for _, num in self.free)

    @property
    def elements(self) -> int:
        """MX elements in one partition: containers count as four."""
        return self.units * self.pattern.dtype.elements

    @property
    def _pitch(self) -> int:
        return self.location.dims[1] // self.pattern.dtype.bytes


@dataclass(frozen=True)
class Scene:
    """What a rule looks at: one instruction, its operands by role, and the module's settings."""

    arch: int
    instruction: Instruction
    operands: Mapping[str, OperandView]
    allow_fp4: bool


@dataclass(frozen=True)
class Rule:
    """One row of a rule table."""

    code: str
    operands: tuple[str, ...]
    wanted: str
    check: Callable[[Scene], str | None]


def apply_rules(rules: Sequence[Rule], scene: Scene) -> list[Violation]:
    """Every violation of `rules`, in table order."""
    violations = []
    for rule in rules:
        in_dram = any(scene.operands[role].location.type == "DRAM" for role in rule.operands)
        if in_dram and rule.code != "310":
            continue  # 310 reports the operand; its partitions mean nothing
        found = rule.check(scene)
        if found is not None:
            roles = " and ".join(rule.operands)
            violations.append(Violation(rule.code, scene.instruction.name, roles, found, rule.wanted))
    return violations


def in_sbuf(role: str) -> Rule:
    """310: the operand lives in SBUF."""

    def check(scene: Scene) -> str | None:
        kind = scene.operands[role].location.type
        return None if kind == "SB" else f"memory type {kind}"

    return Rule("310", (role,), "memory type SB", check)


def dtype_in(role: str, names: Sequence[str]) -> Rule:
    """The operand has one of the dtypes `names`."""

    def check(scene: Scene) -> str | None:
        name = scene.operands[role].pattern.dtype.name
        return None if name in names else f"dtype {name}"

    return Rule("dtype", (role,), f"dtype {' or '.join(names)}", check)


def start_at_most(code: str, role: str, *, multiple_of: int = 1) -> Rule:
    """A scale starts in the first half of its quadrant, optionally at a multiple of some partitions."""

    def check(scene: Scene) -> str | None:
        start = scene.operands[role].start_partition
        inside = start % CORE_V4.quadrant
        return None if inside < 16 and inside % multiple_of == 0 else f"start partition {start}"

    multiple = f" and divisible by {multiple_of}" if multiple_of > 1 else ""
    return Rule(code, (role,), f"start partition % 32 below 16{multiple}", check)
