"""`mx-opt validate DIR`: every module of a tree, run before and after legalization, results compared byte for byte."""

import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from lowering.cli import files
from lowering.cli.flags import Flags, UsageError
from lowering.validation import SUFFIXES, module_files, validate_module

USAGE = "mx-opt validate DIR [--seed N] [--no-allow-fp4]"


def run(arguments: Sequence[str]) -> int:
    """Prints a table; returns 1 when a module differs or cannot be run."""
    flags = Flags(USAGE)
    flags.integer("seed", -1, "Seed of the random inputs; a random one, printed, by default.")
    flags.boolean("no-allow-fp4", "Refuse float4_e2m1fn.")
    directory = Path(files.one_file(flags.parse(arguments), USAGE))
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory")
    found = module_files(directory)
    if not found:
        raise UsageError(f"{directory} has no module files ({', '.join(SUFFIXES)})")
    seed = flags["seed"] if flags["seed"] >= 0 else secrets.randbelow(2**31)
    sys.stdout.write(f"seed {seed}\n")
    width = max(len(str(p.relative_to(directory))) for p in found)
    failures = 0
    for path in found:
        name = str(path.relative_to(directory))
        outcome = validate_module(path.read_bytes(), name, seed=seed, allow_fp4=not flags["no-allow-fp4"])
        failures += not outcome.ok
        sys.stdout.write(f"{name:{width}}  {outcome.calls:4} calls  {outcome.results:3} results  {outcome.verdict}\n")
    sys.stdout.write(f"{len(found)} modules, {failures} failed\n")
    return 1 if failures else 0
