"""Two processes with four devices each, joined by `jax.distributed`: one array, sharded over both."""

import os
import pathlib
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent
TIMEOUT = 300  # seconds until a process that waits for a dead one is given up


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_quantize_and_multiply_over_two_processes() -> None:
    address = f"127.0.0.1:{free_port()}"
    environment = {
        name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.one_of_two_processes", address, str(process)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for process in range(2)
    ]
    try:
        printed = [process.communicate(timeout=TIMEOUT)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for number, (process, output) in enumerate(zip(processes, printed, strict=True)):
        assert process.returncode == 0, f"process {number}:\n{output}"
        assert f"process {number} ('chip', 'host') same" in output
        assert f"process {number} ('host', None) same" in output
