"""`mx-opt FILE --passes=...`: reads a module, runs passes, writes the result."""

import dataclasses
import sys
from collections.abc import Callable, Sequence

from lowering.bir.lower_to_bir import BIR_JSON, LowerToBir
from lowering.cli import files
from lowering.cli.flags import DiagnosticsForm, Flags, UsageError
from lowering.diagnostics import Diagnostic, LoweringError
from lowering.expected import check_expected
from lowering.module import Format, Module
from lowering.passes import Pass, PassReport, run_passes
from lowering.reading import InputForm, recognise
from lowering.registry import PASSES
from lowering.splitting import SEPARATOR, split
from lowering.writing import for_writing, write_module

USAGE = "mx-opt FILE [--passes=NAME,...] [--emit=hlo|hlo-proto|stablehlo|bytecode|bir-json] [-o OUT] [options]"


def declare() -> Flags:
    """Returns the command's flags."""
    flags = Flags(USAGE)
    flags.string("passes", f"Passes to run, in this order, separated by commas: {', '.join(PASSES)}.")
    flags.choice("emit", [*map(str, Format), BIR_JSON], None, "Form of the output; the family of the input by default.")
    flags.string("output", "File to write; standard output by default.", short="o")
    flags.diagnostics_form()
    flags.boolean("print-between-passes", "Print the module to standard error after every pass.")
    flags.boolean("time-passes", "Print the time of every pass to standard error.")
    flags.boolean("split-input-file", f"Treat every part between '{SEPARATOR}' lines as a module of its own.")
    flags.boolean("verify-diagnostics", "Check that exactly the diagnostics come that expected-error comments name.")
    flags.pass_options(list(PASSES))
    return flags


def run(arguments: Sequence[str]) -> int:
    """Runs the command; returns 0, or 1 when there are errors."""
    flags = declare()
    file = files.one_file(flags.parse(arguments), USAGE)
    as_json = flags["diagnostics"] == DiagnosticsForm.JSON
    mixed = next((name for name in ("time-passes", "print-between-passes") if flags[name]), None)
    if as_json and mixed is not None:
        raise UsageError(f"--{mixed} prints text to standard error, where --diagnostics=json has nothing but its array")
    names = [n.strip() for n in (flags["passes"] or "").split(",") if n.strip()]
    passes = flags.make_passes(names)
    lower_to_bir = _lower_to_bir(passes, flags["emit"])
    data = files.read_input(file)
    parts = split(data) if flags["split-input-file"] else [data]
    if len(parts) > 1 and flags["emit"] in (Format.HLO_PROTO, Format.BYTECODE, BIR_JSON):
        raise UsageError("--split-input-file writes text; use --emit=hlo or --emit=stablehlo")
    if flags["verify-diagnostics"]:
        return _verify_diagnostics(flags, file, parts, passes)
    outputs = []
    failed = False
    all_diagnostics: list[Diagnostic] = []
    for part in parts:
        try:
            module = files.load(part, file)
            diagnostics, reports = run_passes(module, passes, after_each=_printer(flags))
            if lower_to_bir is not None:
                outputs.append(lower_to_bir.emit(module))
            else:
                outputs.append(write_module(module, Format(flags["emit"] or default_format(part))))
        except LoweringError as e:
            failed = True
            all_diagnostics += e.diagnostics if flags["split-input-file"] else _with_hint(e.diagnostics, data)
            continue
        all_diagnostics += diagnostics
        if flags["time-passes"]:
            _print_times(reports)
    if not as_json:
        files.print_diagnostics(all_diagnostics, DiagnosticsForm.TEXT)
    if not failed:
        try:
            files.write_output(f"{SEPARATOR}\n".encode().join(outputs), flags["output"])
        except UsageError as e:
            e.found = all_diagnostics
            raise
    if as_json:  # now that nothing else can go wrong: one array has it all
        files.print_diagnostics(all_diagnostics, DiagnosticsForm.JSON)
    return 1 if failed else 0


def _with_hint(diagnostics: Sequence[Diagnostic], data: bytes) -> list[Diagnostic]:
    """Says how to read several modules where one could not be read and the file has more."""
    if len(split(data)) == 1:
        return list(diagnostics)
    hint = f"; give --split-input-file if the parts between '{SEPARATOR}' lines are modules of their own"
    return [
        dataclasses.replace(d, resolution=d.resolution + hint) if d.code in ("MX001", "MX002") else d
        for d in diagnostics
    ]


def default_format(data: bytes) -> Format:
    """Returns the text form of the input's family: HLO for HLO, StableHLO for everything else."""
    hlo = recognise(data) in (InputForm.HLO_TEXT, InputForm.HLO_PROTO)
    return Format.HLO_TEXT if hlo else Format.STABLEHLO_TEXT


def _lower_to_bir(passes: Sequence[Pass], emit: str | None) -> LowerToBir | None:
    """Returns the pass that makes the output, None when a module is written. Raises UsageError when they disagree."""
    last = passes[-1] if passes else None
    if emit == BIR_JSON and not isinstance(last, LowerToBir):
        raise UsageError(f"--emit={BIR_JSON} needs {LowerToBir.name} as the last pass")
    if emit != BIR_JSON and any(isinstance(p, LowerToBir) for p in passes):
        raise UsageError(f"the pass {LowerToBir.name} needs --emit={BIR_JSON}")
    return last if isinstance(last, LowerToBir) else None


def _verify_diagnostics(flags: Flags, file: str, parts: Sequence[bytes], passes: Sequence[Pass]) -> int:
    mismatches = []
    for part in parts:
        try:
            module = files.load(part, file)
            found, _ = run_passes(module, passes)
        except LoweringError as e:
            found = list(e.diagnostics)
        mismatches += check_expected(part.decode(errors="replace"), found, files.display_name(file))
    files.print_diagnostics(mismatches, flags["diagnostics"])
    return 1 if mismatches else 0


def _printer(flags: Flags) -> Callable[[Pass, Module], None] | None:
    if not flags["print-between-passes"]:
        return None

    def show(after: Pass, module: Module) -> None:
        text = for_writing(module).mlir.operation.get_asm()
        sys.stderr.write(f"// ----- after {after.name} -----\n{text}\n")

    return show


def _print_times(reports: Sequence[PassReport]) -> None:
    for report in reports:
        sys.stderr.write(f"{report.seconds:10.6f} s  {report.name}: {report.rewritten} calls\n")
