"""`MXArray`: one value made of two arrays, under indexing, reshaping, products and every transformation."""

# ruff: noqa: E501 - a table reads best a row a line

import traceback
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import jax_mx
from jax_mx import MXArray, checkpoint
from tests import reference

X = jax.random.normal(jax.random.key(0), (3, 8, 64), jnp.bfloat16)
W = jax.random.normal(jax.random.key(1), (3, 64, 16), jnp.bfloat16)


def mx(x: jax.Array = X, axis: int = -1, fmt: str = "float8_e4m3fn") -> MXArray:
    return MXArray.quantize(x, fmt, axis=axis)


def assert_same_array(got: MXArray, want: MXArray) -> None:
    assert (got.format, got.axis, got.rule, got.dtype, got.shape) == (
        want.format, want.axis, want.rule, want.dtype, want.shape,
    )  # fmt: skip
    assert np.array_equal(got.data, want.data) and np.array_equal(got.scale, want.scale)


@pytest.mark.parametrize("fmt", reference.FORMATS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_quantize_and_dequantize_are_those_functions(fmt: str, axis: int) -> None:
    x = jax.random.normal(jax.random.key(2), (36, 8, 64), jnp.float16)
    array = MXArray.quantize(x, fmt, axis=axis, rule=jax_mx.NKI)
    data, scale = jax_mx.quantize_mx(x, fmt, axis=axis, rule=jax_mx.NKI)
    assert np.array_equal(array.data, data) and np.array_equal(array.scale, scale)
    assert (array.shape, array.ndim, array.size, len(array)) == (x.shape, 3, x.size, 36)
    assert (array.dtype, array.rule, array.axis) == (jnp.float16, jax_mx.NKI, axis % 3)
    assert array.nbytes == data.nbytes + scale.nbytes
    assert array.dequantize().dtype == jnp.float16
    want = jax_mx.dequantize_mx(data, scale, fmt, axis=axis)
    assert np.array_equal(array.dequantize("float32"), want)


def test_float32_is_rounded_to_bfloat16_first_and_remembered() -> None:
    x = jax.random.normal(jax.random.key(3), (4, 64))
    array = MXArray.quantize(x)
    assert np.array_equal(array.data, jax_mx.quantize_mx(x.astype(jnp.bfloat16))[0])
    assert array.dequantize().dtype == jnp.float32


def test_repr_shows_format_and_shape() -> None:
    assert repr(mx()) == "MXArray(float8_e4m3fn[3, 8, 64], axis=2, rule=EMAX, dtype=bfloat16)"
    foreign = MXArray(mx().data, mx().scale, "float8_e4m3fn", dtype="float32")
    assert repr(foreign) == "MXArray(float8_e4m3fn[3, 8, 64], axis=2, rule=unknown, dtype=float32)"
    assert "float8_e4m3fn" in repr(jax.tree.map(lambda leaf: None, mx()))


def test_conversion_to_arrays() -> None:
    array = mx()
    want = array.dequantize()
    assert np.array_equal(jnp.asarray(array), want) and jnp.asarray(array).dtype == jnp.bfloat16
    assert np.array_equal(np.asarray(array), want)
    assert np.array_equal(np.asarray(array, np.float32), np.float32(want))
    assert np.array_equal(jnp.sin(array), jnp.sin(want))
    with pytest.raises(ValueError, match="copy: got False"):
        np.asarray(array, copy=False)


@pytest.mark.parametrize(
    "index",
    [
        0, -1, (1, 2), slice(1, None), (slice(None), slice(2, 6, 2)), (..., slice(32, 64)), (0, ..., slice(None, 32)),
        (None, 1), (slice(None), None), (..., None), (slice(None), np.array([3, 0])), np.array([[0, 1], [2, 2]]),
        (1, slice(None), slice(32, None)), (slice(2, 0, -1),), (..., slice(0, 0)), (slice(None), slice(None), slice(-32, None)),
    ],
)  # fmt: skip
def test_indexing_commutes_with_dequantizing(index: Any) -> None:
    got = mx()[index]
    assert np.array_equal(got.dequantize(), mx().dequantize()[index])
    assert got.shape == mx().dequantize()[index].shape


def test_indexing_along_other_axes_keeps_a_partial_last_block() -> None:
    x = jax.random.normal(jax.random.key(4), (3, 36, 5), jnp.bfloat16)
    array = mx(x, axis=1)
    assert np.array_equal(array[1, 32:].dequantize(), array.dequantize()[1, 32:])
    assert np.array_equal(array[..., 2].dequantize(), array.dequantize()[..., 2])
    assert array[..., 2].axis == 1 and array[0].axis == 0


def test_traced_indices() -> None:
    got = jax.jit(lambda array, i: array[i, jnp.int32(2)])(mx(), 1)
    assert_same_array(got, mx()[1, 2])


@pytest.mark.parametrize(
    ("axis", "shape"),
    [
        (2, (24, 64)), (2, (2, 12, 64)), (2, (3, 8, 2, 32)), (2, (1536,)), (2, (3, 512)), (2, (-1, 32)), (2, (1, 3, 8, 64, 1)),
        (1, (3, 64, 4, 4)), (1, (192, 16)), (1, (3, 2, 32, 16)), (1, (6, 32, 2, 8)), (0, (64, 48)), (0, (2, 32, 6, 8)),
    ],
)  # fmt: skip
def test_reshape_where_blocks_stay_whole(axis: int, shape: tuple[int, ...]) -> None:
    x = {0: W.transpose(1, 0, 2), 1: W, 2: X}[axis]
    got = mx(x, axis=axis).reshape(shape)
    want = mx(x, axis=axis).dequantize().reshape(shape)
    assert got.shape == want.shape
    assert np.array_equal(got.dequantize(), want)
    assert_same_array(mx(x, axis=axis).reshape(*shape), got)


def test_reshape_of_a_partial_block_can_change_other_axes_only() -> None:
    array = mx(jax.random.normal(jax.random.key(5), (4, 36), jnp.bfloat16))
    assert np.array_equal(array.reshape(2, 2, 36).dequantize(), array.dequantize().reshape(2, 2, 36))
    with pytest.raises(ValueError, match="does not keep its blocks of 32 whole"):
        array.reshape(144)


@pytest.mark.parametrize("axes", [(), (0, 2, 1), (2, 0, 1), (-1, 0, 1)])
def test_transpose(axes: tuple[int, ...]) -> None:
    got = mx(W, axis=1).transpose(*axes)
    assert np.array_equal(got.dequantize(), mx(W, axis=1).dequantize().transpose(*axes))
    assert_same_array(mx(W, axis=1).T, mx(W, axis=1).transpose((2, 1, 0)))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((5, 64), (64, 7)), ((3, 5, 64), (64, 7)), ((3, 5, 64), (3, 64, 7)), ((5, 64), (3, 64, 7)), ((64,), (64, 7)), ((5, 64), (64,)),
        ((64,), (64,)), ((2, 1, 5, 64), (3, 64, 7)), ((64,), (3, 64, 7)),
    ],
)  # fmt: skip
def test_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x = jax.random.normal(jax.random.key(6), left, jnp.bfloat16)
    w = jax.random.normal(jax.random.key(7), right, jnp.bfloat16)
    axis = max(len(right) - 2, 0)
    lhs, rhs = mx(x), mx(w, axis=axis)
    want = np.matmul(np.float64(lhs.dequantize("float32")), np.float64(rhs.dequantize("float32")))
    got = lhs @ rhs
    assert got.dtype == jnp.bfloat16 and got.shape == want.shape
    np.testing.assert_allclose(np.float64(got), want, rtol=2**-7, atol=1e-2)
    assert np.array_equal(x @ rhs, x @ rhs.dequantize())  # an array beside it makes it an array
    assert np.array_equal(lhs @ w, lhs.dequantize() @ w)
    assert np.array_equal(np.asarray(x) @ rhs, x @ rhs.dequantize())
    assert np.array_equal(lhs @ np.asarray(w), lhs.dequantize() @ w)


