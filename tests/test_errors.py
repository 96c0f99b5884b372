"""Every bad input: the type of the error, its text, and that the caller's own line is where the traceback ends."""

# ruff: noqa: E501 - a table reads best a row a line

import dataclasses
import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_mx
import jax_mx.checkpoint
from tests.errors import assert_blames_the_caller

X = jnp.ones((4, 64), jnp.bfloat16)
DATA = jnp.zeros((4, 16), jnp.uint32)
SCALE = jnp.zeros((4, 2), jnp.uint8)
CODES = jnp.zeros((4, 64), jnp.uint8)
E4 = "float8_e4m3fn"

CASES: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("float32", lambda: jax_mx.quantize_mx(X.astype(jnp.float32)), TypeError, "x: got dtype float32, want bfloat16 or float16"),
    ("list", lambda: jax_mx.quantize_mx([1.0] * 32), TypeError, "x: got list, want an array of dtype bfloat16 or float16"),
    ("scalar", lambda: jax_mx.quantize_mx(jnp.bfloat16(1)), ValueError, "x: got a scalar, want an array of rank 1 or more"),
    (
        "unknown_format", lambda: jax_mx.quantize_mx(X, "float8_e4m3"), TypeError,
        "dtype: got 'float8_e4m3', want an MX element format, one of float8_e4m3fn, float8_e5m2, float4_e2m1fn",
    ),
    (
        "wrong_dtype", lambda: jax_mx.quantize_mx(X, jnp.float32), TypeError,
        "dtype: got 'float32', want an MX element format, one of float8_e4m3fn, float8_e5m2, float4_e2m1fn",
    ),
    ("no_dtype", lambda: jax_mx.quantize_mx(X, None), TypeError, "dtype: got None, want an MX element format"),
    ("axis_high", lambda: jax_mx.quantize_mx(X, axis=2), ValueError, "axis: got 2, want one in [-2, 2) for shape (4, 64)"),
    ("axis_low", lambda: jax_mx.quantize_mx(X, axis=-3), ValueError, "axis: got -3, want one in [-2, 2) for shape (4, 64)"),
    ("axis_float", lambda: jax_mx.quantize_mx(X, axis=1.0), TypeError, "axis: got 1.0, want an integer"),
    (
        "k_mod_4", lambda: jax_mx.quantize_mx(X[:, :62]), ValueError,
        "x: got length 62 along axis 1 of shape (4, 62), want a multiple of 4, the elements of one container",
    ),
    ("block_size", lambda: jax_mx.quantize_mx(X, block_size=16), ValueError, "block_size: got 16, want 32"),
    ("rule", lambda: jax_mx.quantize_mx(X, rule="NKI"), TypeError, "rule: got 'NKI', want a jax_mx.ScaleRule"),
    ("scale_dtype", lambda: jax_mx.quantize_mx(X, scale_dtype=jnp.int8), TypeError, "scale_dtype: got int8, want uint8 or float8_e8m0fnu"),
    ("no_values", lambda: jax_mx.quantize_mx(jax.ShapeDtypeStruct((4, 64), jnp.bfloat16)), TypeError, "x: got ShapeDtypeStruct, which has no values, want an array"),
    ("no_values_tile", lambda: jax_mx.tile.from_logical(jax.ShapeDtypeStruct((4, 64), jnp.int8)), TypeError, "x: got ShapeDtypeStruct, which has no values"),
    ("no_values_data", lambda: jax_mx.dequantize_mx(jax.typeof(DATA), SCALE, E4), TypeError, "data: got ShapedArray, which has no values"),
    ("block_size_array", lambda: jax_mx.quantize_mx(X, block_size=np.array([32, 32])), TypeError, "block_size: got array([32, 32]), want 32"),
    ("block_size_float", lambda: jax_mx.fake_quantize_mx(X, block_size=32.0), TypeError, "block_size: got 32.0, want 32"),
    ("parity_array", lambda: jax_mx.pack_x4(CODES, "float4_e2m1fn", parity=np.array([0, 1])), TypeError, "parity: got array([0, 1]), want 0 or 1"),
    ("parity_traced", lambda: jax.jit(lambda p: jax_mx.unpack_x4(DATA, E4, parity=p))(1), TypeError, "parity: got JitTracer("),
    ("offset_float", lambda: jax_mx.tile.scale_to_physical(SCALE, offset=4.0), TypeError, "offset: got 4.0, want one of (0, 4, 8, 12)"),
    ("offset_from_physical", lambda: jax_mx.tile.scale_from_physical(jnp.zeros((32, 4), jnp.uint8), "4"), TypeError, "offset: got '4', want one of (0, 4, 8, 12)"),
    ("offset_to_tiles", lambda: jax_mx.checkpoint.to_tiles(jax_mx.MXArray(DATA, SCALE, E4), 4.0), TypeError, "offset: got 4.0, want one of"),
    ("offset_from_tiles", lambda: jax_mx.checkpoint.from_tiles(DATA, DATA.astype(jnp.uint8), E4, offset=[0]), TypeError, "offset: got [0], want one of"),
    ("offset_convert", lambda: jax_mx.checkpoint.convert("in", "out", layout="tile", offset=4.0), TypeError, "offset: got 4.0, want one of"),
    ("to_logical_int", lambda: jax_mx.tile.to_logical(X, 512), TypeError, "shape: got 512, want a sequence of integers"),
    ("to_logical_float", lambda: jax_mx.tile.to_logical(X, (4, 64.0)), TypeError, "shape: got (4, 64.0), want a sequence of integers"),
    ("to_logical_negative", lambda: jax_mx.tile.to_logical(X, (16, -1)), ValueError, "shape: got (16, -1), want no negative length"),
    ("fake_dtype", lambda: jax_mx.fake_quantize_mx(X.astype(jnp.float32)), TypeError, "x: got dtype float32"),
    ("fake_k_mod_4", lambda: jax_mx.fake_quantize_mx(X[:, :3]), ValueError, "x: got length 3 along axis 1"),
    (
        "container", lambda: jax_mx.dequantize_mx(DATA, SCALE, "float4_e2m1fn"), TypeError,
        "data: got dtype uint32, want uint16, the x4 container of float4_e2m1fn",
    ),
    ("scale_type", lambda: jax_mx.dequantize_mx(DATA, SCALE.astype(jnp.int32), E4), TypeError, "scale: got dtype int32, want uint8 or float8_e8m0fnu"),
    (
        "scale_shape", lambda: jax_mx.dequantize_mx(DATA, SCALE.T, E4), ValueError,
        "scale: got shape (2, 4), want (4, 2) for data of shape (4, 16) along axis 1",
    ),
    ("scale_rank", lambda: jax_mx.dequantize_mx(DATA, SCALE[0], E4), ValueError, "scale: got shape (2,), want (4, 2)"),
    ("out_dtype", lambda: jax_mx.dequantize_mx(DATA, SCALE, E4, out_dtype=jnp.float64), TypeError, "out_dtype: got float64, want float32 or bfloat16 or float16"),
    ("out_dtype_none", lambda: jax_mx.dequantize_mx(DATA, SCALE, E4, out_dtype=None), TypeError, "out_dtype: got None"),
    ("codes", lambda: jax_mx.pack_x4(CODES.astype(jnp.int8), E4), TypeError, "codes: got dtype int8, want uint8"),
    ("codes_k", lambda: jax_mx.pack_x4(CODES[:, :6], E4), ValueError, "codes: got length 6 along axis 1 of shape (4, 6), want a multiple of 4"),
    ("unpack", lambda: jax_mx.unpack_x4(CODES, E4), TypeError, "data: got dtype uint8, want uint32, the x4 container of float8_e4m3fn"),
    ("parity", lambda: jax_mx.pack_x4(CODES, "float4_e2m1fn", parity=2), ValueError, "parity: got 2, want 0 or 1"),
    ("stride", lambda: jax_mx.pack_x4(CODES, "float4_e2m1fn", lane_stride=3), ValueError, "lane_stride: got 3, want 0 or a positive number"),
    ("stride_negative", lambda: jax_mx.pack_x4(CODES, "float4_e2m1fn", lane_stride=-1), ValueError, "lane_stride: got -1"),
    ("stride_float", lambda: jax_mx.pack_x4(CODES, "float4_e2m1fn", lane_stride=2.0), TypeError, "lane_stride: got 2.0, want an integer"),
    ("stride_fp8", lambda: jax_mx.unpack_x4(DATA, E4, lane_stride=2), ValueError, "lane_stride and parity: got 2 and 1 for float8_e4m3fn"),
    ("mode", lambda: jax_mx.lowering_mode("gpu"), ValueError, "mode: got 'gpu', want one of 'auto', 'inline', 'custom_call'"),
    ("tile_shape", lambda: jax_mx.tile.quantize_mx_tile(X), ValueError, "src: got shape (4, 64), want [P, F] with P one of (32, 64, 96, 128) and F a multiple of 4"),
    ("tile_free", lambda: jax_mx.tile.quantize_mx_tile(jnp.ones((32, 6), jnp.bfloat16)), ValueError, "src: got shape (32, 6)"),
    ("tile_dtype", lambda: jax_mx.tile.quantize_mx_tile(jnp.ones((32, 8))), TypeError, "src: got dtype float32"),
    ("offset", lambda: jax_mx.tile.scale_to_physical(SCALE, 3), ValueError, "offset: got 3, want one of (0, 4, 8, 12)"),
    ("physical_rows", lambda: jax_mx.tile.scale_to_physical(SCALE[:3]), ValueError, "scale: got shape (3, 2), want [P/8, F/4] with P/8 one of (4, 8, 12, 16)"),
    ("into", lambda: jax_mx.tile.scale_to_physical(SCALE, into=SCALE), ValueError, "into: got shape (4, 2), want (32, 2)"),
    ("physical", lambda: jax_mx.tile.scale_from_physical(SCALE), ValueError, "physical: got shape (4, 2), want [P, F/4]"),
    ("to_logical", lambda: jax_mx.tile.to_logical(X, (64, 5)), ValueError, "shape: got length 5 along axis 1"),
    ("to_logical_shape", lambda: jax_mx.tile.to_logical(X, (64, 8), axis=0), ValueError, "tile: got shape (4, 64), want (16, 32) for the logical shape (64, 8) along axis 0"),
    ("from_logical", lambda: jax_mx.tile.from_logical(3), TypeError, "x: got int, want an array"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_error_names_the_argument(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    assert_blames_the_caller(call, error, text)


@pytest.mark.parametrize("fields", [(2, 0, 0), (0, -1, 0), (0, 0, 254)])
def test_a_scale_rule_has_fields_in_range(fields: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"(headroom_8bit|headroom_4bit|min_scale): got -?\d+, want 0 or 1"):
        jax_mx.ScaleRule("MINE", *fields)


def test_numpy_scalars_are_integers() -> None:
    """They become Python's own, which metadata and hashing need."""
    rule = jax_mx.ScaleRule("MINE", np.int64(1), np.int32(0), np.uint8(1), np.bool_(True))
    assert rule == jax_mx.ScaleRule("MINE", 1, 0, 1, True)
    assert [type(value) for value in dataclasses.astuple(rule)[1:]] == [int, int, int, bool]
    want = jax_mx.tile.scale_to_physical(SCALE + 3, 4)
    assert np.array_equal(jax_mx.tile.scale_to_physical(SCALE + 3, np.int64(4)), want)
    assert np.array_equal(jax_mx.quantize_mx(X, block_size=np.int32(32), rule=rule)[1], np.full((4, 2), 127 - 8 + 1))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (("MINE", 0, 0, 0, "no"), "propagate_nan: got 'no', want True or False"),
        (("MINE", 0, 0, 0, 1), "propagate_nan: got 1, want True or False"),
        ((3, 0, 0, 0), "name: got 3, want a string"),
        (("MINE", 0, 1.0, 0), "headroom_4bit: got 1.0, want 0 or 1"),
        (("MINE", np.array([0, 1]), 0, 0), r"headroom_8bit: got array\(\[0, 1\]\), want 0 or 1"),
    ],
)
def test_a_scale_rule_has_fields_of_their_types(fields: tuple[Any, ...], text: str) -> None:
    with pytest.raises(TypeError, match=f"^{text}$"):
        jax_mx.ScaleRule(*fields)


