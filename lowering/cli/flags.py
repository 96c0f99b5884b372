"""Flags of one command: absl parses them, pass options become flags from the passes' own dataclass fields.

Each command has its own absl `FlagValues`, so commands do not share flags and nothing is registered globally.
"""

import dataclasses
import enum
import sys
from collections.abc import Iterable, Sequence
from typing import Any, get_type_hints

from absl import flags

from lowering.diagnostics import Diagnostic
from lowering.legalize_quantize_mx import LegalizeQuantizeMx
from lowering.passes import Pass
from lowering.registry import PASSES

_RESOLUTIONS = {
    "MX001": "name a file that can be read",
    "MX017": "correct the command line; --help shows what there is",
    "MX019": "name an output that can be written",
}


class UsageError(Exception):
    """The command line makes no sense, or names files that cannot be opened; exit status 2.

    Attributes:
        code: Code of the diagnostic that it becomes where diagnostics are JSON.
        found: What was found about the module before; printed with it there.
    """

    def __init__(self, message: str, code: str = "MX017"):
        self.code = code
        self.found: Sequence[Diagnostic] = ()
        super().__init__(message)

    def diagnostic(self) -> Diagnostic:
        """Returns the error as a diagnostic, without the lines that show how the command is called."""
        cause, _, _ = str(self).partition("\nusage:")
        return Diagnostic(code=self.code, cause=cause, resolution=_RESOLUTIONS[self.code])


class DiagnosticsForm(enum.StrEnum):
    """How diagnostics are printed."""

    TEXT = "text"
    JSON = "json"


class Flags:
    """The flags of one command.

    Attributes:
        usage: The line that shows how the command is called.
    """

    def __init__(self, usage: str):
        self.usage = usage
        self._values = flags.FlagValues()

    def boolean(self, name: str, doc: str) -> None:
        """Declares a switch, off unless given."""
        flags.DEFINE_boolean(name, False, doc, flag_values=self._values)

    def string(self, name: str, doc: str, short: str | None = None) -> None:
        """Declares a flag that takes a text."""
        flags.DEFINE_string(name, None, doc, flag_values=self._values, short_name=short)

    def integer(
        self, name: str, default: int, doc: str, minimum: int | None = None, maximum: int | None = None
    ) -> None:
        """Declares a flag that takes a number, within these bounds when they are given."""
        flags.DEFINE_integer(name, default, doc, lower_bound=minimum, upper_bound=maximum, flag_values=self._values)

    def choice(self, name: str, choices: Sequence[str], default: str | None, doc: str) -> None:
        """Declares a flag that takes one of a few words."""
        flags.DEFINE_enum(name, default, list(choices), doc, flag_values=self._values)

    def strings(self, name: str, doc: str) -> None:
        """Declares a flag that may be repeated."""
        flags.DEFINE_multi_string(name, [], doc, flag_values=self._values)

    def diagnostics_form(self) -> None:
        """Declares in which form diagnostics come, for the commands in `mx_opt.JSON_COMMANDS`."""
        doc = "How diagnostics are printed; json is one array on standard error, errors of usage included."
        self.choice("diagnostics", [str(f) for f in DiagnosticsForm], str(DiagnosticsForm.TEXT), doc)

    def target_options(self) -> None:
        """Declares what calls are validated for: `target` and `allow-fp4`, as the legalization has them."""
        self._declare([o for o in options_of(LegalizeQuantizeMx) if o.field in ("target", "allow_fp4")])

    def parse(self, arguments: Sequence[str]) -> list[str]:
        """Parses; returns what is not a flag. Raises UsageError, or SystemExit(0) after printing `--help`."""
        if any(a in ("--help", "-h", "-help") for a in arguments):
            sys.stdout.write(self.help())
            raise SystemExit(0)
        try:
            return list(self._values(["mx-opt", *arguments]))[1:]
        except flags.Error as e:
            raise UsageError(f"{e}\nusage: {self.usage}") from None

    def __getitem__(self, name: str) -> Any:
        """The value of a flag."""
        return self._values[name].value

    def help(self) -> str:
        """Returns the usage line and every flag with its documentation."""
        lines = [f"usage: {self.usage}"]
        for name in sorted(self._values):
            flag = self._values[name]
            if name == flag.name:
                short = f", -{flag.short_name}" if flag.short_name else ""
                lines.append(f"  --{name}{short}: {flag.help}")
        return "\n".join(lines) + "\n"

    def pass_options(self, names: Sequence[str]) -> None:
        """Declares the options of these passes, one flag for options of the same name."""
        self._declare(pass_options(names).values())

    def _declare(self, options: Iterable["PassOption"]) -> None:
        for option in options:
            if option.choices:
                self.choice(option.flag, option.choices, str(option.default), option.doc)
            elif option.kind is int:
                self.integer(option.flag, option.default, option.doc, *option.bounds)
            else:
                self.boolean(option.flag, option.doc)

    def make_passes(self, names: Sequence[str]) -> list[Pass]:
        """Returns the passes with their options set from the flags. Raises UsageError for an unknown pass."""
        unknown = [n for n in names if n not in PASSES]
        if unknown:
            raise UsageError(f"unknown pass '{unknown[0]}'; the passes are {', '.join(PASSES)}")
        return [self._make(PASSES[name]) for name in names]

    def _make(self, cls: type[Pass]) -> Pass:
        values = {o.field: o.value(self[o.flag]) for o in options_of(cls) if o.flag in self._values}
        return cls(**values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PassOption:
    """A dataclass field of a pass, seen as a flag.

    Attributes:
        field: Name of the field.
        default: Its default.
        doc: Its documentation.
        kind: Its type: bool, int or an enum of words.
        bounds: The least and the greatest value of an int, None for any.
    """

    field: str
    default: Any
    doc: str
    kind: Any
    bounds: tuple[int | None, int | None] = (None, None)

    @property
    def flag(self) -> str:
        """The flag's name; a switch that is on by default is turned off with `no-`."""
        name = self.field.replace("_", "-")
        return f"no-{name}" if self.default is True else name

    @property
    def choices(self) -> list[str]:
        """The words that the flag takes, none for a switch."""
        return [str(c) for c in self.kind] if issubclass(self.kind, enum.Enum) else []

    def value(self, flag: Any) -> Any:
        """Returns the field's value for the flag's."""
        if self.choices:
            return self.kind(flag)
        if self.kind is int:
            return flag
        return not flag if self.default is True else flag


def options_of(cls: type[Pass]) -> list[PassOption]:
    """Returns the options of a pass from its dataclass fields."""
    hints = get_type_hints(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    return [
        PassOption(
            field=f.name,
            default=f.default,
            doc=f.metadata["doc"],
            kind=hints[f.name],
            bounds=f.metadata.get("range", (None, None)),
        )
        for f in fields
    ]


def pass_options(names: Sequence[str]) -> dict[str, PassOption]:
    """Returns the options of several passes by flag name, equal ones once."""
    return {o.flag: o for name in names for o in options_of(PASSES[name])}
