"""`mx-opt explain FILE`: what passes do with every MX call and near miss, and why not."""

import sys
from collections.abc import Sequence

from lowering.cli import files
from lowering.cli.flags import DiagnosticsForm, Flags
from lowering.diagnostics import Severity
from lowering.explaining import explain_module
from lowering.rules import Target

USAGE = "mx-opt explain FILE [--target=trn2|trn3] [--allow-fp4] [--diagnostics=text|json]"


def run(arguments: Sequence[str]) -> int:
    """Prints the findings; returns 1 when one of them is an error."""
    flags = Flags(USAGE)
    flags.target_options()
    flags.diagnostics_form()
    file = files.one_file(flags.parse(arguments), USAGE)
    module = files.load(files.read_input(file), file)
    found = explain_module(module, target=Target(flags["target"]), allow_fp4=flags["allow-fp4"])
    for diagnostic in found:
        sys.stdout.write(f"{diagnostic}\n")
    if not found:
        sys.stdout.write(f"{files.display_name(file)} has no MX calls and nothing like one\n")
    sys.stdout.flush()  # what cannot be printed is an error of its own, which must not follow an array
    if flags["diagnostics"] == DiagnosticsForm.JSON:
        files.print_diagnostics(found, DiagnosticsForm.JSON)
    return 1 if any(d.severity is Severity.ERROR for d in found) else 0
