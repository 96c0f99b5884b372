"""What a rule is: one row of a table, and how a table of them judges one call.

A rule states when it is broken, why, and what to do. Rules are pure functions of a call's facts. A rule that cannot be
judged, because an earlier one is broken (no shape rule without a dimension), says it is not broken.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lowering.calls import Call
from lowering.diagnostics import Diagnostic, Severity


class Target(enum.StrEnum):
    """The generation of hardware a module is compiled for."""

    TRN2 = "trn2"
    TRN3 = "trn3"

    @property
    def core(self) -> str:
        """The core's name; any MX quantize needs core_v4."""
        return {Target.TRN2: "core_v3", Target.TRN3: "core_v4"}[self]


F = TypeVar("F")


@dataclass(frozen=True)
class Rule(Generic[F]):
    """One row.

    Attributes:
        code: The diagnostic's code.
        broken: Whether the facts break the rule.
        cause: What is wrong, with the values found.
        resolution: What to do about it.
        severity: Error unless said otherwise.
    """

    code: str
    broken: Callable[[F], bool]
    cause: Callable[[F], str]
    resolution: str
    severity: Severity = Severity.ERROR


@dataclass(frozen=True)
class Violation:
    """A rule that a call breaks, with the cause spelled out; the same for all calls that say the same."""

    severity: Severity
    code: str
    cause: str
    resolution: str

    def at(self, call: Call) -> Diagnostic:
        """Returns the diagnostic for one call."""
        return Diagnostic(
            severity=self.severity,
            code=self.code,
            cause=self.cause,
            resolution=self.resolution,
            instruction=call.name,
            shapes=call.shapes,
            location=call.location,
        )


def judge(rules: Sequence[Rule[F]], facts: F) -> tuple[Violation, ...]:
    """Returns every rule that the facts break, errors first, in the order of the codes."""
    found = [Violation(r.severity, r.code, r.cause(facts), r.resolution) for r in rules if r.broken(facts)]
    return tuple(sorted(found, key=lambda v: (v.severity is not Severity.ERROR, v.code)))
