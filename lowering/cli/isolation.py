"""Runs a command in a child process, so that input which crashes jaxlib ends in a diagnostic.

jaxlib checks some of its assumptions by stopping the process, and deep nesting can overflow its stack. A command
line tool meets such input; it must answer with a diagnostic and exit status 1. The child is forked before any thread
exists, which costs about a millisecond.
"""

import os
import signal
import sys
from collections.abc import Callable

from lowering.diagnostics import Diagnostic


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
    crash = Diagnostic(
        code="MX012",
        cause=f"jaxlib stopped the process with {signal.Signals(-status).name}",
        resolution="the input breaks an assumption of jaxlib's; lines above, if any, say which",
    )
    sys.stderr.write(f"{crash}\n")
    return 1
