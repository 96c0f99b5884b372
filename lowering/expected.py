"""Expected diagnostics: comments in an invalid module that say what a run must report, so that it tests itself.

    // expected-error@+1 {{[NCC_EVRF041]}}
    %0:2 = stablehlo.custom_call @QuantizeMX(%x) ...

`expected-error` and `expected-warning` take a text that the diagnostic's first line must contain. `@+N`, `@-N` ties
the diagnostic to a line relative to the comment; without it the diagnostic may come from
anywhere, because one about the whole module has no line (this project's decision). Those that name a line choose first.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lowering.diagnostics import Diagnostic, Severity

_KINDS = {"expected-error": Severity.ERROR, "expected-warning": Severity.WARNING}
_COMMENT = re.compile(r"\b(expected-\w+)")
_PLACE = re.compile(r"(?:@([+-]\d+))?\s*")


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """One comment: the severity and text expected, the comment's line, and the line it speaks of (None: any)."""

    severity: Severity
    text: str
    comment_line: int
    line: int | None


def check_expected(text: str, found: Sequence[Diagnostic], name: str) -> list[Diagnostic]:
    """Returns a diagnostic for every expectation that was not met and every finding that was not expected."""
    wanted, malformed = _read(text)
    mismatches = [
        Diagnostic(
            code="MX008",
            cause=f"{name}:{line}: {problem}",
            resolution="write expected-error or expected-warning, @+N or @-N where it names a line, and {{text}}",
        )
        for line, problem in malformed
    ]
    left = list(found)
    # What says least about its diagnostic is left what the others do not name.
    for expectation in sorted(wanted, key=lambda e: (e.line is None, -len(e.text))):
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
    return _read(text)[0]


def _read(text: str) -> tuple[list[Expectation], list[tuple[int, str]]]:
    """Returns the expectations, and line and problem of every comment that is almost one."""
    found: list[Expectation] = []
    malformed: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        _, _, comment = line.partition("//")
        _, *pieces = _COMMENT.split(comment)
        for kind, rest in zip(pieces[::2], pieces[1::2], strict=True):
            where, opened, tail = rest.partition("{{")
            if not opened and not where.startswith("@"):
                continue  # a comment about expectations
            wanted, closed, _ = tail.partition("}}")
            place = _PLACE.fullmatch(where)
            if kind not in _KINDS:
                malformed.append((number, f"'{kind}' is no expectation"))
            elif not opened or not closed:
                malformed.append((number, f"the text of '{kind}' is not between {{{{ and }}}}"))
            elif place is None:
                malformed.append((number, f"'{where.strip()}' is no place for '{kind}'"))
            else:
                at = None if place[1] is None else number + int(place[1])
                found.append(Expectation(severity=_KINDS[kind], text=wanted, comment_line=number, line=at))
    return found, malformed


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
