"""The console script as a process: its streams, what they can refuse, and its environment."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.lowering.tools import FIXTURES, stablehlo

COMMAND = [sys.executable, "-c", "from lowering.mx_opt import console_main; console_main()"]
K36 = str(FIXTURES / "bir" / "k36.json")
FULL = Path("/dev/full")


def console(
    *arguments: str, environment: Mapping[str, str] | None = None, shell: str = "", **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Runs the script with output that is buffered, as it is for users; `shell` redirects its streams."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = ["sh", "-c", f'exec "$@" {shell}', "sh", *COMMAND, *arguments]
    return subprocess.run(
        command,
        env={**inherited, **(environment or {})},
        check=False,
        timeout=120,
        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


def test_buffered_output_reaches_a_pipe() -> None:
    assert console("passes").stdout.startswith(b"legalize-quantize-mx: ")
    assert console("inspect", "--help").stdout.startswith(b"usage: mx-opt inspect FILE")
    verified = console("bir", "verify", K36)
    assert verified.stdout.splitlines()[-1] == b"0 violations"


@pytest.mark.skipif(not FULL.exists(), reason="needs a full device")
@pytest.mark.parametrize(
    "arguments", [["passes"], ["passes", "--help"], ["bir", "simulate", K36], ["-"], ["bir", "encode", K36]]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_under_standard_output(arguments: list[str], unbuffered: str) -> None:
    environment = {"PYTHONUNBUFFERED": unbuffered}
    with FULL.open("wb") as full:
        result = (
            console(*arguments, environment=environment, stdin=None, input=stablehlo().encode(), stdout=full)
            if arguments == ["-"]
            else console(*arguments, environment=environment, stdout=full)
        )
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == b"mx-opt: cannot write standard output: No space left on device"
    assert b"Traceback" not in result.stderr


def test_a_reader_that_went_away_is_no_error_to_speak_of() -> None:
    read, write = os.pipe()
    os.close(read)
    result = console("passes", stdout=write)
    os.close(write)
    assert (result.returncode, result.stderr) == (1, b"")


def test_streams_that_are_closed() -> None:
    closed = console("passes", shell=">&-")
    assert (closed.returncode, closed.stderr) == (
        2, b"mx-opt: cannot write standard output: Bad file descriptor\n",
    )  # fmt: skip
    assert console("passes", shell="2>&-").stdout.startswith(b"legalize-quantize-mx: ")
    nothing = console("-", shell="<&-")
    assert nothing.returncode == 1 and b"[MX001]" in nothing.stderr
    unreadable = console("-", shell="0>/dev/null")
    assert (unreadable.returncode, unreadable.stderr) == (2, b"mx-opt: cannot read <stdin>: Bad file descriptor\n")


def test_names_that_the_terminal_has_no_characters_for(tmp_path: Path) -> None:
    path = tmp_path / "é.mlir"
    path.write_text("func.func @main() { return }")
    result = console("inspect", str(path), environment={"PYTHONIOENCODING": "ascii"})
    assert (result.returncode, result.stdout) == (0, f"{tmp_path}/\\xe9.mlir has no MX calls\n".encode())


def test_an_environment_that_names_no_implementation() -> None:
    wrong = console("passes", environment={"JAX_MX_IMPLEMENTATION": "Native"})
    assert (wrong.returncode, wrong.stdout) == (2, b"")
    assert wrong.stderr == b"mx-opt: JAX_MX_IMPLEMENTATION: got 'Native', want one of auto, xla, native\n"
    assert console("passes", environment={"JAX_MX_IMPLEMENTATION": "xla"}).returncode == 0
