"""Runs `mx-opt` on many inputs, each in a forked child as the console script does; a process of its own for the tests.

Reads cases from standard input as `LENGTH ARGUMENT...` lines, each followed by LENGTH bytes of input; answers each with
`STATUS LENGTH` and LENGTH bytes of output, standard error included. The input file must not change.
"""

import os
import shlex
import sys
import tempfile
from pathlib import Path

from lowering.cli import files
from lowering.cli.isolation import run_isolated
from lowering.mx_opt import report_crash, run_command


def run(path: Path, arguments: list[str], data: bytes) -> tuple[int, bytes]:
    path.write_bytes(data)
    command = [a.replace("FILE", str(path)) for a in arguments]
    output = path.with_suffix(".output")
    with output.open("wb") as both:
        saved = os.dup(1), os.dup(2)
        os.dup2(both.fileno(), 1)
        os.dup2(both.fileno(), 2)
        try:
            status = run_isolated(lambda: run_command(command), lambda crash: report_crash(crash, command))
        finally:
            sys.stderr.flush()
            os.dup2(saved[0], 1)
            os.dup2(saved[1], 2)
            os.close(saved[0])
            os.close(saved[1])
    text = output.read_bytes()
    if path.read_bytes() != data:
        return 1000, b"the input file was changed"
    return status, text


def main() -> None:
    files.READ_SECONDS = 10
    with tempfile.TemporaryDirectory() as directory:
        for line in sys.stdin.buffer:
            length, *arguments = shlex.split(line.decode())
            data = sys.stdin.buffer.read(int(length))
            status, text = run(Path(directory) / "input", arguments, data)
            sys.stdout.buffer.write(f"{status} {len(text)}\n".encode() + text)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
