"""`.npy` files of all kinds: numbers are loaded with their bits, everything else is named and refused."""

import io
import os
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lowering.arrays import ArrayFileError, load_array
from tests.lowering.tools import FIXTURES, mx_opt, stablehlo

K36 = FIXTURES / "bir" / "k36.json"


def saved(array: Any) -> bytes:
    content = io.BytesIO()
    np.save(content, array, allow_pickle=True)
    return content.getvalue()


def zipped() -> bytes:
    content = io.BytesIO()
    np.savez(content, a=np.ones(3))
    return content.getvalue()


X = saved(np.ones((2, 3), np.float32))
REFUSED = {
    "archive": (zipped(), "x.npy holds several arrays; give a .npy file of one"),
    "cut-archive": (zipped()[:40], "x.npy is no .npy file of numbers: File is not a zip file"),
    "structured": (saved(np.zeros(2, [("a", "f4"), ("b", "u1")])), "its dtype is [('a', '<f4'), ('b', 'u1')]"),
    "structured-byte": (saved(np.zeros(2, [("a", "u1")])), "its dtype is [('a', 'u1')]"),
    "strings": (saved(np.array(["a", "b"])), "its dtype is <U1"),
    "bytes": (saved(np.array([b"a"])), "its dtype is |S1"),
    "dates": (saved(np.array(["2020-01-01"], "M8[D]")), "its dtype is datetime64[D]"),
    "complex": (saved(np.ones(2, np.complex64)), "its dtype is complex64"),
    "three-bytes": (saved(np.zeros(2, "V3")), "its dtype is |V3"),
    "objects": (saved(np.array([{}])), "x.npy is no .npy file of numbers: Object arrays cannot be loaded"),
    "empty": (b"", "x.npy is empty"),
    "text": (b"no array", "x.npy is no .npy file of numbers: "),
    "cut-header": (X[:20], "x.npy is no .npy file of numbers: "),
    "cut": (X[:-1], "x.npy is no .npy file of numbers: "),
    "huge": (X.replace(b"(2, 3)", b"(9**19,)").replace(b"9**19", b"9" * 5), "x.npy is no .npy file of numbers: "),
    "negative": (X.replace(b"(2, 3)", b"(-2,3)"), "x.npy is no .npy file of numbers: "),
}


@pytest.mark.parametrize(("content", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_array_of_numbers(tmp_path: Path, content: bytes, message: str) -> None:
    path, module = tmp_path / "x.npy", tmp_path / "m.mlir"
    path.write_bytes(content)
    module.write_text(stablehlo())
    with pytest.raises(ArrayFileError) as caught:
        load_array(path)
    assert message in str(caught.value)
    for status, *command in (
        (1, "run", module, f"--input={path}"),
        (1, "bir", "simulate", K36, f"--input=x={path}"),
        (2, "rules", path),
    ):
        result = mx_opt(*command)
        assert (result.status, result.stdout) == (status, b"")
        assert message in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("dtype", ["float16", ">f4", "float64", "int8", ">u2", "bool"])
def test_numbers(tmp_path: Path, dtype: str) -> None:
    want = np.arange(6).reshape(2, 3).astype(dtype)
    np.save(tmp_path / "x.npy", want)
    loaded = load_array(tmp_path / "x.npy")
    assert loaded.dtype.isnative
    assert (loaded.dtype, loaded.tolist()) == (np.dtype(dtype).newbyteorder("="), want.tolist())


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e8m0fnu"])
def test_dtypes_that_numpy_stores_as_raw_bytes(tmp_path: Path, dtype: str) -> None:
    want = np.arange(1, 7).reshape(2, 3).astype(getattr(ml_dtypes, dtype))
    np.save(tmp_path / "x.npy", want)
    assert load_array(tmp_path / "x.npy").tobytes() == want.tobytes()


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "x.npy"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"",))
    writer.start()
    result = mx_opt("rules", pipe)
    writer.join()
    assert result.status == 2
    assert result.stderr.startswith(f"mx-opt: {pipe} is no .npy file of numbers: ")


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    module = tmp_path / "m.mlir"
    module.write_text(stablehlo())
    for command in (
        ("run", module, f"--input={tmp_path}"),
        ("bir", "simulate", K36, f"--input=x={tmp_path}"),
        ("rules", tmp_path),
    ):
        result = mx_opt(*command)
        assert (result.status, result.stderr) == (2, f"mx-opt: cannot read {tmp_path}: Is a directory\n")


def test_seeds_are_not_negative(tmp_path: Path) -> None:
    module = tmp_path / "m.mlir"
    module.write_text(stablehlo())
    for command in (("run", module), ("bir", "simulate", K36)):
        result = mx_opt(*command, "--seed=-1")
        assert result.status == 2
        assert result.stderr.startswith("mx-opt: flag --seed=-1: ")
