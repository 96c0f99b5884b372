"""Published checkpoints become `MXArray`s without a change to any byte of code or scale."""

# ruff: noqa: E501 - a table reads best a row a line

import pathlib
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import jax_mx
from jax_mx import MXArray, checkpoint
from tests.arrays import assert_same

HERE = pathlib.Path(__file__).parent


def random_bytes(seed: int, *shape: int, low: int = 0, high: int = 256) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, shape, dtype=np.uint8)


def nibbles(packed: np.ndarray) -> np.ndarray:
    """Two codes a byte, the first in the low nibble, as one code a byte."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)


def weight_of(loaded: dict[str, Any], name: str) -> MXArray:
    assert isinstance(loaded[name], MXArray)
    return loaded[name]


@pytest.mark.parametrize("file", ["torchao", "compressed_tensors"])
def test_files_written_by_other_libraries(file: str) -> None:
    """Codes, scale bytes and values are those that the library itself has in memory."""
    loaded = checkpoint.load(HERE / f"{file}.safetensors")
    with np.load(HERE / "expected.npz") as expected:
        names = {key.split("/")[1] for key in expected.files if key.startswith(f"{file}/")}
        assert names == {name for name, value in loaded.items() if isinstance(value, MXArray)}
        assert len(names) == {"torchao": 3, "compressed_tensors": 2}[file]
        for name in names:
            weight = weight_of(loaded, name)
            assert weight.shape == (24, 256) and weight.axis == 1 and weight.rule is None
            codes = jax_mx.unpack_x4(weight.data, weight.format.name)
            assert_same(codes, expected[f"{file}/{name}/codes"], f"{name}: codes")
            assert_same(weight.scale, expected[f"{file}/{name}/scale"], f"{name}: scales")
            values = np.asarray(weight.dequantize("float32"))
            assert_same(values.view(np.uint32), expected[f"{file}/{name}/values"].view(np.uint32), f"{name}: values")


def test_formats_of_other_libraries_are_recognised() -> None:
    loaded = checkpoint.load(HERE / "torchao.safetensors")
    formats = [weight_of(loaded, f"{i}.weight").format.name for i in range(3)]
    assert formats == ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"]
    assert loaded["0.bias"].dtype == ml_dtypes.bfloat16 and loaded["0.bias"].shape == (24,)


@pytest.mark.parametrize("separator", ["_", "."])
@pytest.mark.parametrize("leading", [(6,), (3, 6)])
def test_mxfp4_blocks(tmp_path: pathlib.Path, separator: str, leading: tuple[int, ...]) -> None:
    blocks, scales = random_bytes(0, *leading, 8, 16), random_bytes(1, *leading, 8)
    path = tmp_path / "model.safetensors"
    save_file({f"mlp.up{separator}blocks": blocks, f"mlp.up{separator}scales": scales}, path)
    weight = weight_of(checkpoint.load(path), "mlp.up")
    assert weight.format.name == "float4_e2m1fn" and weight.shape == (*leading, 256)
    assert weight.data.dtype == np.uint16
    assert np.asarray(weight.data).tobytes() == blocks.tobytes()
    assert_same(weight.scale, scales, "scales")
    codes = jax_mx.unpack_x4(weight.data, "float4_e2m1fn")
    assert_same(codes, nibbles(blocks.reshape(*leading, 128)), "codes")


def test_mxfp4_values_by_hand(tmp_path: pathlib.Path) -> None:
    blocks = np.zeros((1, 1, 16), np.uint8)
    blocks[0, 0, :3] = [0x21, 0xF7, 0x80]  # codes 1, 2, 7, 15, 0, 8
    path = tmp_path / "model.safetensors"
    save_file({"w_blocks": blocks, "w_scales": np.array([[128]], np.uint8)}, path)
    values = np.asarray(weight_of(checkpoint.load(path), "w").dequantize("float32"))
    assert values[0, :6].tolist() == [1.0, 2.0, 12.0, -12.0, 0.0, 0.0]
    assert np.signbit(values[0, 5])


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_mxfp8_beside_tensors_that_are_none(tmp_path: pathlib.Path, dtype: Any) -> None:
    codes, scales = random_bytes(2, 5, 100).view(dtype), random_bytes(3, 5, 4)
    others = {
        "bias": np.arange(3, dtype=np.float32),
        "plain8": random_bytes(4, 4, 32).view(dtype),  # no scales: not MX
        "fp8.weight": random_bytes(5, 4, 32).view(dtype),  # one float scale for all: not MX
        "fp8.weight_scale": np.ones((), np.float32),
        "odd": random_bytes(6, 3),
        "empty": np.zeros((0, 4), np.int64),
    }
    path = tmp_path / "model.safetensors"
    save_file({"w": codes, "w_scale": scales, **others}, path)
    opened = checkpoint.open_checkpoint(path)
    assert list(opened.weights) == ["w"] and set(opened.others) == set(others)
    weight = opened.read("w")
    assert isinstance(weight, MXArray)
    assert weight.format.name == np.dtype(dtype).name and weight.shape == (5, 100)
    assert np.asarray(weight.data).tobytes() == codes.tobytes()
    assert_same(weight.scale, scales, "scales")
    for name, array in others.items():
        got = opened.read(name)
        assert isinstance(got, np.ndarray)
        assert (got.dtype, got.shape, got.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_rows_and_streaming(tmp_path: pathlib.Path) -> None:
    blocks, scales = random_bytes(7, 6, 4, 16), random_bytes(8, 6, 4)
    path = tmp_path / "model.safetensors"
    save_file({"w_blocks": blocks, "w_scales": scales, "b": np.arange(10)}, path)
    opened = checkpoint.open_checkpoint(path)
    whole = opened.read("w")
    part = opened.read("w", slice(2, 5))
    assert isinstance(part, MXArray) and part.shape == (3, 128)
    assert np.array_equal(part.data, whole.data[2:5]) and np.array_equal(part.scale, whole.scale[2:5])
    assert opened.read("b", slice(3, None)).tolist() == list(range(3, 10))
    assert [name for name, _ in opened.items()] == list(opened.names) == ["w", "b"]


def test_a_loaded_weight_multiplies(tmp_path: pathlib.Path) -> None:
    codes, scales = random_bytes(9, 8, 64, high=0x7E), random_bytes(10, 8, 2, low=118, high=124)
    path = tmp_path / "model.safetensors"
    save_file({"w": codes.view(ml_dtypes.float8_e4m3fn), "w_scale": scales}, path)
    weight = weight_of(checkpoint.load(path), "w")
    x = MXArray.quantize(jax.random.normal(jax.random.key(0), (4, 64)).astype("bfloat16"))
    want = np.float64(x.dequantize("float32")) @ np.float64(weight.dequantize("float32")).T
    np.testing.assert_allclose(np.float64(x @ weight.T), want, rtol=2**-7, atol=0.1)


Tensors = dict[str, np.ndarray]
CASES: list[tuple[str, Tensors, str]] = [
    ("block", {"w_blocks": random_bytes(0, 4, 2, 8), "w_scales": random_bytes(0, 4, 2)}, r"w_blocks: got shape \[4, 2, 8\], want \[\.\.\., K/32, 16\] \(MXFP4 blocks\)"),
    ("scales", {"w_blocks": random_bytes(0, 4, 2, 16), "w_scales": random_bytes(0, 4, 3)}, r"w_scales: got shape \[4, 3\], want \[4, 2\] for the codes w_blocks of shape \[4, 2, 16\]"),
    ("mxfp8", {"w": random_bytes(0, 4, 64).view(ml_dtypes.float8_e4m3fn), "w_scale": random_bytes(0, 4, 64)}, r"w_scale: got shape \[4, 64\], want \[4, 2\]"),
    ("length", {"w": random_bytes(0, 4, 62).view(ml_dtypes.float8_e4m3fn), "w_scale": random_bytes(0, 4, 2)}, r"w: got shape \[4, 62\] of F8_E4M3, want a multiple of 4 codes"),
    ("two", {"w_blocks": random_bytes(0, 4, 2, 16), "w_scales": random_bytes(0, 4, 2), "w": np.zeros(3)}, r"w: got more than one tensor that stores it"),
]  # fmt: skip


@pytest.mark.parametrize(("tensors", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_tensors_that_contradict_each_other(tmp_path: pathlib.Path, tensors: Tensors, text: str) -> None:
    path = tmp_path / "model.safetensors"
    save_file(tensors, path)
    with pytest.raises(checkpoint.CheckpointError, match=rf"model\.safetensors: {text}"):
        checkpoint.load(path)


def test_swizzled_scales_are_refused_by_name() -> None:
    with pytest.raises(checkpoint.CheckpointError, match=r"0\.weight: got scales in a GPU's swizzled order"):
        checkpoint.load(HERE / "torchao_swizzled.safetensors")


def test_files_that_are_none(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"w": np.zeros(64)}, path)
    whole = path.read_bytes()
    for content in (b"", b"\0" * 4, whole[:20], whole[:-1], whole + b"\0", b"\xff" * 100):
        path.write_bytes(content)
        with pytest.raises(checkpoint.CheckpointError, match="not a valid safetensors file"):
            checkpoint.load(path)
    with pytest.raises(FileNotFoundError):
        checkpoint.load(tmp_path / "none.safetensors")
    with pytest.raises(KeyError, match=r"no tensor 'v'; it has"):
        checkpoint.open_checkpoint(HERE / "torchao.safetensors").read("v")


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jax_mx.checkpoint._safetensors.safetensors", None)
    with pytest.raises(ImportError, match=r"pip install 'jax-mx\[checkpoint\]'"):
        checkpoint.load(HERE / "torchao.safetensors")