def test_errors_are_raised_at_trace_time_with_the_caller_on_top() -> None:
    def model(x: jax.Array) -> Any:
        return jax_mx.quantize_mx(x, axis=7)

    for call in (jax.jit(model), lambda x: jax.eval_shape(model, x), jax.vmap(model), jax.jit(jax.vmap(model)).lower):
        with pytest.raises(ValueError, match="axis: got 7") as caught:
            call(X)
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "model"


@pytest.mark.parametrize("differentiate", [jax.grad, lambda f: lambda x: jax.jvp(f, (x,), (x,)), jax.jacfwd, jax.jit])
def test_differentiating_names_fake_quantize_mx(differentiate: Callable[..., Any]) -> None:
    def loss(x: jax.Array) -> jax.Array:
        data, _ = jax_mx.quantize_mx(x)
        return jnp.sum(data).astype(jnp.float32)

    f = differentiate(jax.grad(loss) if differentiate is jax.jit else loss)
    with pytest.raises(TypeError, match=r"quantize_mx has no derivative.*jax_mx\.fake_quantize_mx"):
        f(X)


def test_no_gradient_is_needed_where_none_flows() -> None:
    def loss(weights: jax.Array, x: jax.Array) -> jax.Array:
        data, scale = jax_mx.quantize_mx(x)
        return jnp.sum(weights * jax_mx.dequantize_mx(data, scale, E4))

    assert np.all(np.asarray(jax.grad(loss)(jnp.ones((4, 64)), X)) == 1.0)
