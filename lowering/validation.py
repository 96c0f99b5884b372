"""Runs a module before and after legalization and compares the results byte for byte."""

from dataclasses import dataclass
from pathlib import Path

from lowering.diagnostics import LoweringError
from lowering.legalize_quantize_mx import LegalizeQuantizeMx
from lowering.legalize_scaled_matmul import LegalizeScaledMatmul
from lowering.module import Format
from lowering.passes import Pass, run_passes
from lowering.reading import read_module
from lowering.running import compare, execute, random_arguments
from lowering.writing import write_module

SUFFIXES = (".hlo", ".mlir", ".pb", ".mlirbc", ".export")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one module.

    Attributes:
        name: Its file.
        calls: MX calls rewritten.
        results: Arrays compared.
        verdict: `equal`, or how results differ, or why the module could not be run.
        ok: Whether the results are equal.
    """

    name: str
    calls: int
    results: int
    verdict: str
    ok: bool


def validate_module(data: bytes, name: str, *, seed: int, allow_fp4: bool) -> Outcome:
    """Runs a module as it is, then its legalized form once through HLO and once through StableHLO, and compares."""
    calls = 0
    try:
        original = read_module(data, name)
        legalized = original.clone()
        passes: list[Pass] = [LegalizeQuantizeMx(allow_fp4=allow_fp4), LegalizeScaledMatmul()]
        _, reports = run_passes(legalized, passes)
        calls = sum(r.rewritten for r in reports)
        arguments = random_arguments(original, seed)
        before = execute(original, arguments)
        for fmt in (Format.STABLEHLO_TEXT, Format.HLO_TEXT):
            after = execute(read_module(write_module(legalized, fmt), name), arguments)
            differences = compare(before, after)
            if differences:
                found = "; ".join(f"result {d.index}: {d.count} elements, {d.first}" for d in differences)
                return Outcome(
                    name=name, calls=calls, results=len(before), verdict=f"differs as {fmt}: {found}", ok=False
                )
    except LoweringError as e:
        return Outcome(name=name, calls=calls, results=0, verdict=e.diagnostics[0].headline, ok=False)
    return Outcome(name=name, calls=calls, results=len(before), verdict="equal", ok=True)


def module_files(directory: Path) -> list[Path]:
    """Returns the module files of a tree, in order."""
    return sorted(p for p in directory.rglob("*") if p.suffix in SUFFIXES and p.is_file())
