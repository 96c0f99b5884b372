"""Expected diagnostics: comments in an invalid module that say what a run must report, so that it tests itself.

    // expected-error@+1 {{[NCC_EVRF041]}}
    %0:2 = stablehlo.custom_call @QuantizeMX(%x) ...

`expected-error` and `expected-warning` take a text that the diagnostic's first line must contain. `@+N`, `@-N` ties
the diagnostic to a line relative to the comment; without it the diagnostic may come from
anywhere, because one about the whole module has no line (this project's decision).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lowering.diagnostics import Diagnostic, Severity

_KINDS = {"expected-error": Severity.ERROR, "expected-warning": Severity.WARNING}


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """One comment: the severity and text expected, the comment's line, and the line it speaks of (None: any)."""

    severity: Severity
    text: str
    comment_line: int
    line: int | None


def check_expected(text: str, found: Sequence[Diagnostic], name: str) -> list[Diagnostic]:
    """Returns a diagnostic for every expectation that was not met and every finding that was not expected."""
    mismatches = []
    left = list(found)
    for expectation in expectations(text):
        hit = next((d for d in left if _meets(d, expectation, text)), None)
        if hit is None:
            place = f"{name}:{expectation.comment_line}"
            mismatches.append(
                Diagnostic(
                    code="MX008",
                    cause=f"{place}: no {expectation.severity} with '{expectation.text}' came",
                    resolution="correct the module or the comment",
                )
            )
        else:
            left.remove(hit)
    for extra in left:
        mismatches.append(
            Diagnostic(
                code="MX008",
                cause=f"{name}: unexpected {extra.severity}: {extra.headline}",
                resolution="correct the module, or expect it with a comment",
                instruction=extra.instruction,
                shapes=extra.shapes,
                location=extra.location,
            )
        )
    return mismatches


def expectations(text: str) -> list[Expectation]:
    """Returns the expectations of a module's comments, in order."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        _, comment, rest = line.partition("//")
        if not comment:
            continue
        for kind, severity in _KINDS.items():
            for piece in rest.split(kind)[1:]:
                where, opened, tail = piece.partition("{{")
                wanted, closed, _ = tail.partition("}}")
                if opened and closed:
                    line_wanted = _line(where.strip(), number)
                    found.append(Expectation(severity=severity, text=wanted, comment_line=number, line=line_wanted))
    return found


def _line(where: str, comment_line: int) -> int | None:
    if not where.startswith("@"):
        return None
    offset = where[1:]
    return comment_line + int(offset) if offset[1:].isdigit() and offset[0] in "+-" else comment_line


def _meets(diagnostic: Diagnostic, expectation: Expectation, text: str) -> bool:
    if diagnostic.severity is not expectation.severity or expectation.text not in diagnostic.headline:
        return False
    return expectation.line is None or expectation.line == _line_of(diagnostic, text)


def _line_of(diagnostic: Diagnostic, text: str) -> int | None:
    """Returns the line of the module's text that a diagnostic is about: by location, else by HLO instruction name."""
    if diagnostic.location is not None and diagnostic.location.in_module:
        return diagnostic.location.line
    for number, line in enumerate(text.splitlines(), start=1):
        name, equals, _ = line.strip().removeprefix("ROOT ").partition("=")
        if equals and diagnostic.instruction and name.strip().removeprefix("%") == diagnostic.instruction:
            return number
    return None