def test_matmul_of_mixed_formats_and_dtypes() -> None:
    lhs = MXArray.quantize(jnp.float32(X[0]), "float8_e5m2")
    rhs = MXArray.quantize(W[0], "float4_e2m1fn", axis=0)
    want = jax_mx.scaled_matmul_mx(
        lhs.data, lhs.scale, rhs.data, rhs.scale, ("float8_e5m2", "float4_e2m1fn"),
        dimension_numbers=(((1,), (0,)), ((), ())),
    )  # fmt: skip
    assert (lhs @ rhs).dtype == jnp.float32
    assert np.array_equal(lhs @ rhs, want)


def test_tree_with_paths_and_static_parts() -> None:
    leaves, structure = jax.tree.flatten({"w": mx()})
    assert [leaf.dtype for leaf in leaves] == [jnp.uint32, jnp.uint8]
    assert structure != jax.tree.structure({"w": mx(X.astype(jnp.float16))})
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path({"w": mx()})]
    assert paths == ["['w'].data", "['w'].scale"]
    assert_same_array(jax.tree.unflatten(structure, leaves)["w"], mx())


def test_jit_scan_vmap_cond() -> None:
    weights = mx(jax.random.normal(jax.random.key(8), (4, 64, 64), jnp.bfloat16), axis=1)
    x = jnp.ones((2, 64), jnp.bfloat16)
    out, _ = jax.jit(lambda x, w: jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w))(x, weights)
    want = x
    for i in range(4):
        want = jnp.tanh(want @ weights[i])
    assert np.array_equal(out, want)
    assert np.array_equal(jax.vmap(lambda w: x @ w)(weights), jnp.stack([x @ weights[i] for i in range(4)]))
    assert np.array_equal(jax.vmap(lambda a, w: a @ w, (None, 0))(mx(x), weights), mx(x) @ weights)
    chosen = jax.lax.cond(True, lambda w: w[0], lambda w: w[1], weights)
    assert_same_array(chosen, weights[0])
    made = jax.vmap(MXArray.quantize)(X)
    assert_same_array(made, mx())


