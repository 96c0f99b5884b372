"""`mx-opt run FILE`: executes a module with MX calls on the CPU and saves its results."""

import io
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lowering.cli import files
from lowering.cli.flags import Flags, UsageError
from lowering.running import execute, load_arguments, random_arguments

USAGE = "mx-opt run FILE [--input x.npy ...] [--seed N] [-o DIR]"


def run(arguments: Sequence[str]) -> int:
    """Runs the command; prints shape and file of every result."""
    flags = Flags(USAGE)
    flags.strings("input", "An argument as .npy file; repeat it for each argument. Random inputs by default.")
    flags.integer("seed", 0, "Seed of the random inputs.", minimum=0)
    flags.string("output", "Directory for result_0.npy and so on; nothing is saved by default.", short="o")
    file = files.one_file(flags.parse(arguments), USAGE)
    if flags["output"] is not None:
        files.named_output(flags["output"], "-o")
    module = files.load(files.read_input(file), file)
    if flags["input"]:
        try:
            values = load_arguments(module, flags["input"])
        except OSError as e:
            raise UsageError(f"cannot read {e.filename}: {e.strerror or e}") from None
    else:
        sys.stdout.write(f"random inputs, seed {flags['seed']}\n")
        values = random_arguments(module, flags["seed"])
    results = execute(module, values)
    directory = flags["output"]
    if directory is not None:
        _make_directory(Path(directory))
    for index, result in enumerate(results):
        line = f"result {index}: {result.dtype}{list(result.shape)}"
        if directory is not None:
            path = Path(directory) / f"result_{index}.npy"
            buffer = io.BytesIO()
            np.save(buffer, result)
            files.write_output(buffer.getvalue(), str(path))
            line += f" -> {path}"
        sys.stdout.write(f"{line}\n")
    return 0


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UsageError(f"cannot make directory {path}: {e.strerror}") from None
