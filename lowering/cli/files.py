"""Input and output of the commands: files or `-`, and diagnostics as text or JSON."""

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_mx._atomic import write_bytes
from lowering.arrays import load_array
from lowering.cli.flags import DiagnosticsForm, UsageError
from lowering.cli.isolation import guarded_reading
from lowering.diagnostics import Diagnostic, LoweringError
from lowering.module import Module
from lowering.reading import read_module

READ_SECONDS = 60
"""Time to read a small module before the command gives up on jaxlib; a second more for every megabyte."""


def one_file(arguments: Sequence[str], usage: str) -> str:
    """Returns the one file argument. Raises UsageError when there is none, or more."""
    if len(arguments) != 1:
        raise UsageError(f"expected one FILE, got {len(arguments)}\nusage: {usage}")
    return arguments[0]


def read_input(file: str) -> bytes:
    """Returns the content of a file, of standard input for `-`. Raises UsageError when it cannot be opened."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as e:
        raise UsageError(f"cannot read {display_name(file)}: {e.strerror}", "MX001") from None


def read_array(file: str) -> np.ndarray[Any, Any]:
    """Returns the array of a `.npy` file. Raises UsageError when it cannot be opened, or ArrayFileError."""
    try:
        return load_array(file)
    except OSError as e:
        raise UsageError(f"cannot read {file}: {e.strerror or e}", "MX001") from None


def named_output(output: str, what: str) -> str:
    """Returns the name of an output that has to be a file. Raises UsageError for `-`, which commands call a stream."""
    if output == "-":
        raise UsageError(f"{what} is -, which is standard output; name a file")
    return output


def load(data: bytes, file: str) -> Module:
    """Reads a module for a command, within a time that grows with its size. Raises LoweringError."""
    with guarded_reading(READ_SECONDS + len(data) // 1_000_000) as said:
        try:
            return read_module(data, display_name(file))
        except LoweringError as e:
            if not said():
                raise
            found = [dataclasses.replace(d, cause=f"{d.cause} ({said()})") for d in e.diagnostics]
            raise LoweringError(found) from None


def display_name(file: str) -> str:
    """Returns the name under which messages speak of an input."""
    return "<stdin>" if file == "-" else file


def write_output(data: bytes, output: str | None) -> None:
    """Writes to a file, to standard output for None and `-`. Raises UsageError when the file cannot be written."""
    if output is None or output == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        write_bytes(Path(output), data)
    except OSError as e:
        raise UsageError(f"cannot write {output}: {e.strerror or os.strerror(e.errno or 0)}", "MX019") from None


def print_diagnostics(diagnostics: Sequence[Diagnostic], form: str) -> None:
    """Prints diagnostics to standard error: as text, or as one JSON array."""
    if form == DiagnosticsForm.JSON:
        sys.stderr.write(json.dumps([d.as_dict() for d in diagnostics], indent=2) + "\n")
        return
    for diagnostic in diagnostics:
        sys.stderr.write(f"{diagnostic}\n")
