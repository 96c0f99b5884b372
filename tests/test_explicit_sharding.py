"""Explicit sharding mode: types say how results are sharded; shards that split blocks are an error, never a gather."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import jax_mx
from tests.arrays import assert_same
from tests.collectives import compile_and_run, mesh, mode, put, random_bits

EXPLICIT = mesh(2, 4, explicit=True)


@pytest.mark.parametrize("lowered_as", ["inline", "custom_call"])
@pytest.mark.parametrize(("axis", "spec"), [(1, ("a", "b")), (0, ("a", "b")), (1, (None, ("a", "b")))])
def test_types_and_bytes(axis: int, spec: tuple[Any, ...], lowered_as: str) -> None:
    x = random_bits(256, 256)

    def quantize(x: jax.Array) -> Any:
        results = jax_mx.quantize_mx(x, axis=axis)
        assert [jax.typeof(result).sharding.spec for result in results] == [PartitionSpec(*spec)] * 2
        return results

    with jax.set_mesh(EXPLICIT), mode(lowered_as):
        got, sent = compile_and_run(quantize, put(x, EXPLICIT, *spec))
    for result, want in zip(got, jax_mx.quantize_mx(x, axis=axis), strict=True):
        assert_same(result, want, "result")
    assert sent == []


def test_round_trip() -> None:
    x = random_bits(64, 128)
    with jax.set_mesh(EXPLICIT):
        got, sent = compile_and_run(jax_mx.fake_quantize_mx, put(x, EXPLICIT, "a", "b"))
    assert_same(np.asarray(got).view(np.uint16), np.asarray(jax_mx.fake_quantize_mx(x)).view(np.uint16), "values")
    assert sent == []


@pytest.mark.parametrize("function", [jax_mx.quantize_mx, jax_mx.fake_quantize_mx])
@pytest.mark.parametrize("jit", [True, False])
def test_split_blocks_are_an_error(function: Any, jit: bool) -> None:
    x = put(random_bits(8, 64), EXPLICIT, None, ("a", "b"))
    wanted = (
        r"^x: got 8 shards of 8 along axis 1 of shape \(8, 64\), over mesh axes 'a' and 'b'; want a multiple of 32, "
        "one block, in each; gather that axis first with jax.sharding.reshard"
    )
    with jax.set_mesh(EXPLICIT), pytest.raises(ValueError, match=wanted):
        (jax.jit(function) if jit else function)(x)


def test_resharding_as_the_error_says_helps() -> None:
    x = random_bits(8, 64)
    with jax.set_mesh(EXPLICIT):
        whole = jax.sharding.reshard(put(x, EXPLICIT, None, ("a", "b")), PartitionSpec(None, "a"))
        got = jax.jit(jax_mx.quantize_mx)(whole)
    for result, want in zip(got, jax_mx.quantize_mx(x), strict=True):
        assert_same(result, want, "result")


def test_a_partial_block_cannot_be_sharded() -> None:
    x = put(random_bits(8, 72), EXPLICIT, None, "a")
    with jax.set_mesh(EXPLICIT), pytest.raises(ValueError, match=r"^x: got 2 shards of 36 along axis 1"):
        jax_mx.quantize_mx(x)


def test_data_that_splits_blocks_is_an_error() -> None:
    data, scale = jax_mx.quantize_mx(random_bits(8, 128))
    with jax.set_mesh(EXPLICIT):
        split = put(data, EXPLICIT, None, ("a", "b")), put(scale, EXPLICIT, None, None)
        wanted = (
            r"^data: got 8 shards of 4 along axis 1 of shape \(8, 32\), .*; want a multiple of 8, one block, in each"
        )
        with pytest.raises(ValueError, match=wanted):
            jax_mx.dequantize_mx(*split, "float8_e4m3fn")


def test_data_and_scale_that_are_sharded_apart_are_an_error() -> None:
    data, scale = jax_mx.quantize_mx(random_bits(8, 128))
    with jax.set_mesh(EXPLICIT):
        apart = put(data, EXPLICIT, None, "b"), put(scale, EXPLICIT, None, None)
        wanted = r"^scale: got sharding .*\(None, None\), want .*\(None, 'b'\), that of its data"
        with pytest.raises(ValueError, match=wanted):
            jax_mx.dequantize_mx(*apart, "float8_e4m3fn")
        with pytest.raises(ValueError, match=wanted.replace("scale", "lhs_scale")):
            jax_mx.scaled_matmul_mx(*apart, *apart)


def test_scaled_matmul_has_the_type_of_the_product() -> None:
    x, w = jnp.ones((16, 128), jnp.bfloat16), jnp.ones((24, 128), jnp.bfloat16)

    def multiply(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax_mx.scaled_matmul_mx(*jax_mx.quantize_mx(x), *jax_mx.quantize_mx(w))

    with jax.set_mesh(EXPLICIT):
        got, sent = compile_and_run(multiply, put(x, EXPLICIT, "a", None), put(w, EXPLICIT, "b", None))
        assert jax.typeof(got).sharding.spec == PartitionSpec("a", "b")
    assert_same(np.asarray(got), np.full((16, 24), 128, np.float32), "product")
    assert sent == []


def test_vmap_over_a_sharded_axis() -> None:
    x = random_bits(8, 4, 128)
    with jax.set_mesh(EXPLICIT):
        got, sent = compile_and_run(jax.vmap(jax_mx.quantize_mx), put(x, EXPLICIT, "a", None, "b"))
        assert [jax.typeof(result).sharding.spec for result in got] == [PartitionSpec("a", None, "b")] * 2
    for result, want in zip(got, jax_mx.quantize_mx(x), strict=True):
        assert_same(result, want, "result")
    assert sent == []
