"""`mx-opt validate DIR`: the whole chain of every module of a tree, from its text to instruction words.

Results are compared byte for byte: the module's own before and after legalization, and the lowered programs' with the
JAX primitive's. Modules are checked in processes of their own: one that jaxlib crashes on fails alone.
"""

import contextlib
import multiprocessing
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path

import jax

from lowering.bir.chain import STAGES, Stage, run_chain
from lowering.cli import files, isolation
from lowering.cli.flags import Flags, UsageError
from lowering.validation import SUFFIXES, module_files, other_files

Work = tuple[Path, str, int, bool]
"""Path and name of a module, the seed, and whether float4_e2m1fn is accepted."""

_NAMED_OTHERS = 5
_LONGEST_REASON = 500

USAGE = "mx-opt validate DIR [--jobs N] [--seed N] [--no-allow-fp4]"


def run(arguments: Sequence[str]) -> int:
    """Prints a table, a row for each module and a column for each stage; returns 1 when a stage fails."""
    flags = Flags(USAGE)
    flags.integer("jobs", 1, "Modules checked at a time.")
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
    others = [str(p.relative_to(directory)) for p in other_files(directory)]
    if others:
        more = f" and {len(others) - _NAMED_OTHERS} more" if len(others) > _NAMED_OTHERS else ""
        named = ", ".join(others[:_NAMED_OTHERS])
        sys.stdout.write(f"skipped, because the suffix is none of {', '.join(SUFFIXES)}: {named}{more}\n")
    sys.stdout.write(f"{len(found)} modules, {failures} failed\n")
    return 1 if failures else 0


def _chains(work: Sequence[Work], jobs: int) -> Iterator[list[Stage]]:
    """The stages of every module, in order."""
    done: dict[int, list[Stage]] = {}
    workers: list[_Worker] = []
    waiting = iter(enumerate(work))
    try:
        for index, item in zip(range(jobs), waiting, strict=False):
            workers.append(_Worker())
            workers[index].give(*item)
        for index in range(len(work)):
            while index not in done:
                ready = wait([w.connection for w in workers])
                for at, worker in enumerate(workers):
                    if worker.connection not in ready:
                        continue
                    stages = worker.take()
                    if stages is None:
                        continue
                    done[worker.index] = stages
                    following = next(waiting, None)
                    if following is None or not worker.alive:
                        worker.stop()
                    if following is not None:
                        workers[at] = worker if worker.alive else _Worker()
                        workers[at].give(*following)
                workers = [w for w in workers if w.alive]
            yield done.pop(index)
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """A process that checks one module after the other.

    Attributes:
        connection: Has something to read when a module is done, or the process gone.
        index: The module being checked.
        alive: Whether the process can be given another module.
    """

    def __init__(self) -> None:
        # Processes are started afresh: XLA's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        self._log = tempfile.NamedTemporaryFile()  # noqa: SIM115  it lives as long as the process
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, os.getpid(), self._log.name), daemon=True)
        self._process.start()
        theirs.close()
        self._stages: list[Stage] = []
        self.index = -1
        self.alive = True

    def give(self, index: int, item: Work) -> None:
        """Has the process check a module."""
        self.index = index
        self._stages = []
        with contextlib.suppress(ConnectionError):  # the process is gone, which `take` finds out
            self.connection.send(item)

    def take(self) -> list[Stage] | None:
        """Reads what there is; returns the module's stages once there are all, and None before.

        The last one says how the process ended when it did not come back from the module.
        """
        try:
            stage: Stage | None = self.connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            self.alive = False
            at = min(len(self._stages), len(STAGES) - 1)
            return [*self._stages[:at], Stage(STAGES[at], False, "crashed", (self._reason(),))]
        if stage is None:
            return self._stages
        self._stages.append(stage)
        return None

    def stop(self) -> None:
        """Ends the process."""
        self.alive = False
        self._process.kill()
        self._process.join()
        self.connection.close()
        self._log.close()

    def _reason(self) -> str:
        code = self._process.exitcode or 0
        how = f"jaxlib stopped the process, {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        # What jaxlib says comes before the frames of its stack, what Python says after its own.
        said = [line.strip() for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return how + (f": {said[0 if code < 0 else -1][:_LONGEST_REASON]}" if said else "")


def _serve(work: "Connection[Stage | None, Work]", parent: int, log: str) -> None:
    """Checks modules until the parent has no more; what jaxlib prints goes to a file."""
    isolation.die_with(parent)
    jax.config.update("jax_platforms", "cpu")
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 2)
    while True:
        try:
            item = work.recv()
        except EOFError:
            return
        os.ftruncate(descriptor, 0)
        _chain(item, work.send)
        work.send(None)


def _chain(work: Work, send: Callable[[Stage], None]) -> None:
    path, name, seed, allow_fp4 = work
    try:
        data = path.read_bytes()
    except OSError as e:
        send(Stage("parse", False, "unreadable", (f"cannot read {path}: {e.strerror}",)))
        return
    run_chain(data, name, seed=seed, allow_fp4=allow_fp4, after_each=send)


def _row(name: str, cells: Sequence[str], width: int) -> str:
    return f"{name:{width}}  {''.join(f'{cell:<13}' for cell in cells)}".rstrip()
