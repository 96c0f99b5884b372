"""`mx-opt inspect FILE`: a table of the module's MX calls."""

import sys
from collections.abc import Sequence

from lowering.cli import files
from lowering.cli.flags import DiagnosticsForm, Flags
from lowering.diagnostics import Severity
from lowering.inspection import format_table, inspect_module
from lowering.rules import Target

USAGE = "mx-opt inspect FILE [--target=trn2|trn3] [--allow-fp4] [--diagnostics=text|json]"


def run(arguments: Sequence[str]) -> int:
    """Prints the table; returns 1 when a call is not legal."""
    flags = Flags(USAGE)
    flags.target_options()
    flags.diagnostics_form()
    file = files.one_file(flags.parse(arguments), USAGE)
    module = files.load(files.read_input(file), file)
    rows = inspect_module(module, target=Target(flags["target"]), allow_fp4=flags["allow-fp4"])
    sys.stdout.write(format_table(rows) if rows else f"{files.display_name(file)} has no MX calls\n")
    sys.stdout.flush()  # what cannot be printed is an error of its own, which must not follow an array
    found = [d for row in rows for d in row.diagnostics]
    if flags["diagnostics"] == DiagnosticsForm.JSON:
        files.print_diagnostics(found, DiagnosticsForm.JSON)
    return 1 if any(d.severity is Severity.ERROR for d in found) else 0
