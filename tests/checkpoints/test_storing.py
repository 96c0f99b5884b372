"""`MXArray`s in `.npz` files and in orbax checkpoints keep their bytes and their metadata."""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

import jax_mx
from jax_mx import MXArray, checkpoint

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
