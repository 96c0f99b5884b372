"""`mx-opt`: the command line of this package. Commands are in `lowering.cli`; this file only chooses one.

Exit status: 0 when all is well, 1 when there are diagnostics, 2 when the command line makes no sense.
"""

import faulthandler
import sys
from collections.abc import Callable, Sequence

import jax
from absl import app, flags, logging

from lowering.bir import cli as bir
from lowering.cli import convert, explain, inspect, isolation, optimize, passes, rules, run, validate
from lowering.cli.files import DiagnosticsForm, print_diagnostics
from lowering.cli.flags import UsageError
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


def run_command(arguments: Sequence[str]) -> int:
    """Runs `mx-opt` with these arguments, the program's name not among them; returns the exit status."""
    try:
        if not arguments:
            raise UsageError(f"nothing to do\n{_USAGE}")
        if arguments[0] in COMMANDS:
            return COMMANDS[arguments[0]](arguments[1:])
        return optimize.run(arguments)
    except UsageError as e:
        sys.stderr.write(f"mx-opt: {e}\n")
        return 2
    except LoweringError as e:
        for diagnostic in e.diagnostics:
            sys.stderr.write(f"{diagnostic}\n")
        return 1


def console_main() -> None:
    """Entry point of the console script."""
    sys.exit(isolation.run_isolated(_run_under_absl, lambda crash: report_crash(crash, sys.argv[1:])))


def report_crash(crash: Diagnostic, arguments: Sequence[str]) -> None:
    """Prints the diagnostic about a crash in the form that these arguments ask for."""
    form: str = DiagnosticsForm.TEXT
    if arguments and arguments[0] not in COMMANDS:
        form = optimize.diagnostics_form(arguments)
    print_diagnostics([crash], form)


def _run_under_absl() -> int:
    # Only the CPU is ever used; looking for other devices takes time and prints log lines.
    jax.config.update("jax_platforms", "cpu")
    logging.set_verbosity(logging.WARNING)
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