def test_mapping_an_axis_behind_the_quantized_one_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"can map axes before that one only"):
        jax.vmap(lambda w: w.dequantize(), in_axes=2)(mx(W, axis=1))


def test_device_put_with_sharding() -> None:
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    x = jax.random.normal(jax.random.key(9), (16, 256), jnp.bfloat16)
    for spec in (PartitionSpec("d"), PartitionSpec(None, "d")):
        sharding = NamedSharding(mesh, spec)
        placed = jax.device_put(mx(x), sharding)
        assert placed.data.sharding == placed.scale.sharding == sharding
        assert_same_array(placed, mx(x))
        made = jax.jit(MXArray.quantize, out_shardings=sharding)(x)
        assert_same_array(made, mx(x))
        assert np.array_equal(jax.jit(lambda a, b: a @ b)(placed, mx(x).T), mx(x) @ mx(x).T)


def test_eval_shape_and_grad_beside_it() -> None:
    shape = jax.eval_shape(MXArray.quantize, jax.ShapeDtypeStruct((4, 64), jnp.bfloat16))
    assert shape.shape == (4, 64) and shape.scale.shape == (4, 2)
    w = mx(W[0], axis=0)
    gradient = jax.grad(lambda x: jnp.sum((x @ w).astype(jnp.float32)))(X[0])
    want = jnp.broadcast_to(jnp.sum(w.dequantize("float32"), axis=1), (8, 64))
    np.testing.assert_allclose(np.float32(gradient), want, atol=0.1)


