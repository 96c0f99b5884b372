"""Runs a command in a child process, so that input which crashes jaxlib ends in a diagnostic.

jaxlib checks some of its assumptions by stopping the process, and deep nesting can overflow its stack. A command
line tool meets such input; it must answer with a diagnostic and exit status 1. The child is forked before any thread
exists, which costs about a millisecond.
"""

import contextlib
import ctypes
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import IO, NoReturn, Self

from lowering.diagnostics import Diagnostic

GRACE_SECONDS = 5
"""Time that a command has to clean up after a signal that ends it."""

_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_PR_SET_PDEATHSIG = 1

_is_child = False
_log: IO[bytes] | None = None
"""What jaxlib prints while it reads the input; shared by parent and child."""


def run_isolated(command: Callable[[], int], report: Callable[[Diagnostic], None]) -> int:
    """Runs a command in a forked child; returns its exit status, 1 when it crashed.

    What would end this process ends the child, which cleans up, and gives the exit status 128 and the signal's number.
    Where there is no fork, the command runs in this process.

    Args:
        command: Returns an exit status.
        report: Called with a diagnostic of code MX012 when a signal of its own ended the command.
    """
    if not hasattr(os, "fork"):
        return command()
    global _log
    _log = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
    sys.stdout.flush()
    sys.stderr.flush()
    # A signal that is ignored, as nohup has it, stays ignored.
    ending = [s for s in _ENDING if signal.getsignal(s) is not signal.SIG_IGN]
    with _Forwarding(ending) as forwarding:
        # Blocked until the child has its own handlers; the threads of libraries still take them for the parent.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ending)
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            _run_child(command, parent, ending, mask)
        forwarding.start(child)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _, raw = os.waitpid(child, 0)
    if forwarding.received:
        return 128 + forwarding.received[0]
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


def die_with(parent: int) -> None:
    """Has the system kill this process once `parent`, which started it, is gone; only Linux can."""
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):  # a C library that cannot be opened, or has no prctl
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it was gone before the system was asked
            os._exit(1)


def _run_child(
    command: Callable[[], int], parent: int, ending: Sequence[signal.Signals], mask: Iterable[int]
) -> NoReturn:
    """Runs the command and ends the process."""
    global _is_child
    _is_child = True
    status = 1
    try:
        die_with(parent)
        _raise_at(ending)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        status = command()
        sys.stdout.flush()
    except SystemExit as e:
        status = e.code if isinstance(e.code, int) else 0
    except BrokenPipeError:
        # The reader of our output went away; nothing is left to say, not even at interpreter exit.
        status = 1
    except BaseException:  # noqa: BLE001  a forked child must end here, whatever happened
        sys.excepthook(*sys.exc_info())
    finally:
        try:
            sys.stderr.flush()
        finally:
            os._exit(status)


def _raise_at(ending: Sequence[signal.Signals]) -> None:
    """Makes the first of these signals a SystemExit, so that temporary files are removed on the way out."""
    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        # A terminal sends its signal to parent and child, and the parent forwards its own: the second must not
        # interrupt what the first has begun.
        if not stopping:
            stopping = True
            raise SystemExit(128 + number)

    for number in ending:
        signal.signal(number, stop)


class _Forwarding:
    """Sends signals on to a child within the block, and kills it when it does not end soon after.

    Attributes:
        received: The signals, in order.
    """

    def __init__(self, ending: Sequence[signal.Signals]):
        self.received: list[int] = []
        self._child: int | None = None
        self._handled = [*ending, signal.SIGALRM]

    def __enter__(self) -> Self:
        self._before = [signal.signal(number, self._handle) for number in self._handled]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.alarm(0)
        for number, handler in zip(self._handled, self._before, strict=True):
            signal.signal(number, handler or signal.SIG_DFL)

    def start(self, child: int) -> None:
        """Names the child; it also gets what came before it had a name."""
        self._child = child
        for number in self.received[:]:
            self._send(number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGALRM:
            self._send(signal.SIGKILL)
            return
        self.received.append(number)
        self._send(number)
        # Python sees a signal only once jaxlib returns to it, which can take as long as a program runs.
        signal.alarm(GRACE_SECONDS)

    def _send(self, number: int) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.kill(self._child, number)


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
