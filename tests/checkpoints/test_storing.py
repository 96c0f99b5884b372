"""`MXArray`s in `.npz` files and in orbax checkpoints keep their bytes and their metadata."""

import contextlib
import json
import pathlib
import zipfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

import jax_mx
from jax_mx import MXArray, checkpoint
from tests.errors import assert_blames_the_caller

X = jax.random.normal(jax.random.key(0), (4, 64, 8), jnp.bfloat16)
OWN_RULE = jax_mx.ScaleRule("MINE", headroom_8bit=1, headroom_4bit=1, min_scale=0, propagate_nan=True)


def arrays() -> dict[str, Any]:
    weight = MXArray.quantize(X, "float8_e5m2", axis=1, rule=jax_mx.NKI)
    return {
        "w": weight,
        "fp4": MXArray.quantize(X.astype(jnp.float16), "float4_e2m1fn", axis=0, rule=OWN_RULE),
        "foreign": MXArray(weight.data, weight.scale, "float8_e5m2", axis=1, dtype="float32"),
        "bias": jnp.arange(5, dtype=jnp.bfloat16),
        "codes": jnp.arange(8, dtype=jnp.uint8).view(jnp.float8_e4m3fn),
        "scalar": jnp.bfloat16(1.5),
        "steps": np.int64(2**40),
    }


def assert_same_value(got: Any, want: Any) -> None:
    assert type(got) is type(want) or not isinstance(want, MXArray)
    if isinstance(want, MXArray):
        assert (got.format, got.axis, got.rule, got.dtype, got.shape) == (
            want.format, want.axis, want.rule, want.dtype, want.shape,
        )  # fmt: skip
        assert np.array_equal(got.data, want.data) and np.array_equal(got.scale, want.scale)
        return
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape, got.tobytes()) == (want.dtype, want.shape, want.tobytes())


