"""Runs a module before and after legalization and compares the results byte for byte."""

from dataclasses import dataclass
from pathlib import Path

from lowering.diagnostics import LoweringError
from lowering.legalize_quantize_mx import LegalizeQuantizeMx
from lowering.legalize_scaled_matmul import LegalizeScaledMatmul
from lowering.module import Format
from lowering.passes import Pass, run_passes
from lowering.reading import read_module
from lowering.running import compare, prepare, random_arguments
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
    """Runs a module as it is, then its legalized form once through HLO and once through StableHLO, and compares.

    Each is run twice, on hostile inputs and on ordinary ones.
    """
    calls = 0
    try:
        original = read_module(data, name)
        legalized = original.clone()
        passes: list[Pass] = [LegalizeQuantizeMx(allow_fp4=allow_fp4), LegalizeScaledMatmul()]
        _, reports = run_passes(legalized, passes)
        calls = sum(r.rewritten for r in reports)
        inputs = [random_arguments(original, seed, hostile=hostile) for hostile in (True, False)]
        run_before = prepare(original)
        before = [run_before(*arguments) for arguments in inputs]
        for fmt in (Format.STABLEHLO_TEXT, Format.HLO_TEXT):
            run_after = prepare(read_module(write_module(legalized, fmt), name))
            differences = [d for a, b in zip(inputs, before, strict=True) for d in compare(b, run_after(*a))]
            if differences:
                found = "; ".join(f"result {d.index}: {d.count} elements, {d.first}" for d in differences)
                verdict = f"differs as {fmt}: {found}"
                return Outcome(name=name, calls=calls, results=len(before[0]), verdict=verdict, ok=False)
    except LoweringError as e:
        return Outcome(name=name, calls=calls, results=0, verdict=e.diagnostics[0].headline, ok=False)
    return Outcome(name=name, calls=calls, results=len(before[0]), verdict="equal", ok=True)


def module_files(directory: Path) -> list[Path]:
    """Returns the module files of a tree, in order; links to nothing among them, which cannot be read."""
    return sorted(p for p in directory.rglob("*") if p.suffix in SUFFIXES and (p.is_file() or _dangles(p)))


def other_files(directory: Path) -> list[Path]:
    """Returns the files of a tree that are no module files, in order."""
    return sorted(p for p in directory.rglob("*") if p.suffix not in SUFFIXES and p.is_file())


def _dangles(path: Path) -> bool:
    return path.is_symlink() and not path.exists()
