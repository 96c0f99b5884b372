"""`mx-opt validate DIR`: the whole chain of every module of a tree, from its text to instruction words.

Results are compared byte for byte: the module's own before and after legalization, and the lowered programs' with the
JAX primitive's.
"""

import concurrent.futures
import multiprocessing
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax

from lowering.bir.chain import STAGES, Stage, run_chain
from lowering.cli import files, isolation
from lowering.cli.flags import Flags, UsageError
from lowering.validation import SUFFIXES, module_files

USAGE = "mx-opt validate DIR [--jobs N] [--seed N] [--no-allow-fp4]"


def run(arguments: Sequence[str]) -> int:
    """Prints a table, a row for each module and a column for each stage; returns 1 when a stage fails."""
    flags = Flags(USAGE)
    flags.integer("jobs", 1, "Modules checked at a time, each in a process of its own when more than 1.")
    flags.integer("seed", -1, "Seed of the random inputs; a random one, printed, by default.")
    flags.boolean("no-allow-fp4", "Refuse float4_e2m1fn.")
    directory = Path(files.one_file(flags.parse(arguments), USAGE))
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory")
    found = module_files(directory)
    if not found:
        raise UsageError(f"{directory} has no module files ({', '.join(SUFFIXES)})")
    if flags["jobs"] < 1:
        raise UsageError(f"--jobs is {flags['jobs']}, wanted 1 or more")
    seed = flags["seed"] if flags["seed"] >= 0 else secrets.randbelow(2**31)
    names = [str(p.relative_to(directory)) for p in found]
    width = max(map(len, [*names, "module"]))
    sys.stdout.write(f"seed {seed}\n{_row('module', STAGES, width)}\n")
    failures = 0
    work = [(path, name, seed, not flags["no-allow-fp4"]) for path, name in zip(found, names, strict=True)]
    for name, stages in zip(names, _chains(work, flags["jobs"]), strict=True):
        failures += not stages[-1].ok
        cells = [stage.summary if stage.ok else "FAILED" for stage in stages]
        cells += ["-"] * (len(STAGES) - len(cells))
        sys.stdout.write(f"{_row(name, cells, width)}\n")
        for problem in stages[-1].problems:
            sys.stdout.write(f"    {stages[-1].name}: {problem}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(found)} modules, {failures} failed\n")
    return 1 if failures else 0


def _chains(work: Sequence[tuple[Path, str, int, bool]], jobs: int) -> Iterator[list[Stage]]:
    """The stages of every module, in order."""
    if jobs == 1:
        yield from map(_chain, work)
        return
    # Processes are started afresh: XLA's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        jobs, mp_context=context, initializer=_start, initargs=(os.getpid(),)
    ) as pool:
        yield from pool.map(_chain, work)


def _chain(work: tuple[Path, str, int, bool]) -> list[Stage]:
    path, name, seed, allow_fp4 = work
    try:
        data = path.read_bytes()
    except OSError as e:
        return [Stage("parse", False, "unreadable", (f"cannot read {path}: {e.strerror}",))]
    return run_chain(data, name, seed=seed, allow_fp4=allow_fp4)


def _start(parent: int) -> None:
    isolation.die_with(parent)
    jax.config.update("jax_platforms", "cpu")


def _row(name: str, cells: Sequence[str], width: int) -> str:
    return f"{name:{width}}  {''.join(f'{cell:<13}' for cell in cells)}".rstrip()
