"""Passes and the pipeline that runs them.

A pass is a frozen dataclass: its class has a `name` and a `summary`, its fields are its options, with their
documentation under "doc" in the field's metadata. Command line flags, `mx-opt passes` and pipelines are made from these
dataclasses, so they cannot drift apart. A pass takes valid IR and leaves valid IR.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from lowering.calls import forget_matches
from lowering.diagnostics import Diagnostic, LoweringError, Severity
from lowering.hlo_adapter import has_nested_tuples
from lowering.module import Module
from lowering.reading import verify


@runtime_checkable
class Pass(Protocol):
    """What the pipeline asks of a pass.

    A pass whose rewriting erases no call that another pass may have matched can say so, `keeps_calls: ClassVar[bool] =
    True`; then the others need not match again.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    def diagnose(self, module: Module) -> list[Diagnostic]:
        """Returns what is wrong with the calls that this pass would rewrite; changes nothing in the IR."""
        ...

    def rewrite(self, module: Module) -> int:
        """Rewrites the module in place; returns the number of calls rewritten."""
        ...


@dataclass(frozen=True, kw_only=True)
class PassReport:
    """What one pass did: its name, how many calls it rewrote, and how long it took in seconds."""

    name: str
    rewritten: int
    seconds: float


def run_passes(
    module: Module, passes: Sequence[Pass], *, after_each: Callable[[Pass, Module], None] | None = None
) -> tuple[list[Diagnostic], list[PassReport]]:
    """Validates for every pass, then runs them in order, in place.

    Validation comes first as a whole, so that one run reports every violation of every call of every pass, and so that
    a module with an error is not touched at all.

    Args:
        module: The module, changed in place.
        passes: The passes, in order.
        after_each: Called with each pass and the module after it ran.

    Returns:
        The warnings, and a report for each pass.

    Raises:
        LoweringError: With all diagnostics when one of them is an error.
    """
    with module.context:
        checked: list[float] = []
        diagnostics: list[Diagnostic] = []
        for p in passes:
            started = time.perf_counter()
            diagnostics += p.diagnose(module)
            checked.append(time.perf_counter() - started)
        if any(d.severity is Severity.ERROR for d in diagnostics):
            raise LoweringError(diagnostics)
        reports = []
        for p, checking in zip(passes, checked, strict=True):
            started = time.perf_counter()
            rewritten = p.rewrite(module)
            if rewritten:
                module.mark_changed()
                if not getattr(p, "keeps_calls", False):
                    forget_matches(module)
            seconds = checking + time.perf_counter() - started
            reports.append(PassReport(name=p.name, rewritten=rewritten, seconds=seconds))
            if after_each is not None:
                after_each(p, module)
        if any(r.rewritten for r in reports):
            verify(module)
    if module.changed and module.hlo_proto is not None and has_nested_tuples(module.hlo_proto):
        diagnostics.append(
            Diagnostic(
                severity=Severity.WARNING,
                code="MX015",
                cause=f"{module.name}: jaxlib flattens the entry's nested tuples on the way through StableHLO",
                resolution="expect flat parameters and results, or return a flat tuple",
            )
        )
    return diagnostics, reports