def test_npz_round_trip(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.npz"
    checkpoint.save_npz(path, arrays())
    loaded = checkpoint.load_npz(path)
    assert loaded.keys() == arrays().keys()
    for name, want in arrays().items():
        assert_same_value(loaded[name], want)
    with np.load(path, allow_pickle=False) as file:  # numpy alone reads the parts
        assert np.array_equal(file["w.data"], arrays()["w"].data)
        assert np.array_equal(file["w.scale"], arrays()["w"].scale)


NAMES = ("file", "allow_pickle", "x.npy", "a/b", "größe", "")


def test_npz_keeps_every_name_and_byte_order(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.npz"
    saved: dict[str, Any] = {name: np.arange(3) + i for i, name in enumerate(NAMES)}
    saved |= {f"big {kind}": np.arange(6).reshape(2, 3).astype(f">{kind}") for kind in ("f4", "i2", "u8", "c8", "f2")}
    saved["mask"] = np.array([True, False])
    checkpoint.save_npz(path, saved)
    loaded = checkpoint.load_npz(path)
    assert loaded.keys() == saved.keys()
    with np.load(path, allow_pickle=False) as file:
        for name, want in saved.items():
            assert loaded[name].dtype == want.dtype and np.array_equal(loaded[name], want), name
            assert np.array_equal(file[name], want), name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array(["a", "b"]), "dtype <U1 for 'v'"),
        (np.array([b"a"]), r"dtype \|S1 for 'v'"),
        (np.str_("a"), "dtype <U1 for 'v'"),
        (np.array(["2026-01-01"], "datetime64[D]"), r"dtype datetime64\[D\] for 'v'"),
        (np.zeros(2, "timedelta64"), "dtype timedelta64 for 'v'"),
        (np.zeros(2, [("a", "f4"), ("b", "i4")]), r"dtype \[\('a', '<f4'\), \('b', '<i4'\)\] for 'v'"),
        (jax.random.key(0), r"dtype key<fry> for 'v', want numbers or booleans; jax\.random\.key_data"),
    ],
)
def test_npz_refuses_what_is_no_number(value: Any, text: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(TypeError, match=f"^arrays: got {text}"):
        checkpoint.save_npz(tmp_path / "model.npz", {"ok": np.zeros(3), "v": value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("saved", "error", "text"),
    [
        ({"x": np.zeros(1), "x.npy": np.ones(1)}, ValueError, "got members named 'x' and 'x.npy'"),
        ({"__jax_mx__.npy": np.ones(1)}, ValueError, "got members named '__jax_mx__' and '__jax_mx__.npy'"),
        ({"__jax_mx__": np.ones(1)}, ValueError, "got two members named '__jax_mx__'"),
        ({"a\0b": np.ones(1)}, ValueError, r"got 'a\x00b' as a name"),
        ({"\ud800": np.ones(1)}, ValueError, r"got '\ud800' as a name"),
        ({3: np.ones(1)}, TypeError, "got 3 as a name, want strings"),
        ([np.ones(1)], TypeError, "got list, want a mapping from names to arrays"),
    ],
)
def test_npz_refuses_names_that_it_would_lose(
    saved: Any, error: type[Exception], text: str, tmp_path: pathlib.Path
) -> None:
    assert_blames_the_caller(lambda: checkpoint.save_npz(tmp_path / "model.npz", saved), error, f"arrays: {text}")
    assert list(tmp_path.iterdir()) == []


def test_npz_names_the_target_in_a_missing_directory(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "none" / "model.npz"
    with pytest.raises(FileNotFoundError) as caught:
        checkpoint.save_npz(path, arrays())
    assert caught.value.filename == str(path)


def test_npz_of_another_kind_or_damaged_is_a_checkpoint_error(tmp_path: pathlib.Path) -> None:
    array = tmp_path / "x.npy"
    np.save(array, np.zeros(3))
    with pytest.raises(checkpoint.CheckpointError, match=r"x\.npy: not a valid npz file"):
        checkpoint.load_npz(array)
    path = tmp_path / "model.npz"
    checkpoint.save_npz(path, {"w": arrays()["w"], "b": np.arange(3)})
    whole = path.read_bytes()
    for at in range(0, len(whole), 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with contextlib.suppress(checkpoint.CheckpointError):  # what numpy and zip have no use for may change
            checkpoint.load_npz(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "no array")
    with pytest.raises(checkpoint.CheckpointError, match="not a valid npz file"):
        checkpoint.load_npz(path)


def test_npz_of_another_version_is_an_error(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.npz"
    checkpoint.save_npz(path, arrays())
    with np.load(path) as file:
        members = {name: file[name] for name in file.files}
    header = json.loads(members["__jax_mx__"].tobytes())
    assert header["version"] == 1
    newer = json.dumps(header | {"version": 3, "more": {}}).encode()
    np.savez(path, **(members | {"__jax_mx__": np.frombuffer(newer, np.uint8)}))
    with pytest.raises(checkpoint.CheckpointError) as caught:
        checkpoint.load_npz(path)
    assert str(caught.value) == f"{path}: got version 3 of its metadata, want 1: a newer jax_mx wrote it"


def test_npz_errors(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.npz"
    with pytest.raises(TypeError, match="arrays: got list for 'a', want an array or an MXArray"):
        checkpoint.save_npz(path, {"a": [1.0]})
    with pytest.raises(TypeError, match="arrays: got an array of Python objects for 'a'"):
        checkpoint.save_npz(path, {"a": np.array([{}])})
    with pytest.raises(ValueError, match=r"arrays: got two members named 'w\.data'"):
        checkpoint.save_npz(path, {"w": arrays()["w"], "w.data": np.zeros(3)})
    assert list(tmp_path.iterdir()) == []
    np.savez(path, a=np.zeros(3))
    with pytest.raises(checkpoint.CheckpointError, match="got no member __jax_mx__"):
        checkpoint.load_npz(path)
    path.write_bytes(b"no zip")
    with pytest.raises(checkpoint.CheckpointError, match="not a valid npz file"):
        checkpoint.load_npz(path)
    checkpoint.save_npz(path, {"w": arrays()["w"]})
    with np.load(path) as file:
        np.savez(path.with_name("cut.npz"), **{name: file[name] for name in file.files if name != "w.scale"})
    with pytest.raises(checkpoint.CheckpointError, match="its members are not what its header says"):
        checkpoint.load_npz(path.with_name("cut.npz"))
    with pytest.raises(FileNotFoundError):
        checkpoint.load_npz(tmp_path / "none.npz")


def tree() -> dict[str, Any]:
    made = arrays()
    return {"layers": {"w": made["w"], "fp4": made["fp4"]}, "bias": made["bias"], "foreign": made["foreign"]}


def test_packed_trees_carry_their_metadata_through_orbax(tmp_path: pathlib.Path) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "packed", checkpoint.pack_tree(tree()))
        checkpointer.wait_until_finished()
        restored = checkpoint.unpack_tree(
            checkpointer.restore(tmp_path / "packed", _abstract(checkpoint.pack_tree(tree())))
        )
    for path, want in jax.tree_util.tree_leaves_with_path(tree(), is_leaf=lambda n: isinstance(n, MXArray)):
        got = restored
        for key in path:
            got = got[key.key]
        assert_same_value(got, want)


def test_orbax_stores_the_tree_as_it_is_when_given_a_template(tmp_path: pathlib.Path) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "plain", tree())
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(tmp_path / "plain", _abstract(tree()))
    assert_same_value(restored["layers"]["w"], tree()["layers"]["w"])
    assert_same_value(restored["foreign"], tree()["foreign"])
    assert_same_value(restored["bias"], tree()["bias"])


def _abstract(made: Any) -> Any:
    return jax.tree.map(ocp.utils.to_shape_dtype_struct, jax.tree.map(jnp.asarray, made))


def test_pack_and_unpack_are_inverses_and_refuse_damage() -> None:
    packed = checkpoint.pack_tree(tree())
    assert all(isinstance(leaf, jax.Array | np.ndarray) for leaf in jax.tree.leaves(packed))
    assert_same_value(checkpoint.unpack_tree(packed)["layers"]["fp4"], tree()["layers"]["fp4"])
    packed["foreign"]["mx_metadata"] = np.frombuffer(b'{"format": 3}', np.uint8)
    with pytest.raises(ValueError, match=r"mx_metadata: got .*, want what pack_tree wrote"):
        checkpoint.unpack_tree(packed)
    packed = checkpoint.pack_tree(tree())
    packed["foreign"]["mx_scale"] = packed["foreign"]["mx_scale"][1:]
    with pytest.raises(ValueError, match="scale: got shape"):
        checkpoint.unpack_tree(packed)
