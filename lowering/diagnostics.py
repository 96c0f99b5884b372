"""Diagnostics: what is wrong with a module, as data first and as text second.

A diagnostic names a code, the cause, what to do about it, and the instruction with its shapes and the user's source
line. Python callers read the fields; the command line prints them. Codes of the published compiler contract keep
their names (`NCC_EVRF036` to `NCC_EVRF058`); what that contract has no code for gets one of this project's `MX` codes.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class Severity(enum.StrEnum):
    """How bad it is: an error stops the pipeline, a warning and a note do not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


MX_CODES: dict[str, str] = {
    "MX001": "the input cannot be read",
    "MX002": "the module is not valid IR",
    "MX003": "a configuration key is unknown",
    "MX004": "a call has a dynamic dimension",
    "MX005": "the module cannot be written in the wanted form",
    "MX006": "the scale rule is unknown, or said twice differently",
    "MX007": "a call cannot be executed here",
    "MX008": "an expected diagnostic did not come, or an unexpected one did",
    "MX009": "an input array does not fit the module",
    "MX010": "a near miss: almost an MX call, and no pass will touch it",
    "MX012": "jaxlib stopped the process",
    "MX013": "the element format of a scaled matmul is not one of the two it knows",
    "MX014": "a call is legal",
    "MX015": "an HLO signature with nested tuples is flattened",
    "MX016": "a call cannot be lowered to BIR",
    "MX017": "an option or argument has a value that it cannot have",
    "MX018": "a module has no calls to lower to BIR, so that the program is empty",
    "MX019": "an output cannot be written",
}
"""This project's own codes, each with what it means. The contract's codes are documented with their rules."""


@dataclass(frozen=True, kw_only=True)
class SourceLocation:
    """A line of a file.

    Attributes:
        file: Path as the module records it, or the name of the module's own file.
        line: 1-based.
        in_module: True when the line is one of the module's own text, not of the user's program.
    """

    file: str
    line: int
    in_module: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """One finding.

    Attributes:
        severity: Error, warning or note.
        code: `NCC_EVRF...` for the compiler contract's rules, `MX...` for this project's own.
        cause: What is wrong, with the values found.
        resolution: What to do about it.
        instruction: Name of the instruction in the input, empty when the finding is about the whole module.
        shapes: The instruction's shapes, as HLO spells them.
        location: The user's source line, when the module carries one.
    """

    severity: Severity = Severity.ERROR
    code: str
    cause: str
    resolution: str
    instruction: str = ""
    shapes: str = ""
    location: SourceLocation | None = None

    @property
    def message(self) -> str:
        """Cause and resolution in one line."""
        return f"{self.cause} - {self.resolution}"

    @property
    def headline(self) -> str:
        """The first printed line, without instruction and location."""
        return f"[{self.severity.upper()}] [{self.code}] {self.message}"

    def __str__(self) -> str:
        where = []
        if self.instruction:
            where.append(f"{self.instruction} = {self.shapes}" if self.shapes else self.instruction)
        if self.location is not None:
            where.append(f"at {self.location}")
        return self.headline if not where else f"{self.headline}\n    {', '.join(where)}"

    def as_dict(self) -> dict[str, object]:
        """Returns the fields as JSON types, for `--diagnostics=json`."""
        location = None if self.location is None else {"file": self.location.file, "line": self.location.line}
        return {
            "severity": str(self.severity),
            "code": self.code,
            "message": self.message,
            "cause": self.cause,
            "resolution": self.resolution,
            "instruction": self.instruction,
            "shapes": self.shapes,
            "location": location,
        }


class LoweringError(Exception):
    """A module cannot be lowered; `diagnostics` says why, every reason of every call.

    Attributes:
        diagnostics: All findings, warnings included, in the order of the module.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic]):
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(str(d) for d in self.diagnostics))


def error(code: str, cause: str, resolution: str) -> LoweringError:
    """Returns an exception with one diagnostic about the whole module."""
    return LoweringError([Diagnostic(code=code, cause=cause, resolution=resolution)])


_LONGEST_TEXT, _LONGEST_LIST = 60, 16


def shorten(found: str | Sequence[object], separator: str = ", ") -> str:
    """Spells what a module says for a cause: a module may say millions of characters, and some that cannot be printed.

    Args:
        found: A text, or items to list.
        separator: What stands between items.

    Returns:
        The text, or the listed items, without what exceeds a line or so; halves of surrogate pairs are escaped.
    """
    if isinstance(found, str):
        shown = found[:_LONGEST_TEXT].encode(errors="backslashreplace").decode()
        return shown if len(found) <= _LONGEST_TEXT else f"{shown}... ({len(found)} characters)"
    parts = [item if isinstance(item, str) else str(item) for item in found[:_LONGEST_LIST]]
    if len(found) > _LONGEST_LIST:
        parts.append(f"... ({len(found)} in all)")
    return separator.join(parts)
