"""Signals that end `mx-opt`: the child ends too, nothing is written, nothing is left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lowering.tools import stablehlo

SLEEPER = """\
import os, pathlib, sys, time
from jax_mx._atomic import replacing
from lowering.cli import isolation

isolation.GRACE_SECONDS = {grace}

def command():
    with replacing(pathlib.Path(sys.argv[1])) as temporary:
        temporary.write_bytes(b"new")
        print(os.getpid(), flush=True)
        {sleep}
    return 0

sys.exit(isolation.run_isolated(command, lambda crash: print(crash)))
"""
STUBBORN = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); time.sleep(30)"
ENDING = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]


@contextlib.contextmanager
def sleeping(
    target: Path, sleep: str = "time.sleep(30)", grace: int = 20
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A command that is about to replace a file, and the process id of its child."""
    command = [sys.executable, "-c", SLEEPER.format(sleep=sleep, grace=grace), str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 2
    while is_alive(pid):
        assert time.monotonic() < deadline, "the child lives on"
        time.sleep(0.01)


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("to_group", [False, True], ids=["parent", "group"])
def test_a_signal_ends_the_child_and_changes_nothing(tmp_path: Path, number: signal.Signals, to_group: bool) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"old")
    with sleeping(target) as (process, child):
        (os.killpg if to_group else os.kill)(process.pid, number)
        assert process.wait(60) == 128 + number
        assert not is_alive(child)
        assert process.stdout is not None and process.stdout.read() == ""
    assert (target.read_bytes(), [p.name for p in tmp_path.iterdir()]) == (b"old", ["out"])


def test_a_child_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with sleeping(tmp_path / "out", STUBBORN, grace=1) as (process, child):
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
        assert not is_alive(child)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie a child to its parent")
def test_a_killed_parent_takes_the_child_along(tmp_path: Path) -> None:
    with sleeping(tmp_path / "out") as (process, child):
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        wait_for_end(child)
    assert not (tmp_path / "out").exists()


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does
    try:
        with sleeping(tmp_path / "out", "time.sleep(0.3)") as (process, _):
            os.killpg(process.pid, signal.SIGHUP)
            assert process.wait(60) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (tmp_path / "out").read_bytes() == b"new"


def test_handlers_are_put_back(tmp_path: Path) -> None:
    code = """\
import signal
from lowering.cli.isolation import run_isolated
numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM]
before = [signal.getsignal(n) for n in numbers]
assert run_isolated(lambda: 3, print) == 3
assert [signal.getsignal(n) for n in numbers] == before
assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("number", ENDING)
def test_the_console_script_that_waits_for_input_ends(tmp_path: Path, number: signal.Signals) -> None:
    code = "from lowering.mx_opt import console_main; console_main()"
    target = tmp_path / "out.mlir"
    command = [sys.executable, "-c", code, "-", "-o", str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdin is not None and process.stderr is not None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if not children.exists():
            process.kill()
            pytest.skip("there is no /proc that lists children")
        deadline = time.monotonic() + 60
        while not children.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.5)
        process.stdin.write(stablehlo().encode())
        process.stdin.flush()  # but not closed: the input has no end
        process.send_signal(number)
        assert process.wait(60) == 128 + number
        assert process.stderr.read() == b""
    assert list(tmp_path.iterdir()) == []
