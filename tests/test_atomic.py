"""Files that are replaced all at once: what a failure, a link, a device and the mode of a file come to."""

import concurrent.futures
import os
import pathlib
import socket
import stat
import tempfile
from collections.abc import Callable
from unittest import mock

import numpy as np
import pytest

from jax_mx import checkpoint, compare_rules, plot
from jax_mx._atomic import replacing, write_bytes
from tests.lowering.tools import hlo, mx_opt

X = np.linspace(-3, 5, 128, dtype=np.float32).reshape(2, 64)
Writer = Callable[[pathlib.Path], object]


def replace(path: pathlib.Path) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(b"new")


def mx_opt_output(path: pathlib.Path) -> None:
    result = mx_opt("-", "-o", path, stdin=hlo().encode())
    assert result.status in (0, 2)
    if result.status:
        raise OSError(result.stderr)


WRITERS: dict[str, Writer] = {
    "replacing": replace,
    "write_bytes": lambda path: write_bytes(path, b"new"),
    "mx-opt": mx_opt_output,
    "save_npz": lambda path: checkpoint.save_npz(path, {"x": X}),
    "plot_rules": lambda path: plot.plot_rules(compare_rules(X, "float8_e4m3fn"), path),
}


@pytest.fixture(params=WRITERS.values(), ids=WRITERS)
def write(request: pytest.FixtureRequest) -> Writer:
    return request.param


def mode(path: pathlib.Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_has_the_mode_of_new_files(write: Writer, tmp_path: pathlib.Path) -> None:
    mask = os.umask(0o027)
    try:
        write(tmp_path / "out.png")
    finally:
        os.umask(mask)
    assert mode(tmp_path / "out.png") == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["out.png"]


def test_an_existing_file_keeps_its_mode(write: Writer, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "out.png"
    path.write_bytes(b"old")
    path.chmod(0o600)
    write(path)
    assert (mode(path), path.read_bytes() == b"old") == (0o600, False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_an_existing_file_keeps_its_owner(write: Writer, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "out.png"
    path.write_bytes(b"old")
    os.chown(path, 65534, 65533)
    write(path)
    assert (path.stat().st_uid, path.stat().st_gid, path.read_bytes() == b"old") == (65534, 65533, False)


@pytest.mark.parametrize("exists", [True, False])
def test_links_are_followed(write: Writer, tmp_path: pathlib.Path, exists: bool) -> None:
    place, link = tmp_path / "there" / "out.png", tmp_path / "link.png"
    place.parent.mkdir()
    if exists:
        place.write_bytes(b"old")
    link.symlink_to(pathlib.Path("there") / "out.png")
    write(link)
    assert link.is_symlink()
    assert place.read_bytes() not in (b"", b"old")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.png", "there"]


def test_what_is_no_regular_file_stays_what_it_is(write: Writer, tmp_path: pathlib.Path) -> None:
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        got = pool.submit(pipe.read_bytes)
        write(pipe)
        assert got.result(timeout=60) != b""
    assert pipe.is_fifo()
    null = tmp_path / "null.png"
    null.symlink_to("/dev/null")
    write(null)
    assert pathlib.Path("/dev/null").is_char_device() and null.is_symlink()
    (tmp_path / "directory.png").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        write(tmp_path / "directory.png")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket.png"))
        with pytest.raises(OSError, match="No such device or address"):
            write(tmp_path / "socket.png")
    loop = tmp_path / "loop.png"
    loop.symlink_to("loop.png")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        write(loop)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "directory.png", "loop.png", "null.png", "pipe.png", "socket.png",
    ]  # fmt: skip


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="needs a full device")
def test_a_full_device_is_an_error(write: Writer, tmp_path: pathlib.Path) -> None:
    (tmp_path / "full.png").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        write(tmp_path / "full.png")


def test_a_file_that_is_open_and_deleted(write: Writer, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "gone.png"
    with path.open("w+b") as file:
        path.unlink()
        link = tmp_path / "open.png"
        link.symlink_to(f"/proc/self/fd/{file.fileno()}")
        if not link.exists():
            pytest.skip("there is no /proc")
        write(link)
        assert file.read() != b""
    assert [p.name for p in tmp_path.iterdir()] == ["open.png"]


def test_a_file_that_may_not_be_written_to_is_left_alone(write: Writer) -> None:
    """The directory alone would allow it."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        directory.chmod(0o777)
        path = directory / "out.png"
        path.write_bytes(b"old")
        path.chmod(0o444)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)  # root may write to anything
        try:
            with pytest.raises(OSError, match="Permission denied"):
                write(path)
            write_bytes(directory / "other", b"new")
        finally:
            if root:
                os.seteuid(0)
        assert (path.read_bytes(), mode(path)) == (b"old", 0o444)
        assert sorted(p.name for p in directory.iterdir()) == ["other", "out.png"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), SystemExit(143)])
def test_a_failure_changes_nothing(tmp_path: pathlib.Path, error: BaseException) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with pytest.raises(type(error)), replacing(path) as temporary:
        temporary.write_bytes(b"a part")
        raise error
    with pytest.raises(type(error)), mock.patch.object(pathlib.Path, "replace", side_effect=error):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_names_as_long_as_the_file_system_allows(tmp_path: pathlib.Path) -> None:
    path = tmp_path / ("é" * 127)
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
