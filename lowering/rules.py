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


def judge(rules: Sequence[Rule[F]], facts: F, call: Call) -> list[Diagnostic]:
    """Returns a diagnostic for every rule that the call breaks, in the order of the codes."""
    found = [
        Diagnostic(
            severity=rule.severity,
            code=rule.code,
            cause=rule.cause(facts),
            resolution=rule.resolution,
            instruction=call.name,
            shapes=call.shapes,
            location=call.location,
        )
        for rule in rules
        if rule.broken(facts)
    ]
    return sorted(found, key=lambda d: (d.severity is not Severity.ERROR, d.code))
