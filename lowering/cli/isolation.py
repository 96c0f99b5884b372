"""Runs a command in a child process, so that input which crashes jaxlib ends in a diagnostic.

jaxlib checks some of its assumptions by stopping the process, and deep nesting can overflow its stack. A command
line tool meets such input; it must answer with a diagnostic and exit status 1. The child is forked before any thread
exists, which costs about a millisecond.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator

from lowering.diagnostics import Diagnostic

_is_child = False


def run_isolated(command: Callable[[], int]) -> int:
    """Runs a command in a forked child; returns its exit status, 1 with code MX012 when a signal ended it.

    Where there is no fork, the command runs in this process.
    """
    if not hasattr(os, "fork"):
        return command()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        global _is_child
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
    crash = Diagnostic(
        code="MX012",
        cause="jaxlib did not come back from reading the input" if timed_out else f"jaxlib stopped the process, {name}",
        resolution="the input breaks an assumption of jaxlib's; lines above, if any, say which",
    )
    sys.stderr.write(f"{crash}\n")
    return 1


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Ends an isolated command that spends more than this within the block; damaged bytecode can make jaxlib hang.

    The alarm is left to its default action, which works even while jaxlib holds Python's lock. Without isolation
    there is no limit: the process is not ours to end.
    """
    if not _is_child:
        yield
        return
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
