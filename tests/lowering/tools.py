"""What several tests of `lowering` share: running `mx-opt` in this process, FileCheck, and modules to start from."""

import contextlib
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from filecheck.matcher import Matcher
from filecheck.options import Options

from lowering.mx_opt import run_command

FIXTURES = Path(__file__).resolve().parents[2] / "hlo_fixtures"


@dataclass(frozen=True)
class Result:
    """Exit status and output of one `mx-opt` command."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode()


def mx_opt(*arguments: object, stdin: bytes = b"") -> Result:
    """Runs `mx-opt` in this process."""
    stdout, stderr = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with (
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        mock.patch.object(sys, "stdout", stdout),
        mock.patch.object(sys, "stderr", stderr),
    ):
        status = run_command([str(a) for a in arguments])
        stdout.flush()
    return Result(status, stdout.buffer.getvalue(), stderr.getvalue())


def filecheck(checks: Path, output: Path) -> str:
    """Matches `output` against the CHECK lines of `checks`; returns what FileCheck complains about, if anything."""
    complaint = io.StringIO()
    with contextlib.redirect_stdout(complaint), contextlib.redirect_stderr(complaint):
        status = Matcher.from_opts(Options(match_filename=str(checks), input_file=str(output))).run()
    return "" if status == 0 else complaint.getvalue() or f"filecheck exit status {status}"


CONFIG = {"block_size": 32, "dim": 1, "dtype": "float8_e4m3fn", "scale_method": "EMAX"}
CONFIG_TEXT = '{"block_size":32,"dim":1,"dtype":"float8_e4m3fn","scale_method":"EMAX"}'


def quote(text: str) -> str:
    """Returns a text as a string of MLIR's or HLO's grammar."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def stablehlo(
    config: str | None = CONFIG_TEXT,
    *,
    operand: str = "4x64xbf16",
    data: str = "4x16xui32",
    scale: str = "4x2xui8",
    target: str = "QuantizeMX",
    attributes: str = "api_version = 2 : i32",
) -> str:
    """Returns a StableHLO module with one call, its two results returned."""
    if config is not None:
        attributes += f", backend_config = {quote(config)}"
    operand, data, scale = f"tensor<{operand}>", f"tensor<{data}>", f"tensor<{scale}>"
    return f"""\
func.func @main(%x: {operand}) -> ({data}, {scale}) {{
  %0:2 = stablehlo.custom_call @{target}(%x) {{{attributes}}} : ({operand}) -> ({data}, {scale})
  return %0#0, %0#1 : {data}, {scale}
}}
"""


def hlo(
    config: str | None = CONFIG_TEXT,
    *,
    operand: str = "bf16[4,64]",
    result: str = "(u32[4,16], u8[4,2])",
    operands: str = "x",
    extra: str = "",
) -> str:
    """Returns an HLO module whose root is one call named `quantized`."""
    if config is not None:
        extra += f", backend_config={quote(config)}"
    return f"""\
HloModule m
ENTRY e {{
  x = {operand} parameter(0)
  ROOT quantized = {result} custom-call({operands}), custom_call_target="QuantizeMX"{extra}
}}
"""
