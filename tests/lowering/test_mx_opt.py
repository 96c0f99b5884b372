"""The command line: exit statuses, streams, options, and nothing lost when something is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import jax_mx
from lowering import PASSES, Diagnostic
from lowering.mx_opt import COMMANDS, report_crash
from tests.lowering.tools import CONFIG_TEXT, FIXTURES, Result, hlo, mx_opt, stablehlo

BAD = hlo(operand="f32[4,64]").encode()
PASS = "--passes=legalize-quantize-mx"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--passes=legalize-quantize-mx"],
        ["a.mlir", "b.mlir"],
        ["no/such/file.mlir"],
        [FIXTURES],
        ["-", "--bogus"],
        ["-", "--passes=no-such-pass"],
        ["-", "--emit=tosa"],
        ["-", "--target=trn9"],
        ["-", "-o", "no/such/directory/out.mlir"],
        ["inspect"],
        ["explain", "a", "b"],
        ["passes", "extra"],
        ["run", "no/such/file"],
        ["run", "-", "-o", "-"],
        ["validate", "no/such/directory"],
    ],
)
def test_usage_errors(arguments: list[object]) -> None:
    result = mx_opt(*arguments, stdin=stablehlo().encode())
    assert result.status == 2
    assert result.stdout == b""
    assert result.stderr.startswith("mx-opt: ")
    assert "Traceback" not in result.stderr


def test_reads_standard_input_and_writes_the_family_of_the_input() -> None:
    assert mx_opt("-", PASS, stdin=hlo().encode()).text.startswith("HloModule")
    assert mx_opt("-", PASS, stdin=stablehlo().encode()).text.startswith("module")
    assert mx_opt("-", PASS, "--emit=stablehlo", stdin=hlo().encode()).text.startswith("#loc")
    assert mx_opt("-", PASS, "--emit=hlo", stdin=stablehlo().encode()).text.startswith("HloModule")


def test_output_file(tmp_path: Path) -> None:
    out = tmp_path / "out.hlo"
    result = mx_opt("-", PASS, "-o", out, stdin=hlo().encode())
    assert (result.status, result.stdout, result.stderr) == (0, b"", "")
    assert out.read_bytes() == mx_opt("-", PASS, stdin=hlo().encode()).stdout
    assert [p.name for p in tmp_path.iterdir()] == ["out.hlo"]


def test_a_failure_leaves_the_output_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "module.hlo"
    file.write_bytes(BAD)
    result = mx_opt(file, PASS, "-o", file)
    assert (result.status, result.stdout) == (1, b"")
    assert "NCC_EVRF041" in result.stderr
    assert file.read_bytes() == BAD
    assert [p.name for p in tmp_path.iterdir()] == ["module.hlo"]


def test_diagnostics_as_json() -> None:
    result = mx_opt("-", PASS, "--diagnostics=json", stdin=BAD)
    assert result.status == 1
    assert json.loads(result.stderr) == [
        {
            "severity": "error",
            "code": "NCC_EVRF041",
            "message": "the operand's element type is f32 - convert the operand to bf16 or f16 before the call",
            "cause": "the operand's element type is f32",
            "resolution": "convert the operand to bf16 or f16 before the call",
            "instruction": "quantized",
            "shapes": "(u32[4,16], u8[4,2]) QuantizeMX(f32[4,64])",
            "location": None,
        }
    ]
    good = mx_opt("-", PASS, "--diagnostics=json", stdin=hlo().encode())
    assert (good.status, json.loads(good.stderr)) == (0, [])
    unreadable = mx_opt("-", "--diagnostics=json", stdin=b"HloModule")
    assert (unreadable.status, json.loads(unreadable.stderr)[0]["code"]) == (1, "MX001")


def test_options_reach_the_passes() -> None:
    fp4 = stablehlo(CONFIG_TEXT.replace("float8_e4m3fn", "float4_e2m1fn"), data="4x16xui16").encode()
    assert mx_opt("-", PASS, stdin=fp4).status == 1
    assert "QuantizeMX_bf16_e2m1fn" in mx_opt("-", PASS, "--allow-fp4", stdin=fp4).text
    assert "NCC_EVRF051" in mx_opt("-", PASS, "--target=trn2", stdin=stablehlo().encode()).stderr
    assert "QuantizeMX_f16_e4m3fn" in mx_opt("-", PASS, "--no-validate", stdin=BAD).text


def test_passes_lists_every_pass_and_option() -> None:
    text = mx_opt("passes").text
    for name in PASSES:
        assert f"\n{name}: " in f"\n{text}"
    for flag in ("--target=trn2|trn3 (default trn3)", "--allow-fp4", "--no-validate"):
        assert flag in text


def test_print_between_passes_and_time_passes() -> None:
    both = "--passes=legalize-quantize-mx,legalize-scaled-matmul"
    result = mx_opt("-", both, "--print-between-passes", "--time-passes", stdin=hlo().encode())
    assert result.status == 0
    assert result.stderr.count("@QuantizeMX_bf16_e4m3fn(") == 2
    assert "// ----- after legalize-quantize-mx -----\nmodule @m" in result.stderr
    assert "mx_instruction_name" not in result.stderr
    times = [line.split() for line in result.stderr.splitlines() if " s  legalize-" in line]
    assert [(t[2], t[3]) for t in times] == [("legalize-quantize-mx:", "1"), ("legalize-scaled-matmul:", "0")]
    assert all(float(t[0]) > 0 for t in times)


def test_split_input_file() -> None:
    parts = f"{stablehlo()}// -----\n{stablehlo(operand='8x64xbf16', data='8x16xui32', scale='8x2xui8')}".encode()
    assert mx_opt("-", PASS, stdin=parts).status == 1
    result = mx_opt("-", PASS, "--split-input-file", stdin=parts)
    first, second = result.text.split("// -----\n")
    assert "dense<[4, 64]>" in first
    assert "dense<[8, 64]>" in second
    bad = f"{stablehlo()}// -----\n{stablehlo(operand='4x64xf32')}".encode()
    failed = mx_opt("-", PASS, "--split-input-file", stdin=bad)
    assert (failed.status, failed.stdout) == (1, b"")
    assert failed.stderr.rstrip().endswith("at <stdin>:7")
    assert mx_opt("-", "--split-input-file", "--emit=bytecode", stdin=parts).status == 2


def test_inspect() -> None:
    text = stablehlo().replace("return %0#0", "%z = stablehlo.add %0#0, %0#0 : tensor<4x16xui32>\n  return %0#0")
    result = mx_opt("inspect", "-", stdin=text.encode())
    assert result.status == 0
    assert [line.split() for line in result.text.splitlines()] == [
        ["name", "target", "operand", "dtype", "axis", "block", "data", "scale", "verdict", "source"],
        ["%0", "QuantizeMX", "bf16[4,64]", "float8_e4m3fn", "1", "32", "u32[4,16]", "u8[4,2]", "legal", "<stdin>:2"],
    ]
    heading, row = result.text.splitlines()
    assert heading.index("verdict") == row.index("legal")
    bad = mx_opt("inspect", "-", stdin=BAD)
    assert bad.status == 1
    assert "NCC_EVRF041: the operand's element type is f32" in bad.text
    legalized = mx_opt("-", PASS, stdin=text.encode()).stdout
    assert "QuantizeMX_bf16_e4m3fn  bf16[4,64]  float8_e4m3fn  1     32" in mx_opt("inspect", "-", stdin=legalized).text
    none = mx_opt("inspect", "-", stdin=b"func.func @main() { return }")
    assert (none.status, none.text) == (0, "<stdin> has no MX calls\n")


NEAR_MISSES = """\
HloModule m
ENTRY e {
  x = bf16[4,64] parameter(0)
  a = (u32[4,16], u8[4,2]) custom-call(x), custom_call_target="quantizemx", \
metadata={op_name="a" source_file="model.py" source_line=3}
  b = (u32[4,16], u8[4,2]) custom-call(x), custom_call_target="QuantizeMX", \
backend_config="{\\"dim\\":1,\\"dtype\\":\\"float8_e5m2\\"}"
  c = (s64[2], s64[], s64[], s64[]) constant(({4,64}, 1, 32, 0))
  d = (u32[4,16], u8[4,2]) custom-call(c, x), custom_call_target="QuantizeMX_bf16_e5m2"
  f = (f8e4m3fn[4,64], f8e8m0fnu[4,2]) custom-call(x), custom_call_target="__op$quantize"
  g = (u32[4,16], u8[4,2]) custom-call(x), custom_call_target="QuantizeMX_f32_e5m2"
  h = f32[4,4] custom-call(x), custom_call_target="block_scaled_dot"
  i = f32[4,4] custom-call(x), custom_call_target="unrelated"
  b0 = u32[4,16] get-tuple-element(b), index=0
  ROOT r = (u32[4,16], f32[4,4], f32[4,4]) tuple(b0, h, i)
}
"""


def test_explain_says_why_not() -> None:
    result = mx_opt("explain", "-", stdin=NEAR_MISSES.encode())
    assert result.status == 0
    found = {}
    lines = result.text.splitlines()
    for headline, where in zip(lines[::2], lines[1::2], strict=True):
        found[where.split()[0]] = headline
    assert sorted(found) == ["a", "b", "d", "f", "g", "h"]
    assert found["a"] == "[NOTE] [MX010] 'quantizemx' is not exactly 'QuantizeMX' - spell the target 'QuantizeMX'"
    assert lines[1].endswith("at model.py:3")
    assert found["b"] == "[NOTE] [MX014] QuantizeMX (string backend_config) is legal - becomes QuantizeMX_bf16_e5m2"
    assert found["d"] == "[NOTE] [MX010] 'QuantizeMX_bf16_e5m2' is legalized already - nothing to do"
    assert "XLA's own block scaling operation" in found["f"]
    assert "no pass makes this target" in found["g"]
    assert "is not exactly '__op$block_scaled_dot'" in found["h"]


def test_explain_sees_functions_and_errors() -> None:
    text = """\
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @QuantizeMX(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @QuantizeMX(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
"""
    result = mx_opt("explain", "-", stdin=text.encode())
    assert "'QuantizeMX' is a function of the module, not a StableHLO custom call" in result.text
    assert "%0, at <stdin>:2" in result.text
    assert mx_opt("explain", "-", stdin=BAD).status == 1
    nothing = mx_opt("explain", "-", stdin=b"func.func @main() { return }")
    assert (nothing.status, nothing.text) == (0, "<stdin> has no MX calls and nothing like one\n")


COMPOSITE = """\
HloModule m
f {
  p = bf16[4,64] parameter(0)
  ROOT t = (u32[4,16], u8[4,2]) custom-call(p), custom_call_target="unrelated"
}
ENTRY e {
  x = bf16[4,64] parameter(0)
  ROOT q = (u32[4,16], u8[4,2]) call(x), to_apply=f, is_composite=true, frontend_attributes={composite.name="v.NAME",\
composite.attributes={dim = 1 : i64},composite.version="1"}, metadata={op_name="q" source_file="u.py" source_line=3}
}
"""


def test_explain_sees_composites_of_hlo() -> None:
    result = mx_opt("explain", "-", stdin=COMPOSITE.replace("NAME", "quantizemx").encode())
    assert (result.status, result.text.splitlines()) == (
        0,
        [
            "[NOTE] [MX010] 'quantizemx' is not exactly 'QuantizeMX' - spell the target 'QuantizeMX'",
            "    q = (u32[4,16], u8[4,2]) quantizemx(bf16[4,64]), at u.py:3",
        ],
    )
    dot = mx_opt("explain", "-", stdin=COMPOSITE.replace("NAME", "__op$block_scaled_dot").encode())
    assert "[MX010] 'v.__op$block_scaled_dot' is a composite with several results" in dot.text
    other = mx_opt("explain", "-", stdin=COMPOSITE.replace("NAME", "other").encode())
    assert other.text == "<stdin> has no MX calls and nothing like one\n"
    written = mx_opt("-", "--emit=stablehlo", stdin=COMPOSITE.replace("NAME", "quantizemx").encode())
    assert "v.quantizemx" in written.text and "mx_instruction_name" not in written.text


def test_nested_tuples_are_warned_about() -> None:
    text = NEAR_MISSES.replace("ROOT r = (u32[4,16], f32[4,4], f32[4,4]) tuple(b0, h, i)", "ROOT r = (XX) tuple(b)")
    result = mx_opt("-", PASS, stdin=text.replace("XX", "(u32[4,16], u8[4,2])").encode())
    assert result.status == 0
    assert "[WARNING] [MX015]" in result.stderr


def console(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", "from lowering.mx_opt import console_main; console_main()", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=120)


def test_console_script() -> None:
    good = console("-", PASS, stdin=hlo().encode())
    assert (good.returncode, good.stderr) == (0, b"")
    assert good.stdout == mx_opt("-", PASS, stdin=hlo().encode()).stdout
    assert console("-", PASS, stdin=BAD).returncode == 1
    assert console("--nonsense").returncode == 2


@pytest.mark.parametrize("word", ["--help", "-h", "-help", "help"])
def test_help_lists_every_command(word: str) -> None:
    bare = mx_opt()
    assert (bare.status, bare.stdout) == (2, b"")
    usage = bare.stderr.removeprefix("mx-opt: nothing to do\n")
    assert all(f" mx-opt {command} " in usage or f" mx-opt {command}\n" in usage for command in COMMANDS)
    result = mx_opt(word)
    assert (result.status, result.stderr) == (0, "")
    assert result.text.startswith(usage.rstrip() + "\n\nusage: mx-opt FILE ")
    assert "\n  --passes: Passes to run" in result.text


def test_version() -> None:
    assert mx_opt("--version") == Result(0, f"mx-opt {jax_mx.__version__}\n".encode(), "")


def test_a_mistyped_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = mx_opt("inspct", "x.hlo")
    assert (result.status, result.stdout) == (2, b"")
    assert result.stderr.startswith(
        "mx-opt: inspct is neither a file nor a command; "
        "the commands are bir, convert, explain, inspect, passes, rules, run, validate\nusage: mx-opt FILE "
    )
    (tmp_path / "inspct").write_text("func.func @main() { return }")
    assert mx_opt("inspct").status == 0
    assert mx_opt("x.hlo").stderr == "mx-opt: cannot read x.hlo: No such file or directory\n"


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.mlir").write_text("module {")
    (tmp_path / "empty.hlo").touch()
    assert mx_opt("inspect", tmp_path / "bad.mlir").stderr.startswith(
        f"[ERROR] [MX001] {tmp_path}/bad.mlir looks like StableHLO text and cannot be read as that: "
    )
    assert mx_opt(tmp_path / "empty.hlo").stderr.startswith(f"[ERROR] [MX001] {tmp_path}/empty.hlo is empty - ")
    assert mx_opt("-", stdin=b"module {").stderr.startswith("[ERROR] [MX001] <stdin> looks like StableHLO text ")


def test_input_that_crashes_jaxlib_is_a_diagnostic() -> None:
    text = NEAR_MISSES.replace("get-tuple-element(b), index=0", "get-tuple-element(b), index=9223372036854775807")
    crashed = console("inspect", "-", stdin=text.encode())
    assert crashed.returncode == 1
    assert b"MX0" in crashed.stderr
    assert b"Traceback" not in crashed.stderr
    assert b"most recent call" not in crashed.stderr


CRASH = """\
import os, signal, sys
from lowering.cli.isolation import run_isolated
from lowering.mx_opt import report_crash
sys.exit(run_isolated(lambda: os.kill(os.getpid(), signal.SIGSEGV), lambda crash: report_crash(crash, sys.argv[1:])))
"""


def test_a_crash_is_json_where_diagnostics_are() -> None:
    command = [sys.executable, "-c", CRASH, "-", "--diagnostics=json"]
    crashed = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert crashed.returncode == 1
    (crash,) = json.loads(crashed.stderr)
    assert (crash["code"], crash["cause"]) == ("MX012", "jaxlib stopped the process, SIGSEGV")


@pytest.mark.parametrize("arguments", [["-", "--diagnostics=json"], ["--diagnostics", "json", "x.hlo", PASS]])
def test_form_of_the_diagnostic_about_a_crash(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    crash = Diagnostic(code="MX012", cause="c", resolution="r")
    report_crash(crash, arguments)
    assert json.loads(capsys.readouterr().err) == [crash.as_dict()]
    report_crash(crash, ["inspect", "-", "--diagnostics=json"])
    assert json.loads(capsys.readouterr().err) == [crash.as_dict()]
    report_crash(crash, ["run", "-", "--diagnostics=json"])
    assert capsys.readouterr().err == "[ERROR] [MX012] c - r\n"
    report_crash(crash, ["inspect", "-"])
    assert capsys.readouterr().err == "[ERROR] [MX012] c - r\n"


def test_several_modules_read_as_one_hint_at_the_flag() -> None:
    two = b"func.func @main() { return }\n// -----\nfunc.func @main() { return }\n"
    result = mx_opt("-", stdin=two)
    assert result.status == 1
    assert "give --split-input-file if the parts between '// -----' lines are modules of their own" in result.stderr
    assert mx_opt("-", "--split-input-file", stdin=two).status == 0
    assert "--split-input-file" not in mx_opt("-", stdin=b"func.func @main() {").stderr


@pytest.mark.parametrize(
    ("arguments", "status", "codes"),
    [
        (["no/such/file.mlir"], 2, ["MX001"]),
        ([FIXTURES], 2, ["MX001"]),
        (["-", "-o", "no/such/directory/out.mlir"], 2, ["NCC_EVRF045", "MX019"]),
        (["-", "--target=trn9"], 2, ["MX017"]),
        (["-", "--passes=no-such-pass"], 2, ["MX017"]),
        (["-", "--emit=bir-json"], 2, ["MX017"]),
        (["-", "--time-passes"], 2, ["MX017"]),
        (["-", "--print-between-passes"], 2, ["MX017"]),
        (["inspect", "no/such/file.mlir"], 2, ["MX001"]),
        (["explain", "no/such/file.mlir"], 2, ["MX001"]),
    ],
)
def test_what_is_refused_is_json_where_diagnostics_are(arguments: list[object], status: int, codes: list[str]) -> None:
    warned = stablehlo('{"x":1,"dim":1,"dtype":"float8_e5m2"}')
    passes = [PASS] if arguments[0] == "-" and not any(str(a).startswith("--passes") for a in arguments) else []
    result = mx_opt(*arguments, *passes, "--diagnostics", "json", stdin=warned.encode())
    assert (result.status, result.stdout) == (status, b"")
    found = json.loads(result.stderr)
    assert [d["code"] for d in found][-1] == codes[-1]
    assert len(found) == len(codes)
    assert "usage:" not in found[-1]["message"]


def test_inspect_and_explain_have_json_diagnostics_beside_their_output() -> None:
    for command in ("inspect", "explain"):
        plain = mx_opt(command, "-", stdin=BAD)
        result = mx_opt(command, "-", "--diagnostics=json", stdin=BAD)
        assert (result.status, result.stdout) == (1, plain.stdout)
        assert [d["code"] for d in json.loads(result.stderr)] == ["NCC_EVRF041"]
        unreadable = mx_opt(command, "-", "--diagnostics=json", stdin=b"module {")
        assert (unreadable.status, json.loads(unreadable.stderr)[0]["code"]) == (1, "MX001")
    assert mx_opt("inspect", "-", "--diagnostics=json", stdin=stablehlo().encode()).stderr == "[]\n"
