"""Whatever the input is: a diagnostic and exit status 1, or success; no traceback, no hang, the input untouched."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lowering import Format, read_module, write_module
from tests.lowering.tools import CONFIG_TEXT, FIXTURES, Result, hlo, quote, stablehlo

COMMANDS = (
    ("FILE", "--passes=legalize-quantize-mx,legalize-scaled-matmul", "--emit=hlo", "-o", "FILE.out"),
    ("FILE", "--passes=legalize-quantize-mx", "--emit=stablehlo", "--no-validate"),
    ("inspect", "FILE"),
    ("explain", "FILE"),
)


class Worker:
    """A process that runs one input after the other."""

    def __init__(self) -> None:
        worker = Path(__file__).with_name("hostile_worker.py")
        command = [sys.executable, "-W", "ignore", str(worker)]
        root = str(FIXTURES.parent)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": root, "PATH": ""}
        )

    def run(self, data: bytes, arguments: tuple[str, ...]) -> Result:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{len(data)} {shlex.join(arguments)}\n".encode() + data)
        stdin.flush()
        status, length = stdout.readline().split()
        # Both streams, under the name of the one that matters.
        return Result(int(status), b"", stdout.read(int(length)).decode(errors="replace"))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    running = Worker()
    yield running
    running.close()


def check(result: Result) -> None:
    assert result.status in (0, 1), result.stderr
    assert "Traceback" not in result.stderr, result.stderr
    assert "most recent call" not in result.stderr, result.stderr
    if result.status == 1:
        assert any(code in result.stderr for code in ("[ERROR] [", "NCC_EVRF", "MX00")), result.stderr


def valid_inputs() -> list[bytes]:
    texts = [hlo().encode(), stablehlo().encode()]
    for name in ("valid/nki_rule.hlo", "valid/half_precision.legalized.mlir", "spellings/composite.mlir"):
        texts.append((FIXTURES / name).read_bytes())
    modules = [read_module(text) for text in texts]
    return texts + [write_module(m, fmt) for m in modules for fmt in (Format.HLO_PROTO, Format.BYTECODE)]


VALID = valid_inputs()
NUMBERS = [b"0", b"-1", b"3", b"2147483648", b"9223372036854775807", b"99999999999999999999", b"?", b"1e400", b"NaN"]


@st.composite
def mutated_modules(draw: st.DrawFn) -> bytes:
    """A valid module in one of its forms with a few bytes changed, cut out, repeated or replaced by odd numbers."""
    data = bytearray(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        kind = draw(st.sampled_from(["flip", "cut", "insert", "repeat", "truncate", "number"]))
        if kind == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del data[at : at + draw(st.integers(1, 20))]
        elif kind == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=4))
        elif kind == "repeat":
            data[at:at] = data[at : at + draw(st.integers(1, 40))]
        elif kind == "truncate":
            del data[at:]
        else:
            digits = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
            if digits:
                at = draw(st.sampled_from(digits))
                data[at : at + 1] = draw(st.sampled_from(NUMBERS))
    return bytes(data)


@st.composite
def mutated_configs(draw: st.DrawFn) -> str:
    """A valid configuration with a few characters changed."""
    text = CONFIG_TEXT
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        piece = draw(
            st.sampled_from([*'{}[]":,\\', "1", "null", "true", "NaN", "1e400", "-", "\u00e9", "\ud7ff", "\0"])
        )
        text = text[:at] + piece + text[at + draw(st.integers(0, 3)) :]
    return text


SLOW = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(data=mutated_modules(), command=st.sampled_from(COMMANDS))
def test_mutated_modules(worker: Worker, data: bytes, command: tuple[str, ...]) -> None:
    check(worker.run(data, command))


@SLOW
@given(config=mutated_configs(), as_hlo=st.booleans(), command=st.sampled_from(COMMANDS))
def test_mutated_configs(worker: Worker, config: str, as_hlo: bool, command: tuple[str, ...]) -> None:
    check(worker.run((hlo(config) if as_hlo else stablehlo(config)).encode(), command))


def nested_attribute(depth: int) -> str:
    return stablehlo(None, attributes="api_version = 4 : i32, backend_config = " + "{a = " * depth + "1" + "}" * depth)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\xff" * 100,
        b"ML\xefR" + b"\x00" * 50,
        b"HloModule m\n" * 3,
        b"module { module { } }",
        b'"builtin.module"() ({}) : () -> ()',
        b"func.func @main() { return } " * 2,
        b"module attributes {x = dense<1> : tensor<2147483648x2147483648xf32>} { func.func @f() { return } }",
        hlo(operand="bf16[4,2147483648]", result="(u32[4,536870912], u8[4,67108864])").encode(),
        hlo(operand="bf16[4,9223372036854775807]").encode(),
        hlo(operand="bf16[4,<=64]").encode(),
        hlo(operand="bf16[0,64]", result="(u32[0,16], u8[0,2])").encode(),
        hlo(operand="token[]").encode(),
        hlo(operand="(bf16[4,64], bf16[4,64])").encode(),
        hlo(result="u32[4,16]").encode(),
        hlo(result="()").encode(),
        hlo(result="(u32[4,16], (u8[4,2], u8[4,2]))").encode(),
        hlo(result="(u32[4,16], u8[4,2], u8[4,2])").encode(),
        hlo(operands="").encode(),
        hlo(operands="x, x, x").encode(),
        hlo(operands="y").encode(),
        hlo(CONFIG_TEXT[:-1]).encode(),
        hlo(extra=', backend_config={"dim":[[[').encode(),
        hlo('{"dtype":"' + "x" * 1_000_000 + '"}').encode(),
        hlo('{"dim":' + "[" * 10_000 + "]" * 10_000 + "}").encode(),
        hlo(extra=", api_version=API_VERSION_TYPED_FFI").encode(),
        stablehlo(operand="4x64xf4E2M1FN").encode(),
        stablehlo(operand="?x?xbf16", data="?x?xui32", scale="?x?xui8").encode(),
        stablehlo(operand="4x!quant.uniform<i8:f32, 1.0>").encode(),
        stablehlo(attributes="api_version = 99 : i32").encode(),
        stablehlo(attributes="backend_config = 5 : i32").encode(),
        stablehlo(attributes="mhlo.backend_config = 5 : i32").encode(),
        stablehlo(attributes="mhlo.frontend_attributes = {mx_scale_rule = 5 : i32}").encode(),
        nested_attribute(100).encode(),
        nested_attribute(100_000).encode(),
        f"HloModule m, frontend_attributes={{a={quote('x' * 100_000)}}}".encode(),
        b"tosa.func",
        b'module { "mhlo.custom_call"() {call_target_name = "QuantizeMX"} : () -> () }',
    ],
    ids=range(39),
)
def test_named_cases(worker: Worker, data: bytes) -> None:
    for command in COMMANDS:
        check(worker.run(data, command))


@pytest.mark.parametrize("size", [1, 10, 100, 1000])
def test_truncated_modules(worker: Worker, size: int) -> None:
    for data in VALID:
        check(worker.run(data[:size], COMMANDS[0]))
