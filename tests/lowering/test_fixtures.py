"""Every fixture tests itself: its RUN line is run, its CHECK lines are matched, what is committed is what is made."""

import sys
from pathlib import Path

import jax
import pytest

from hlo_fixtures import generate
from hlo_fixtures.programs import PROGRAMS, Program
from lowering import Target, inspect_module, read_module
from tests.lowering.tools import FIXTURES, filecheck, mx_opt

RUN = "// RUN: mx-opt %s "
WRITTEN_BY = (FIXTURES / "VERSIONS").read_text().strip()
HERE = f"jax {jax.__version__}, Python {sys.version_info[0]}.{sys.version_info[1]}"


def fixtures_with_run_lines() -> list[Path]:
    return sorted(p for p in FIXTURES.rglob("*") if p.suffix in (".hlo", ".mlir") and RUN in p.read_text())


def test_all_programs_have_a_fixture() -> None:
    assert {p.stem for p in (FIXTURES / "valid").glob("*") if ".legalized" not in p.name} == {p.name for p in PROGRAMS}
    assert len(PROGRAMS) >= 6


@pytest.mark.parametrize("path", fixtures_with_run_lines(), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_run_line(path: Path, tmp_path: Path) -> None:
    command = next(line for line in path.read_text().splitlines() if line.startswith(RUN)).removeprefix(RUN)
    result = mx_opt(path, *command.split())
    assert (result.status, result.stderr) == (0, "")
    output = tmp_path / "output"
    output.write_bytes(result.stdout)
    assert filecheck(path, output) == ""


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_committed_legalized_form_is_what_the_passes_make(program: Program) -> None:
    directory, ending = FIXTURES / "valid", generate.suffix(program)
    module = (directory / f"{program.name}{ending}").read_text()
    committed = (directory / f"{program.name}.legalized{ending}").read_bytes()
    assert generate.legalize(module, program) == committed


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_committed_module_is_what_jax_makes(program: Program) -> None:
    """Byte for byte with the jax that wrote the fixtures; another jax lowers differently, but to the same calls."""
    committed = (FIXTURES / "valid" / f"{program.name}{generate.suffix(program)}").read_text()
    made = generate.header(program) + generate.lower(program)
    if HERE == WRITTEN_BY:
        assert made == committed
    assert calls(made) == calls(committed)
    assert len(calls(made)) >= 1


def calls(text: str) -> list[tuple[str, ...]]:
    """Returns what each MX call of a module says, its name aside; sorted, since computations may be ordered anew."""
    rows = inspect_module(read_module(text), target=Target.TRN3, allow_fp4=True)
    return sorted((r.operand, r.dtype, r.axis, r.block_size, r.data, r.scale, r.verdict) for r in rows)
