"""Every fixture tests itself: its RUN line is run, its CHECK lines are matched, what is committed is what is made."""

from pathlib import Path

import pytest

from hlo_fixtures import generate
from hlo_fixtures.invalid import INVALID
from hlo_fixtures.programs import PROGRAMS, Program
from hlo_fixtures.spellings import SPELLINGS
from lowering import Target, inspect_module, read_module
from tests.lowering.tools import FIXTURES, filecheck, mx_opt

RUN = "// RUN: mx-opt %s "
ALL_PROGRAMS = (*PROGRAMS, *SPELLINGS, generate.LARGE)
WRITTEN_BY = (FIXTURES / "VERSIONS").read_text().strip()


def path_of(program: Program, infix: str = "") -> Path:
    return FIXTURES / program.directory / f"{program.name}{infix}{generate.suffix(program)}"


def fixtures_with_run_lines() -> list[Path]:
    return sorted(p for p in FIXTURES.rglob("*") if p.suffix in (".hlo", ".mlir") and RUN in p.read_text())


def test_every_fixture_runs() -> None:
    made = {path.name for path in generate.files() if path.name != "VERSIONS" and ".legalized" not in path.name}
    assert {path.name for path in fixtures_with_run_lines()} >= made
    assert len(PROGRAMS) >= 6


@pytest.mark.parametrize("path", fixtures_with_run_lines(), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_run_line(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    command = next(line for line in text.splitlines() if line.startswith(RUN)).removeprefix(RUN)
    result = mx_opt(path, *command.split())
    assert (result.status, result.stderr) == (0, "")
    if "--verify-diagnostics" in command:
        assert "// expected-error" in text
        return
    output = tmp_path / "output"
    output.write_bytes(result.stdout)
    assert filecheck(path, output) == ""


@pytest.mark.parametrize("program", [*PROGRAMS, *SPELLINGS], ids=lambda p: p.name)
def test_committed_legalized_form_is_what_the_passes_make(program: Program) -> None:
    assert generate.legalize(path_of(program).read_text(), program) == path_of(program, ".legalized").read_bytes()


@pytest.mark.parametrize("program", ALL_PROGRAMS, ids=lambda p: p.name)
def test_committed_module_is_what_jax_makes(program: Program) -> None:
    """Byte for byte with the jax that wrote the fixtures; another jax lowers differently, but to the same calls."""
    committed = path_of(program).read_text()
    made = generate.header(program) + generate.lower(program)
    if generate.versions() == WRITTEN_BY:
        assert made == committed
    assert calls(made) == calls(committed)
    assert len(calls(made)) >= 1


def test_large_model_has_200_quantize_calls() -> None:
    committed = path_of(generate.LARGE).read_text()
    found = calls(committed)
    assert sum(target == "QuantizeMX" for target, *_ in found) == 200
    assert {verdict for *_, verdict in found} == {"legal"}


@pytest.mark.parametrize("name", INVALID)
def test_committed_invalid_modules_are_what_jax_makes(name: str) -> None:
    committed = (FIXTURES / "invalid" / f"{name}.mlir").read_text()
    if generate.versions() == WRITTEN_BY:
        assert generate.invalid_file(name) == committed
    assert committed.count("// expected-error") == sum(len(case.expected) for case in INVALID[name])


def test_invalid_fixtures_cover_every_code() -> None:
    codes = {*range(36, 52), *range(53, 56), 57, 58}
    texts = [text for cases in INVALID.values() for case in cases for text in case.expected]
    assert {f"NCC_EVRF{code:03}" for code in codes} == {text[1:12] for text in texts}


def test_all_spellings_become_the_same_call() -> None:
    found = {path.name: calls(path.read_text()) for path in (FIXTURES / "spellings").glob("*.legalized.*")}
    (row,) = next(iter(found.values()))
    assert row == (
        "QuantizeMX_bf16_e5m2",
        "bf16[4,64]",
        "float8_e5m2",
        "1",
        "32",
        "u32[4,16]",
        "u8[4,2]",
        "legalized",
    )
    assert len(found) == len(SPELLINGS)
    assert set(map(tuple, found.values())) == {(row,)}


def calls(text: str) -> list[tuple[str, ...]]:
    """Returns what each MX call of a module says, its name aside; sorted, since computations may be ordered anew."""
    rows = inspect_module(read_module(text), target=Target.TRN3, allow_fp4=True)
    return sorted((r.target, r.operand, r.dtype, r.axis, r.block_size, r.data, r.scale, r.verdict) for r in rows)
