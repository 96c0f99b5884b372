"""`convert`: the same bytes as x4 containers, streamed, in two layouts; and `mx-opt convert`."""

import concurrent.futures
import os
import pathlib
import tracemalloc
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import jax_mx
from jax_mx import MXArray, checkpoint
from tests.arrays import assert_same
from tests.checkpoints.test_reading import HERE, random_bytes
from tests.lowering.tools import mx_opt

BLOCKS, BLOCK_SCALES = random_bytes(0, 2, 6, 20, 16), random_bytes(1, 2, 6, 20)  # K = 640: one tile and a quadrant
CODES, CODE_SCALES = random_bytes(2, 5, 256), random_bytes(3, 5, 8)
BIAS = np.arange(3).astype(ml_dtypes.bfloat16)


@pytest.fixture
def model(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "model.safetensors"
    tensors = {
        "odd": random_bytes(4, 7),
        "experts_blocks": BLOCKS,
        "experts_scales": BLOCK_SCALES,
        "head": CODES.view(ml_dtypes.float8_e4m3fn),
        "head_scale": CODE_SCALES,
        "bias": BIAS,
        "plain8": CODES.view(ml_dtypes.float8_e5m2),
    }
    save_file(tensors, path, metadata={"format": "pt"})
    return path


def test_logical_layout_has_the_very_bytes(model: pathlib.Path) -> None:
    target = model.with_name("converted.safetensors")
    done = checkpoint.convert(model, target)
    assert {weight.name for weight in done.weights} == {"experts", "head"}
    assert set(done.copied) == {"odd", "bias", "plain8"}
    with safe_open(target, "np") as file:  # the real library checks the file
        assert file.metadata()["format"] == "pt" and "jax_mx" in file.metadata()
        experts, head = file.get_tensor("experts.data"), file.get_tensor("head.data")
        assert (experts.dtype, experts.shape, experts.tobytes()) == (np.uint16, (2, 6, 160), BLOCKS.tobytes())
        assert (head.dtype, head.shape, head.tobytes()) == (np.uint32, (5, 64), CODES.tobytes())
        assert file.get_tensor("experts.scale").tobytes() == BLOCK_SCALES.tobytes()
        assert file.get_tensor("head.scale").tobytes() == CODE_SCALES.tobytes()
        assert file.get_tensor("bias").tobytes() == BIAS.tobytes()
        assert file.get_slice("plain8").get_dtype() == "F8_E5M2"


@pytest.mark.parametrize("offset", [0, 4, 12])
def test_tile_layout_puts_every_byte_where_the_instruction_reads_it(model: pathlib.Path, offset: int) -> None:
    target = model.with_name("tiles.safetensors")
    checkpoint.convert(model, target, layout="tile", offset=offset)
    made = load_file(_without_8bit_floats(target))
    words = BLOCKS.reshape(2, 6, 320).view("<u2")
    assert made["experts.data"].shape == made["experts.scale"].shape == (2, 160, 6)
    for expert in range(2):
        for n in range(6):
            for partition in range(160):
                assert made["experts.data"][expert, partition, n] == words[expert, n, partition]
            for row in range(20):
                physical = (row & 3) + 32 * (row >> 2) + offset
                assert made["experts.scale"][expert, physical, n] == BLOCK_SCALES[expert, n, row]
    used = np.zeros(160, bool)
    used[[(row & 3) + 32 * (row >> 2) + offset for row in range(20)]] = True
    assert not made["experts.scale"][:, ~used].any()


def _without_8bit_floats(path: pathlib.Path) -> pathlib.Path:
    """The same file without the tensor that the library's numpy side cannot load."""
    with safe_open(path, "np") as file:
        kept = {name: file.get_tensor(name) for name in file.keys() if name != "plain8"}  # noqa: SIM118  no mapping
    return_path = path.with_suffix(".kept")
    save_file(kept, return_path)
    return return_path


def test_one_tile_is_what_the_tile_module_makes() -> None:
    x = jax.random.normal(jax.random.key(0), (6, 512)).astype("bfloat16")
    weight = MXArray.quantize(x)
    data, scale = checkpoint.to_tiles(weight, offset=8)
    tile_data, tile_scale = jax_mx.tile.quantize_mx_tile(jax_mx.tile.from_logical(x, axis=1))
    assert_same(data, tile_data, "data")
    assert_same(scale, jax_mx.tile.scale_to_physical(tile_scale, 8), "scales")
    back = checkpoint.from_tiles(data, scale, "float8_e4m3fn", offset=8)
    assert_same(back.data, weight.data, "data back")
    assert_same(back.scale, weight.scale, "scales back")


@pytest.mark.parametrize(("layout", "offset"), [("logical", 0), ("tile", 0), ("tile", 8)])
def test_what_is_converted_loads_as_the_same_weights(model: pathlib.Path, layout: str, offset: int) -> None:
    target = model.with_name("converted.safetensors")
    checkpoint.convert(model, target, layout=layout, offset=offset)
    before, after = checkpoint.load(model), checkpoint.load(target)
    assert before.keys() == after.keys()
    for name, value in before.items():
        for one, other in zip(jax.tree.leaves(value), jax.tree.leaves(after[name]), strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    part = checkpoint.open_checkpoint(target).read("head", slice(1, 3))
    assert isinstance(part, MXArray) and np.array_equal(part.scale, CODE_SCALES[1:3])


@pytest.mark.parametrize("layout", ["logical", "tile"])
def test_a_file_is_streamed_in_parts(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    """16 MB are converted with 256 kB at a time: what numpy and Python allocate stays far below the file's size."""
    monkeypatch.setattr("jax_mx.checkpoint._convert.CHUNK_BYTES", 1 << 18)
    source, target = tmp_path / "big.safetensors", tmp_path / "converted.safetensors"
    codes, scales = random_bytes(5, 4, 2048, 2048), random_bytes(6, 4, 2048, 64)
    save_file({"w": codes.view(ml_dtypes.float8_e4m3fn), "w_scale": scales}, source)
    steps: list[tuple[int, int]] = []
    tracemalloc.start()
    checkpoint.convert(source, target, layout=layout, progress=lambda done, total, name: steps.append((done, total)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2**20 < codes.nbytes / 3
    assert len(steps) >= 64 and steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1] == checkpoint.convert(source, target, layout=layout).nbytes
    loaded = checkpoint.load(target)["w"]
    assert np.asarray(loaded.data).tobytes() == codes.tobytes()
    assert np.asarray(loaded.scale).tobytes() == scales.tobytes()


@pytest.mark.parametrize("file", ["torchao", "compressed_tensors"])
def test_files_of_other_libraries_convert(tmp_path: pathlib.Path, file: str) -> None:
    checkpoint.convert(HERE / f"{file}.safetensors", tmp_path / "tiles.safetensors", layout="tile")
    before, after = checkpoint.load(HERE / f"{file}.safetensors"), checkpoint.load(tmp_path / "tiles.safetensors")
    for name, value in before.items():
        for one, other in zip(jax.tree.leaves(value), jax.tree.leaves(after[name]), strict=True):
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_errors_leave_the_target_as_it_was(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    target = tmp_path / "target.safetensors"
    target.write_bytes(b"precious")
    narrow = tmp_path / "narrow.safetensors"
    save_file({"w_blocks": random_bytes(7, 4, 2, 16), "w_scales": random_bytes(8, 4, 2)}, narrow)
    plain = tmp_path / "plain.safetensors"
    save_file({"w": np.zeros(4)}, plain)
    clash = tmp_path / "clash.safetensors"
    save_file({"w_blocks": BLOCKS, "w_scales": BLOCK_SCALES, "w.data": np.zeros(3)}, clash)
    cases: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (model, {"layout": "rows"}, ValueError, "layout: got 'rows', want one of logical, tile"),
        (model, {"layout": "tile", "offset": 3}, ValueError, r"offset: got 3, want one of \(0, 4, 8, 12\)"),
        (model, {"offset": 4}, ValueError, "offset: got 4 for the logical layout, want 0"),
        (
            narrow,
            {"layout": "tile"},
            checkpoint.CheckpointError,
            r"w: got shape \[4, 64\], want \[\.\.\., N, K\] with K",
        ),
        (plain, {}, checkpoint.CheckpointError, "got no MX weight to convert: no codes"),
        (clash, {}, checkpoint.CheckpointError, "two tensors of the output would be named 'w.data'"),
        (tmp_path / "none", {}, FileNotFoundError, "none"),
    ]
    for source, options, error, text in cases:
        with pytest.raises(error, match=text):
            checkpoint.convert(source, target, **options)

    def interrupt(done: int, total: int, name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoint.convert(model, target, progress=interrupt)
    assert target.read_bytes() == b"precious"
    assert sorted(p.name for p in tmp_path.glob(".*")) == []
    with pytest.raises(ValueError, match=r"target: got .*, want another file than source"):
        checkpoint.convert(model, model)
    checkpoint.convert(model, target)
    with pytest.raises(checkpoint.CheckpointError, match="got no MX weight to convert: already converted"):
        checkpoint.convert(target, tmp_path / "again.safetensors")


def test_damaged_metadata_is_an_error(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "damaged.safetensors"
    save_file({"w.data": np.zeros((4, 8), np.uint32)}, path, metadata={"jax_mx": "{"})
    with pytest.raises(checkpoint.CheckpointError, match="its metadata 'jax_mx' is not what convert writes"):
        checkpoint.load(path)
    good = tmp_path / "good.safetensors"
    checkpoint.convert(model, good)
    with safe_open(good, "np") as file:
        save_file({"head.data": file.get_tensor("head.data")}, path, metadata=file.metadata())
    with pytest.raises(checkpoint.CheckpointError, match=r"no tensor 'head\.scale', which its metadata names"):
        checkpoint.load(path)


@pytest.mark.parametrize("layout", ["logical", "tile"])
@pytest.mark.parametrize(
    ("name", "damage", "text"),
    [
        ("head.data", lambda x: x.astype(np.int32), "data: got dtype int32, want uint32"),
        ("head.scale", lambda x: x.astype(np.int16), "scale: got dtype int16, want uint8"),
        ("head.scale", lambda x: x[:-1], r"got shape"),
        ("head.data", lambda x: x[None], r"got shape"),
    ],
)
def test_tensors_that_are_not_what_the_metadata_says(
    tmp_path: pathlib.Path, layout: str, name: str, damage: Any, text: str
) -> None:
    model, good, path = (tmp_path / f"{stem}.safetensors" for stem in ("model", "good", "damaged"))
    save_file({"head": CODES.view(ml_dtypes.float8_e4m3fn), "head_scale": CODE_SCALES}, model)
    checkpoint.convert(model, good, layout=layout)
    with safe_open(good, "np") as file:
        metadata = file.metadata()
    save_file({**load_file(good), name: damage(load_file(good)[name])}, path, metadata=metadata)
    wanted = rf"damaged\.safetensors: head: its tensors 'head\.data' and 'head\.scale' are not .*{text}"
    with pytest.raises(checkpoint.CheckpointError, match=wanted):
        checkpoint.load(path)
    with pytest.raises(checkpoint.CheckpointError, match=wanted):
        checkpoint.open_checkpoint(path).read("head", slice(0, 1))


@pytest.mark.parametrize(("version", "why"), [(2, ": a newer jax_mx wrote it"), (0, "")])
def test_another_version_is_an_error(model: pathlib.Path, version: int, why: str) -> None:
    good, path = model.with_name("good.safetensors"), model.with_name("other.safetensors")
    checkpoint.convert(model, good)
    with safe_open(good, "np") as file:
        text = file.metadata()["jax_mx"]
    # Whatever else another version says must not hide which one it is.
    text = text.replace('"version":1', f'"version":{version},"more":[3]')
    save_file(load_file(_without_8bit_floats(good)), path, metadata={"jax_mx": text})
    with pytest.raises(checkpoint.CheckpointError) as caught:
        checkpoint.load(path)
    assert str(caught.value) == f"{path}: got version {version} of its metadata, want 1{why}"


def test_tile_functions_refuse_what_does_not_fit() -> None:
    x = MXArray.quantize(jax.random.normal(jax.random.key(1), (64, 64)).astype("bfloat16"))
    with pytest.raises(ValueError, match=r"array: got shape \[64, 64\], want \[\.\.\., N, K\] quantized along K"):
        checkpoint.to_tiles(x)
    wide = MXArray.quantize(jax.random.normal(jax.random.key(1), (128, 128)).astype("bfloat16"), axis=0)
    with pytest.raises(ValueError, match=r"array: got axis 0, want"):
        checkpoint.to_tiles(wide)
    with pytest.raises(TypeError, match="array: got int, want an MXArray"):
        checkpoint.to_tiles(3)
    data, scale = checkpoint.to_tiles(wide.T)
    with pytest.raises(ValueError, match=r"data and scale: got shapes \(32, 128\) and \(31, 128\)"):
        checkpoint.from_tiles(data, scale[:31], "float8_e4m3fn")
    with pytest.raises(TypeError, match="data: got dtype uint32, want uint16"):
        checkpoint.from_tiles(data, scale, "float4_e2m1fn")
    with pytest.raises(TypeError, match="data: got list, want an array of dtype uint32"):
        checkpoint.from_tiles([1], scale, "float8_e4m3fn")
    with pytest.raises(TypeError, match="scale: got list, want an array of dtype uint8"):
        checkpoint.from_tiles(data, [1], "float8_e4m3fn")


def test_the_command(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    target = tmp_path / "out.safetensors"
    result = mx_opt("convert", model, target, "--layout=tile", "--scale-offset=4")
    assert (result.status, result.stderr) == (0, "")
    lines = result.text.splitlines()
    assert "experts  float4_e2m1fn[2, 6, 640]  from MXFP4 blocks" in lines
    assert "head     float8_e4m3fn[5, 256]  from compressed-tensors MXFP8" in lines
    assert lines[-1].startswith("2 weights converted, 3 tensors copied, 0.0 MB in ")
    assert np.array_equal(checkpoint.load(target)["head"].scale, CODE_SCALES)
    assert mx_opt("convert", model, target, "--quiet").text == ""


def test_the_command_explains_itself(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for arguments, text in (
        ([model], "expected IN and OUT, got 1 arguments"),
        ([model, tmp_path / "no" / "out"], "cannot convert"),
        ([tmp_path / "none", tmp_path / "out"], "No such file or directory"),
        ([model, tmp_path / "out", "--scale-offset=5", "--layout=tile"], "mx-opt: flag --scale-offset=5: "),
        (
            [model, tmp_path / "out", "--scale-offset=4"],
            "mx-opt: --scale-offset is 4, wanted 0 for --layout=logical: only tiles have pack offsets\n",
        ),
        ([model, tmp_path / "out", "--layout=rows"], "--layout=rows"),
        ([__file__, tmp_path / "out"], "not a valid safetensors file"),
        ([model, "-"], "mx-opt: OUT is -, which is standard output; name a file\n"),
        (["-", tmp_path / "out"], "mx-opt: IN is -, which is standard input; name a file\n"),
    ):
        result = mx_opt("convert", *arguments)
        assert result.status == 2 and text in result.stderr and "Traceback" not in result.stderr
    assert not pathlib.Path("-").exists()
    assert "convert IN.safetensors OUT.safetensors" in mx_opt().stderr


def test_the_command_writes_into_a_device_and_a_pipe(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    checkpoint.convert(model, tmp_path / "want")
    assert mx_opt("convert", model, "/dev/null").status == 0
    assert pathlib.Path("/dev/null").is_char_device()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        got = pool.submit(pipe.read_bytes)
        assert mx_opt("convert", model, pipe).status == 0
        assert got.result(timeout=60) == (tmp_path / "want").read_bytes()
    assert pipe.is_fifo()
