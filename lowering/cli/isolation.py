"""Runs a command in a child process, so that input which crashes jaxlib ends in a diagnostic.

jaxlib checks some of its assumptions by stopping the process, and deep nesting can overflow its stack. A command
line tool meets such input; it must answer with a diagnostic and exit status 1. The child is forked before any thread
exists, which costs about a millisecond.
"""

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import IO

from lowering.diagnostics import Diagnostic

_is_child = False
_log: IO[bytes] | None = None
"""What jaxlib prints while it reads the input; shared by parent and child."""


def run_isolated(command: Callable[[], int], report: Callable[[Diagnostic], None]) -> int:
    """Runs a command in a forked child; returns its exit status, 1 when a signal ended it.

    Where there is no fork, the command runs in this process.

    Args:
        command: Returns an exit status.
        report: Called with a diagnostic of code MX012 when a signal ended the command.
    """
    if not hasattr(os, "fork"):
        return command()
    global _is_child, _log
    _log = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _is_child = True
        status = 1
        try:
            status = command()
            sys.stdout.flush()
        except SystemExit as e:
            status = e.code if isinstance(e.code, int) else 0
        except BrokenPipeError:
            # The reader of our output went away; nothing is left to say, not even at interpreter exit.
            status = 1
        except KeyboardInterrupt:
            status = 130
        except BaseException:  # noqa: BLE001  a forked child must end here, whatever happened
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)
    try:
        _, raw = os.waitpid(child, 0)
    except KeyboardInterrupt:
        os.kill(child, signal.SIGINT)
        _, raw = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(raw)
    if status >= 0:
        return status
    name = signal.Signals(-status).name
    timed_out = -status == signal.SIGALRM
    said = _said()
    cause = "jaxlib did not come back from reading the input" if timed_out else f"jaxlib stopped the process, {name}"
    resolution = f"the input breaks an assumption of jaxlib's{said and f': {said}'}"
    report(Diagnostic(code="MX012", cause=cause, resolution=resolution))
    return 1


@contextlib.contextmanager
def guarded_reading(seconds: int) -> Iterator[Callable[[], str]]:
    """Ends an isolated command that spends more than this within the block, and keeps what jaxlib prints to itself.

    Damaged input can make jaxlib hang, and print messages and stack traces of its own. The alarm is left to its default
    action, which works even while jaxlib holds Python's lock. Without isolation nothing is done: the process and its
    standard error are not ours.

    Yields:
        A function that returns the first line that jaxlib has printed within the block.
    """
    if not _is_child or _log is None:
        yield lambda: ""
        return
    sys.stderr.flush()
    saved = os.dup(2)
    os.dup2(_log.fileno(), 2)
    signal.alarm(seconds)
    try:
        yield _said
    finally:
        signal.alarm(0)
        os.dup2(saved, 2)
        os.close(saved)


def _said() -> str:
    if _log is None:
        return ""
    _log.seek(0)
    lines = _log.read(10_000).decode(errors="replace").splitlines()
    return next((line.strip()[:500] for line in lines if line.strip()), "")
