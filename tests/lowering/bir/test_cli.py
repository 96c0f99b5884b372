"""The commands: outputs, exit status and messages, run in this process."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import jax_mx
from lowering.bir import from_json, verify
from tests.lowering.tools import FIXTURES, hlo, mx_opt, stablehlo

K36 = FIXTURES / "bir" / "k36.json"
PACKED = FIXTURES / "bir" / "pack_offsets.json"
LOWER = ("--passes=legalize-quantize-mx,lower-to-bir", "--emit=bir-json")


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "m.hlo"
    path.write_text(hlo())
    return path


def test_emit_bir_json(module: Path) -> None:
    result = mx_opt(module, *LOWER)
    assert (result.status, result.stderr) == (0, "")
    program = from_json(result.stdout)
    assert verify(program) == []
    (function,) = program.functions
    assert [(item.tensor, item.kind, item.tensor_shape) for item in function.allocations[:3]] == [
        ("x", "ExternalInput", (4, 64)),
        ("quantized.data", "ExternalOutput", (4, 16)),
        ("quantized.scale", "ExternalOutput", (4, 2)),
    ]
    assert [item.opcode for item in function.instructions()] == ["Memset", "Load", "QuantizeMx", "Save", "Save"]


def test_options_of_the_pass(module: Path) -> None:
    names = [item["name"] for item in _instructions(mx_opt(module, *LOWER, "--tile-columns=2").stdout)]
    assert [name for name in names if name.startswith("Q")] == ["QuantizeMX-0", "QuantizeMX-1"]
    packed = [item["outs"][1]["offset"] for item in _quantizes(mx_opt(module, *LOWER, "--tile-columns=2").stdout)]
    unpacked = _quantizes(mx_opt(module, *LOWER, "--tile-columns=2", "--no-pack-scales").stdout)
    # The shared buffer is two bytes a partition: the second tile starts at pack offset 4.
    assert (packed, [item["outs"][1]["offset"] for item in unpacked]) == ([0, 8], [0, 0])


def _instructions(text: bytes) -> list[dict[str, object]]:
    return json.loads(text)["functions"][0]["blocks"][0]["instructions"]


def _quantizes(text: bytes) -> list[dict[str, list[dict[str, int]]]]:
    return [item for item in _instructions(text) if item["opcode"] == "QuantizeMx"]  # type: ignore[misc]


def test_source_lines_reach_the_program() -> None:
    result = mx_opt(FIXTURES / "valid" / "transformer_mlp.hlo", *LOWER)
    debug = _quantizes(result.stdout)[0]["debug"]
    assert debug["filename"] == "hlo_fixtures/programs.py"  # type: ignore[call-overload]


def test_a_rule_other_than_emax_reaches_the_program() -> None:
    result = mx_opt(FIXTURES / "valid" / "nki_rule.hlo", *LOWER)
    assert json.loads(result.stdout)["attributes"] == {"mx_scale_rule": "NKI", "neuron_core_id": 0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--emit=bir-json",), "mx-opt: --emit=bir-json needs lower-to-bir as the last pass\n"),
        (
            ("--passes=lower-to-bir,legalize-quantize-mx", "--emit=bir-json"),
            "mx-opt: --emit=bir-json needs lower-to-bir as the last pass\n",
        ),
        (("--passes=lower-to-bir",), "mx-opt: the pass lower-to-bir needs --emit=bir-json\n"),
    ],
)
def test_pass_and_form_go_together(module: Path, arguments: tuple[str, ...], message: str) -> None:
    result = mx_opt(module, *arguments)
    assert (result.status, result.stdout, result.stderr) == (2, b"", message)


def test_calls_that_are_not_legalized_are_all_named(tmp_path: Path) -> None:
    path = tmp_path / "m.mlir"
    path.write_text(stablehlo())
    result = mx_opt(path, "--passes=lower-to-bir", "--emit=bir-json")
    assert result.status == 1
    assert result.stderr.startswith(
        "[ERROR] [MX016] QuantizeMX is not a legalized target - run legalize-quantize-mx before lower-to-bir\n"
        "    %0 = (u32[4,16], u8[4,2]) QuantizeMX(bf16[4,64])"
    )


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("QuantizeMX_bf16_e4m3fn", "QuantizeMX_bf16_e4m3fn has no constant metadata operand"),
        ("QuantizeMX_bf16_e3m2", "QuantizeMX_bf16_e3m2 is not a legalized target"),
    ],
)
def test_malformed_legalized_calls(tmp_path: Path, target: str, reason: str) -> None:
    path = tmp_path / "m.mlir"
    path.write_text(stablehlo(None, target=target))
    result = mx_opt(path, "--passes=lower-to-bir", "--emit=bir-json")
    assert result.status == 1
    assert result.stderr.startswith(f"[ERROR] [MX016] {reason} - ")


def test_the_metadata_operand_alone_is_not_enough(tmp_path: Path) -> None:
    """A legalized call whose target says f16 and whose operand is bf16."""
    legalized = mx_opt("-", "--passes=legalize-quantize-mx", "--emit=stablehlo", stdin=hlo().encode()).text
    path = tmp_path / "m.mlir"
    path.write_text(legalized.replace("QuantizeMX_bf16_e4m3fn", "QuantizeMX_f16_e4m3fn"))
    result = mx_opt(path, "--passes=lower-to-bir", "--emit=bir-json")
    assert result.status == 1
    assert "[MX016] the operand is bf16[4,64] - give a static f16 array" in result.stderr


def test_another_target() -> None:
    legalized = mx_opt("-", "--passes=legalize-quantize-mx", stdin=hlo().encode()).stdout
    result = mx_opt("-", "--passes=lower-to-bir", "--emit=bir-json", "--target=trn2", stdin=legalized)
    assert result.status == 1
    assert "target is trn2, wanted core_v4 (trn3): no other core has QuantizeMx" in result.stderr


def test_a_tile_that_does_not_fit(module: Path) -> None:
    result = mx_opt(module, *LOWER, "--sbuf-budget=10")
    assert result.status == 1
    assert "a tile of 1 columns wants 25 bytes per partition of SBUF for its buffers; 10 are available" in result.stderr
    assert result.stderr.endswith(" - change the option (sbuf-budget, tile-columns, target) or the call it names\n")


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        ("--tile-columns=-3", "-3 is not an integer in the range [0, 16383]"),
        ("--tile-columns=16384", "16384 is not an integer in the range [0, 16383]"),
        ("--sbuf-budget=0", "0 is not an integer in the range [1, 245752]"),
        ("--sbuf-budget=245753", "245753 is not an integer in the range [1, 245752]"),
        ("--sbuf-budget=abc", "invalid literal for int() with base 10: 'abc'"),
    ],
)
def test_options_out_of_range_name_the_flag(module: Path, option: str, wanted: str) -> None:
    result = mx_opt(module, *LOWER, option)
    assert (result.status, result.stdout) == (2, b"")
    assert result.stderr.startswith(f"mx-opt: flag {option}: {wanted}\n")


def test_verify() -> None:
    result = mx_opt("bir", "verify", K36)
    assert (result.status, result.text, result.stderr) == (
        0,
        "1 function: 1 Load, 1 Memset, 1 QuantizeMx, 2 Save\n0 violations\n",
        "",
    )


def test_verify_reports_every_violation() -> None:
    text = K36.read_text().replace('"core_v4"', '"core_v5"').replace('"engine_id": 5', '"engine_id": 6')
    result = mx_opt("bir", "verify", "-", stdin=text.encode())
    assert (result.status, result.text.splitlines()[-1]) == (1, "2 violations")
    assert result.stderr == (
        "[367] QuantizeMX-0: found arch level 50, wanted arch level 40 (core_v4) or earlier\n"
        "[207] QuantizeMX-0: found engine_id 6, wanted engine_id 5 (DVE)\n"
    )


def test_verify_says_which_opcodes_have_no_rules() -> None:
    text = K36.read_text().replace('"opcode": "Memset"', '"opcode": "Iota"')
    result = mx_opt("bir", "verify", "-", stdin=text.encode())
    assert result.text == "1 function: 1 Iota (structure only), 1 Load, 1 QuantizeMx, 2 Save\n0 violations\n"


def test_malformed_json_names_the_file_and_the_path() -> None:
    result = mx_opt("bir", "verify", "-", stdin=b'{"functions": [{"name": "sg0000"}]}')
    assert (result.status, result.stderr) == (
        1,
        'mx-opt: <stdin>: $.functions[0]: the key "allocations" is missing\n',
    )


def test_simulate(tmp_path: Path) -> None:
    values = np.linspace(-3, 700, 3 * 36, dtype=np.float32).reshape(3, 36).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", values)
    result = mx_opt("bir", "simulate", K36, f"--input=x={tmp_path / 'x.npy'}", "-o", tmp_path / "out")
    assert result.status == 0, result.stderr
    assert result.text.splitlines() == [
        f"data: uint32[3, 9] -> {tmp_path / 'out' / 'data.npy'}",
        f"scale: uint8[3, 2] -> {tmp_path / 'out' / 'scale.npy'}",
    ]
    for name, want in zip(("data", "scale"), jax_mx.quantize_mx(values, "float8_e4m3fn"), strict=True):
        np.testing.assert_array_equal(np.load(tmp_path / "out" / f"{name}.npy"), np.asarray(want))


def test_simulate_with_random_inputs() -> None:
    result = mx_opt("bir", "simulate", PACKED, "--seed=5")
    assert (result.status, result.text.splitlines()) == (
        0,
        ["random inputs, seed 5", "data: uint32[6, 64]", "scale: uint8[6, 8]"],
    )


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--input=x",), 2, "mx-opt: --input is x, wanted NAME=FILE.npy\n"),
        (("--input=x=nothing.npy",), 2, "mx-opt: cannot read nothing.npy: No such file or directory\n"),
        ((f"--input=x={K36}",), 1, f"mx-opt: {K36} is no .npy file of numbers: "),
        (("--seed=-1",), 2, "mx-opt: flag --seed=-1: "),
        (("--function=main",), 2, f"mx-opt: {K36} has no function main; it has sg0000\n"),
        (("--scale-rule=CEIL",), 2, "mx-opt: flag --scale-rule=CEIL: "),
    ],
)
def test_simulate_arguments(arguments: tuple[str, ...], status: int, message: str) -> None:
    result = mx_opt("bir", "simulate", K36, *arguments)
    assert result.status == status
    assert result.stderr.startswith(message)


@pytest.mark.parametrize("name", ["a\0b", "a/b", "é$\\bad{$"])
def test_names_of_all_kinds(tmp_path: Path, name: str) -> None:
    """A name is text: no formula for a picture, and no path for a file."""
    text = K36.read_text().replace('"sg0000"', json.dumps(name)).replace('"data_set"', json.dumps(f"{name}_set"))
    assert mx_opt("bir", "verify", "-", stdin=text.encode()).status == 0
    assert mx_opt("bir", "disasm", "-", stdin=mx_opt("bir", "encode", "-", stdin=text.encode()).stdout).status == 0
    simulated = mx_opt("bir", "simulate", "-", "-o", tmp_path, stdin=text.encode())
    if name[0] == "a":
        assert (simulated.status, simulated.stderr) == (1, f"mx-opt: the output name {name} is no file name\n")
        return
    assert simulated.status == 0 and (tmp_path / f"{name}.npy").exists()
    assert mx_opt("bir", "draw", "-", "-o", tmp_path / "x.svg", stdin=text.encode()).status == 0
    assert f"{name}: x bfloat16[3, 36]" in (tmp_path / "x.svg").read_text()


@pytest.mark.parametrize("command", [["verify"], ["simulate"], ["encode"], ["draw", "-o", "none.svg"]])
@pytest.mark.parametrize("old", ['"sg0000"', '"attributes"', '"opcode"'])
def test_half_of_a_surrogate_pair_is_refused(command: list[str], old: str) -> None:
    name = command[0]
    for spelled in (b'"a\\ud800"', b'"a\xed\xa0\x80"'):  # an escape, and bytes that Python's reader lets through
        text = K36.read_bytes().replace(old.encode(), spelled, 1)
        result = mx_opt("bir", name, "-", *command[1:], stdin=text)
        assert (result.status, result.stdout) == (1, b"")
        assert result.stderr == (
            'mx-opt: <stdin>: not readable: "a\\ud800" has half of a surrogate pair, no character\n'
        )
    assert not Path("none.svg").exists()


def test_simulate_names_instruction_and_address() -> None:
    raw = json.loads(PACKED.read_text())
    (later,) = [item for item in raw["functions"][0]["blocks"][0]["instructions"] if item["name"] == "Load-2"]
    later["dependencies"] = []
    result = mx_opt("bir", "simulate", "-", stdin=json.dumps(raw).encode())
    assert result.status == 1
    assert result.stderr == (
        "mx-opt: Load-2 writes SB partition 0 byte 0x0 (tile.src0) while the write of Load-0 may be in flight: "
        "no dependency orders it after Load-0\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "mx-opt: no command given; the commands are verify, simulate, encode, disasm, draw\n"),
        (("run",), "mx-opt: unknown command 'run'; the commands are verify, simulate, encode, disasm, draw\n"),
        (("verify",), "mx-opt: expected one FILE, got 0\n"),
        (("verify", "no.json"), "mx-opt: cannot read no.json: No such file or directory\n"),
        (("verify", K36, "--draw"), "mx-opt: Unknown command line flag 'draw'"),
    ],
)
def test_usage(arguments: tuple[str, ...], message: str) -> None:
    result = mx_opt("bir", *arguments)
    assert result.status == 2
    assert result.stderr.startswith(message)
