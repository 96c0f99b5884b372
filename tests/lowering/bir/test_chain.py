"""`mx-opt validate`: the table of stages, and what a failing stage says."""

import dataclasses
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from lowering.bir import chain
from tests.lowering.tools import hlo, mx_opt, stablehlo

HEAD = "parse        validate     legalize     execute      lower        verify       simulate     encode"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "a.hlo").write_text(hlo())
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "b.mlir").write_text(stablehlo())
    return tmp_path


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_row_for_each_module(directory: Path, jobs: int) -> None:
    result = mx_opt("validate", directory, "--seed=3", f"--jobs={jobs}")
    assert (result.status, result.stderr) == (0, "")
    cells = "ok           ok           1 call       2 results    1 program    ok           equal        1 word"
    assert result.text.splitlines() == [
        "seed 3",
        f"module         {HEAD}",
        f"a.hlo          {cells}",
        f"deeper/b.mlir  {cells}",
        "2 modules, 0 failed",
    ]


def test_a_module_without_calls_says_that_nothing_was_compared(tmp_path: Path) -> None:
    (tmp_path / "a.hlo").write_text("HloModule m\nENTRY e {\n  ROOT x = f32[2] parameter(0)\n}\n")
    result = mx_opt("validate", tmp_path, "--seed=3")
    assert result.text.splitlines()[2].split("  ")[0] == "a.hlo"
    assert "no calls" in result.text


def test_a_failing_stage_ends_the_row_and_says_why(directory: Path) -> None:
    (directory / "a.hlo").write_text(hlo(operand="f32[4,64]"))
    (directory / "z.hlo").write_text("HloModule")
    result = mx_opt("validate", directory, "--seed=3")
    assert result.status == 1
    rows = result.text.splitlines()
    assert rows[2].split() == ["a.hlo", "ok", "FAILED", *["-"] * 6]
    assert rows[3].startswith("    validate: [ERROR] [NCC_EVRF041] ")
    assert rows[5].split() == ["z.hlo", "FAILED", *["-"] * 7]
    assert rows[-1] == "3 modules, 2 failed"


def test_a_wrong_byte_is_found_and_shown() -> None:
    """The simulator is made to return one wrong container and one wrong scale."""
    right = chain.simulate

    def wrong(*arguments: object, **options: object) -> dict[str, np.ndarray]:
        found = right(*arguments, **options)  # type: ignore[arg-type]
        found["d"][1, 2] ^= 0x0100
        found["s"][0, 1] += 1
        return found

    with mock.patch.object(chain, "simulate", wrong):
        stages = chain.run_chain(hlo().encode(), "m.hlo", seed=3, allow_fp4=False)
    assert [stage.name for stage in stages] == list(chain.STAGES[:7])
    last = stages[-1]
    assert (last.name, last.ok) == ("simulate", False)
    data, scale = last.problems
    assert data.startswith("bfloat16[4, 64] to float8_e4m3fn, axis 1: data differs in 1 of 64; at (1, 2) ")
    assert scale.startswith("bfloat16[4, 64] to float8_e4m3fn, axis 1: scale differs in 1 of 8; at (0, 1) ")


def test_a_program_that_breaks_rules_stops_at_verify() -> None:
    right = chain.lower_calls

    def wrong(calls: object) -> object:
        return dataclasses.replace(right(calls), arch="core_v5")  # type: ignore[arg-type]

    with mock.patch.object(chain, "lower_calls", wrong):
        stages = chain.run_chain(hlo().encode(), "m.hlo", seed=3, allow_fp4=False)
    assert (stages[-1].name, stages[-1].summary) == ("verify", "1 violation")
    assert stages[-1].problems[0].startswith("[367] QuantizeMX-0: found arch level 50")


def test_equal_calls_are_checked_once() -> None:
    """The two calls differ in names alone."""
    text = """\
func.func @main(%x: tensor<4x64xbf16>, %y: tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x16xui32>) {
  %0:2 = stablehlo.custom_call @QuantizeMX(%x) {api_version = 2 : i32, backend_config = CONFIG}
    : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>)
  %1:2 = stablehlo.custom_call @QuantizeMX(%y) {api_version = 2 : i32, backend_config = CONFIG}
    : (tensor<4x64xbf16>) -> (tensor<4x16xui32>, tensor<4x2xui8>)
  return %0#0, %1#0 : tensor<4x16xui32>, tensor<4x16xui32>
}
""".replace("CONFIG", '"{\\22dim\\22:1,\\22dtype\\22:\\22float8_e5m2\\22}"')
    stages = chain.run_chain(text.encode(), "m.mlir", seed=3, allow_fp4=False)
    assert [stage.summary for stage in stages] == [
        *("ok", "ok", "2 calls", "2 results", "1 program", "ok", "equal", "1 word")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "mx-opt: nowhere is not a directory\n"),
        ((Path(__file__).parent, "--seed=1"), f"mx-opt: {Path(__file__).parent} has no module files ("),
        ((Path(__file__).parent, "--jobs=0"), f"mx-opt: {Path(__file__).parent} has no module files ("),
    ],
)
def test_usage(arguments: tuple[object, ...], message: str) -> None:
    result = mx_opt("validate", *arguments)
    assert result.status == 2
    assert result.stderr.startswith(message)


def test_jobs_must_be_positive(directory: Path) -> None:
    result = mx_opt("validate", directory, "--jobs=0")
    assert (result.status, result.stderr) == (2, "mx-opt: --jobs is 0, wanted 1 or more\n")


def test_a_word_that_reads_back_differently_is_found() -> None:
    """The decoder is made to misread the scale's start."""
    right = chain.decode
    with mock.patch.object(chain, "decode", lambda word: dataclasses.replace(right(word), scale_start=4)):
        stages = chain.run_chain(hlo().encode(), "m.hlo", seed=3, allow_fp4=False)
    last = stages[-1]
    assert (last.name, last.ok) == ("encode", False)
    (problem,) = last.problems
    assert problem.startswith("the word e3100000")
    assert " reads back as e3100000" in problem


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_module_that_crashes_fails_alone(tmp_path: Path, jobs: int) -> None:
    call = stablehlo(None, attributes="api_version = 1 : i32, mhlo.backend_config = {dim = DEEP}")
    (tmp_path / "a.mlir").write_text(stablehlo())
    (tmp_path / "b.mlir").write_text(call.replace("DEEP", "[" * 20_000 + "]" * 20_000))
    (tmp_path / "c.mlir").symlink_to("nowhere")
    (tmp_path / "d.mlir").write_text(stablehlo())
    (tmp_path / "notes.txt").write_text("no module")
    result = mx_opt("validate", tmp_path, "--seed=3", f"--jobs={jobs}")
    assert (result.status, result.stderr) == (1, "")
    rows = result.text.splitlines()
    assert [row.split()[:2] for row in rows[2:4]] == [["a.mlir", "ok"], ["b.mlir", "FAILED"]]
    assert rows[4].startswith("    parse: jaxlib stopped the process, SIG")
    assert rows[5].split()[:2] == ["c.mlir", "FAILED"]
    assert rows[6] == f"    parse: cannot read {tmp_path}/c.mlir: No such file or directory"
    assert rows[7].split()[:2] == ["d.mlir", "ok"]
    assert rows[8] == "skipped, because the suffix is none of .hlo, .mlir, .pb, .mlirbc, .export: notes.txt"
    assert rows[9] == "4 modules, 2 failed"