CASES: list[tuple[str, Any, type[Exception], str]] = [
    ("element", lambda: mx()[0, 0, 3], ValueError, "index: got 3 for axis 2, along which this array is quantized, want a slice"),
    ("cut", lambda: mx()[..., :33], ValueError, "index: got slice(None, 33, None) for axis 2, which cuts through the blocks of 32"),
    ("start", lambda: mx()[..., 4:], ValueError, "index: got slice(4, None, None) for axis 2, which cuts"),
    ("step", lambda: mx()[..., ::2], ValueError, "index: got slice(None, None, 2) for axis 2, which cuts"),
    ("gather", lambda: mx()[:, :, jnp.array([0])], ValueError, "index: got an array of dtype int32 and shape (1,) for axis 2"),
    ("range", lambda: mx()[3], IndexError, "index: got 3 for axis 0, want one in [-3, 3)"),
    ("many", lambda: mx()[0, 0, :, 0], IndexError, "index: got 4 indices for shape (3, 8, 64), want 3 at most"),
    ("ellipses", lambda: mx()[..., ...], IndexError, "index: got 2 ellipses"),
    ("list", lambda: mx()[[0, 1]], TypeError, "index: got a list, want an integer, a slice"),
    ("mask", lambda: mx()[jnp.ones(3, bool)], TypeError, "index: got an array of dtype bool and shape (3,)"),
    ("boolean", lambda: mx()[True], TypeError, "index: got True"),
    ("mixed", lambda: mx()[0, jnp.array([1])], ValueError, "index: got 1 arrays and 1 integers, want one array alone"),
    ("float_slice", lambda: mx()[..., :32.0], TypeError, "index: got slice(None, 32.0, None) for axis 2, want a slice of integers"),
    ("reshape", lambda: mx().reshape(3, 8, 4, 16), ValueError, "shape: got (3, 8, 4, 16) for an array of shape (3, 8, 64) quantized along axis 2"),
    ("reshape_before", lambda: mx(W, axis=1).reshape(3, 1024), ValueError, "shape: got (3, 1024) for an array of shape (3, 64, 16) quantized along axis 1"),
    ("reshape_size", lambda: mx().reshape(5, -1), ValueError, "shape: got (5, -1), want one of the 1536 elements"),
    ("reshape_twice", lambda: mx().reshape(-1, -1), ValueError, "shape: got (-1, -1), want one of the 1536 elements"),
    ("reshape_type", lambda: mx().reshape("a"), TypeError, "shape: got ('a',), want integers"),
    ("transpose", lambda: mx().transpose(0, 1), ValueError, "axes: got (0, 1), want a permutation of the 3 axes"),
    ("transpose_type", lambda: mx().transpose(0, 1, 2.0), TypeError, "axes: got (0, 1, 2.0), want integers"),
    ("right", lambda: mx() @ mx(), ValueError, "@: got a right operand MXArray(float8_e4m3fn[3, 8, 64], axis=2, rule=EMAX, dtype=bfloat16) quantized along axis 2, want axis 1"),
    ("left", lambda: mx(W, axis=1) @ mx(W, axis=1), ValueError, "@: got a left operand MXArray(float8_e4m3fn[3, 64, 16], axis=1"),
    ("sizes", lambda: mx()[..., :32] @ mx(W, axis=1), ValueError, "@: got shapes (3, 8, 32) and (3, 64, 16), whose contracted"),
    ("batch", lambda: mx() @ mx(W, axis=1)[:2], ValueError, "@: got shapes (3, 8, 64) and (2, 64, 16), whose batch dimensions"),
    ("data", lambda: MXArray(X, mx().scale, "float8_e4m3fn"), TypeError, "data: got dtype bfloat16, want uint32"),
    ("scale", lambda: MXArray(mx().data, mx().scale[..., :1], "float8_e4m3fn"), ValueError, "scale: got shape (3, 8, 1), want (3, 8, 2)"),
    ("axis", lambda: MXArray(mx().data, mx().scale, "float8_e4m3fn", axis=3), ValueError, "axis: got 3, want one in [-3, 3)"),
    ("rule", lambda: MXArray(mx().data, mx().scale, "float8_e4m3fn", rule="EMAX"), TypeError, "rule: got 'EMAX', want a jax_mx.ScaleRule"),
    ("format", lambda: MXArray(mx().data, mx().scale, "float8"), TypeError, "format: got 'float8', want an MX element format"),
    ("quantize_format", lambda: MXArray.quantize(mx().dequantize(), "fp8"), TypeError, "format: got 'fp8', want an MX element format"),
    ("tiles_format", lambda: checkpoint.from_tiles(mx().data, mx().scale, "mxfp8"), TypeError, "format: got 'mxfp8', want an MX element format"),
    ("dequantize_dtype", lambda: mx().dequantize("bf16"), TypeError, "dtype: got bf16, want float32 or bfloat16 or float16"),
    ("dtype", lambda: MXArray(mx().data, mx().scale, "float8_e4m3fn", dtype="int8"), TypeError, "dtype: got int8, want float32"),
    ("source", lambda: MXArray.quantize(X.astype(jnp.int32)), TypeError, "x: got dtype int32, want float32 or bfloat16 or float16"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_error_names_the_argument(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(text)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert last.filename == __file__, "the traceback ends inside the library"


def test_scalars_and_lists_are_no_operands() -> None:
    for other in (3, [1.0], None):
        with pytest.raises(TypeError, match="unsupported operand"):
            mx() @ other
        with pytest.raises(TypeError, match="unsupported operand"):
            other @ mx()
