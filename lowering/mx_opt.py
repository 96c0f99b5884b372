"""`mx-opt`: the command line of this package. Commands are in `lowering.cli`; this file only chooses one.

Exit status: 0 when all is well, 1 when there are diagnostics, 2 when the command line makes no sense.
"""

import faulthandler
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
from absl import app, flags, logging

import jax_mx
from jax_mx._implementation import ENVIRONMENT_VARIABLE
from lowering.bir import cli as bir
from lowering.cli import convert, explain, inspect, isolation, optimize, passes, rules, run, validate
from lowering.cli.files import print_diagnostics
from lowering.cli.flags import DiagnosticsForm, UsageError
from lowering.diagnostics import Diagnostic, LoweringError

COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "bir": bir.run,
    "convert": convert.run,
    "explain": explain.run,
    "inspect": inspect.run,
    "passes": passes.run,
    "rules": rules.run,
    "run": run.run,
    "validate": validate.run,
}
"""Commands by name; anything else is a file for `optimize`."""

JSON_COMMANDS = ("explain", "inspect")
"""The commands that have `--diagnostics`, as `optimize` has."""

_USAGE = f"""\
usage: {optimize.USAGE}
       {bir.USAGE}
       {convert.USAGE}
       {explain.USAGE}
       {inspect.USAGE}
       {passes.USAGE}
       {rules.USAGE}
       {run.USAGE}
       {validate.USAGE}
"""

_HELP = ("--help", "-help", "-h", "help")


def run_command(arguments: Sequence[str]) -> int:
    """Runs `mx-opt` with these arguments, the program's name not among them; returns the exit status."""
    try:
        try:
            return _run_reporting(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as e:
        if e.filename is not None:
            raise
        # Commands say themselves what they cannot read or write; what is left is the stream that all print to.
        return _refuse(UsageError(f"cannot write standard output: {e.strerror or e}", "MX019"), arguments)


def _run_reporting(arguments: Sequence[str]) -> int:
    """Runs a command and prints what it refuses to standard error."""
    try:
        _check_environment()
        if not arguments:
            raise UsageError(f"nothing to do\n{_USAGE}")
        first, *others = arguments
        if first in _HELP:
            sys.stdout.write(f"{_USAGE}\n{optimize.declare().help()}")
            return 0
        if first == "--version":
            sys.stdout.write(f"mx-opt {jax_mx.__version__}\n")
            return 0
        if first in COMMANDS:
            return COMMANDS[first](others)
        if _is_mistyped(first):
            known = ", ".join(COMMANDS)
            raise UsageError(f"{first} is neither a file nor a command; the commands are {known}\n{_USAGE}")
        return optimize.run(arguments)
    except UsageError as e:
        return _refuse(e, arguments)
    except LoweringError as e:
        print_diagnostics(e.diagnostics, diagnostics_form(arguments))
        return 1


def _refuse(error: UsageError, arguments: Sequence[str]) -> int:
    form = diagnostics_form(arguments)
    if form is DiagnosticsForm.JSON:
        print_diagnostics([*error.found, error.diagnostic()], form)
    else:
        sys.stderr.write(f"mx-opt: {error}\n")
    return 2


def diagnostics_form(arguments: Sequence[str]) -> DiagnosticsForm:
    """Returns the form of diagnostics that a command line asks for, one too that cannot be parsed."""
    form = DiagnosticsForm.TEXT
    first = arguments[0] if arguments else ""
    if first in _HELP or (first in COMMANDS and first not in JSON_COMMANDS):
        return form
    for argument, following in zip(arguments, [*arguments, ""][1:], strict=True):
        if argument == "--":
            break
        flag, _, value = argument.partition("=")
        if flag.startswith("-") and flag.lstrip("-") == "diagnostics":
            value = value or following
            form = DiagnosticsForm(value) if value in list(DiagnosticsForm) else form
    return form


def _is_mistyped(first: str) -> bool:
    """Whether a first argument looks more like a command than like a file that is not there."""
    return not (first.startswith("-") or "/" in first or "." in first or Path(first).exists())


def _check_environment() -> None:
    """Raises UsageError when the environment asks for an implementation that there is not."""
    if not os.environ.get(ENVIRONMENT_VARIABLE):
        return  # looking for the kernels takes time
    try:
        jax_mx.implementation()
    except (ValueError, RuntimeError) as e:
        raise UsageError(str(e)) from None


def console_main() -> None:
    """Entry point of the console script."""
    _open_missing_streams()
    sys.exit(isolation.run_isolated(_run_under_absl, lambda crash: report_crash(crash, sys.argv[1:])))


def _open_missing_streams() -> None:
    """Gives Python the streams that the shell closed: nothing to read, and errors for what is written."""
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open()  # noqa: SIM115  it lives as long as the process
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115


def report_crash(crash: Diagnostic, arguments: Sequence[str]) -> None:
    """Prints the diagnostic about a crash in the form that these arguments ask for."""
    print_diagnostics([crash], diagnostics_form(arguments))


def _run_under_absl() -> int:
    # Only the CPU is ever used; looking for other devices takes time and prints log lines.
    jax.config.update("jax_platforms", "cpu")
    logging.set_verbosity(logging.WARNING)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may have characters that the terminal has not
    status = 0

    def command(argv: Sequence[str]) -> int:
        nonlocal status
        # absl prints Python frames when a signal ends the process; the parent has a diagnostic for that.
        faulthandler.disable()
        status = run_command(argv[1:])
        return status

    app.run(command, flags_parser=_leave_flags_to_the_command)
    return status


def _leave_flags_to_the_command(argv: Sequence[str]) -> list[str]:
    flags.FLAGS.mark_as_parsed()
    return list(argv)


if __name__ == "__main__":
    console_main()
