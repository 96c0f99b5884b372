"""`jax.vmap` over an axis that a mesh with explicit axes shards: it stays sharded, as in `jax.lax.dot_general`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jax_mx
from tests.arrays import assert_same
from tests.collectives import Transfer, compile_and_run, mesh, mode, put
from tests.test_mx_dot_general import assert_near, random

EXPLICIT = mesh(2, 4, explicit=True)
LAST = (((1,), (1,)), ((), ()))
MATMUL = (((1,), (0,)), ((), ()))

lowerings = pytest.mark.parametrize("lowered_as", ["inline", "custom_call"])


def scaled_matmul(lhs: jax.Array, rhs: jax.Array, _dimension_numbers: Any, out_sharding: Any) -> jax.Array:
    return jax_mx.scaled_matmul_mx(*jax_mx.quantize_mx(lhs), *jax_mx.quantize_mx(rhs), out_sharding=out_sharding)


def integers(seed: int, *shape: int) -> jax.Array:
    """Values whose products and sums are exact in every format and in every order."""
    return jnp.asarray(np.random.default_rng(seed).integers(-2, 3, shape), jnp.bfloat16)


def specs(results: Any) -> list[P]:
    return [jax.typeof(result).sharding.spec for result in jax.tree.leaves(results)]


@lowerings
@pytest.mark.parametrize("options", [{}, {"spmd_axis_name": "a"}], ids=["", "spmd_axis_name"])
@pytest.mark.parametrize("multiply", [scaled_matmul, jax_mx.mx_dot_general])
def test_a_product_keeps_the_mapped_axis_sharded(
    multiply: Callable[..., jax.Array], options: dict[str, str], lowered_as: str
) -> None:
    x, y = integers(0, 8, 16, 128), integers(1, 8, 24, 128)

    def product(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.vmap(lambda x, y: multiply(x, y, LAST, out_sharding=P("b", None)), **options)(x, y)

    with jax.set_mesh(EXPLICIT), mode(lowered_as):
        got, sent = compile_and_run(product, put(x, EXPLICIT, "a", "b", None), put(y, EXPLICIT, "a", None, None))
    assert specs(got) == [P("a", "b", None)]
    assert sent == []
    want = jnp.einsum("gmk,gnk->gmn", x, y, preferred_element_type=jnp.float32).astype(got.dtype)
    assert_same(np.asarray(got), np.asarray(want), "product")


@lowerings
@pytest.mark.parametrize("out_sharding", [P(None, None), P()])
@pytest.mark.parametrize("multiply", [scaled_matmul, jax_mx.mx_dot_general])
def test_a_contracted_shard_is_one_all_reduce(
    multiply: Callable[..., jax.Array], out_sharding: P, lowered_as: str
) -> None:
    x, y = integers(2, 8, 16, 128), integers(3, 8, 24, 128)
    product = jax.vmap(lambda x, y: multiply(x, y, LAST, out_sharding=out_sharding))
    with jax.set_mesh(EXPLICIT), mode(lowered_as):
        got, sent = compile_and_run(product, put(x, EXPLICIT, "a", None, "b"), put(y, EXPLICIT, "a", None, "b"))
    assert specs(got) == [P("a", None, None)]
    assert sent == [("all-reduce", "f32", 4 * 16 * 24 * 4)]
    want = jnp.einsum("gmk,gnk->gmn", x, y, preferred_element_type=jnp.float32).astype(got.dtype)
    assert_same(np.asarray(got), np.asarray(want), "product")


@pytest.mark.parametrize(("side", "spec"), [(0, P("a", "b", None)), (1, P("a", None, "b"))])
def test_a_product_that_is_mapped_on_one_side(side: int, spec: P) -> None:
    x, w = integers(4, 8, 16, 128), integers(5, 24, 128)
    out_sharding = P(*spec[1:])

    def product(x: jax.Array, w: jax.Array) -> jax.Array:
        def multiply(x: jax.Array) -> jax.Array:
            return scaled_matmul(*((x, w) if side == 0 else (w, x)), LAST, out_sharding=out_sharding)

        return jax.vmap(multiply)(x)

    with jax.set_mesh(EXPLICIT):
        got, sent = compile_and_run(product, put(x, EXPLICIT, "a", "b", None), put(w, EXPLICIT, None, None))
    assert specs(got) == [spec]
    assert sent == []
    want = jnp.einsum("gmk,nk->gmn" if side == 0 else "gmk,nk->gnm", x, w, preferred_element_type=jnp.float32)
    assert_same(np.asarray(got), np.asarray(want), "product")


@pytest.mark.parametrize("mapped_weights", [False, True])
@pytest.mark.parametrize("options", [{}, {"spmd_axis_name": "a"}], ids=["", "spmd_axis_name"])
def test_gradients_for_each_example(mapped_weights: bool, options: dict[str, str]) -> None:
    x, w = random(50, 8, 128, 64), random(51, *((8, 64, 32) if mapped_weights else (64, 32)))

    def gradients(x: jax.Array, w: jax.Array) -> Any:
        loss = jax.grad(lambda x, w: jnp.sum(jax_mx.mx_dot_general(x, w, MATMUL) ** 2), (0, 1))
        return jax.vmap(loss, in_axes=(0, 0 if mapped_weights else None), **options)(x, w)

    want = gradients(x, w)
    weight_spec = ("a", None, None) if mapped_weights else (None, None)
    with jax.set_mesh(EXPLICIT):
        got, sent = compile_and_run(gradients, put(x, EXPLICIT, "a", "b", None), put(w, EXPLICIT, *weight_spec))
    assert specs(got) == [P("a", "b", None), P("a", None, None)]
    # The shards over 'b' hold whole blocks of the dimension that the weight's gradient contracts: no gather.
    sum_of_weights: Transfer = ("all-reduce", "f32", 4 * 64 * 32 * 4)
    assert sent == [sum_of_weights]
    for one, other in zip(got, want, strict=True):
        assert_near(one, other)


def test_one_leaf_is_mapped_and_the_other_repeated() -> None:
    x = integers(6, 8, 16, 128)
    data, scale = jax_mx.quantize_mx(x)
    first = data[0], scale[0]

    def dequantize(data: jax.Array, scale: jax.Array) -> jax.Array:
        return jax_mx.dequantize_mx(data, scale, "float8_e4m3fn")

    def multiply(data: jax.Array, scale: jax.Array) -> jax.Array:
        return jax_mx.scaled_matmul_mx(data, scale, *first)

    for function in (dequantize, multiply):
        for in_axes, leaves in (((0, None), (data, first[1])), ((None, 0), (first[0], scale))):
            want = jax.vmap(function, in_axes)(*leaves)
            with jax.set_mesh(EXPLICIT):
                placed = [
                    put(leaf, EXPLICIT, *(("b", None) if at is None else ("a", "b", None)))
                    for leaf, at in zip(leaves, in_axes, strict=True)
                ]
                got, sent = compile_and_run(jax.vmap(function, in_axes), *placed)
            assert specs(got) == [P("a", "b", None)]
            assert sent == []
            assert_same(np.asarray(got, np.float32), np.asarray(want, np.float32), function.__name__)


@pytest.mark.parametrize("side", [0, 1])
def test_a_vector_as_a_custom_call(side: int) -> None:
    v, w = integers(7, 128), integers(8, 24, 128)
    with jax.set_mesh(EXPLICIT), mode("custom_call"):
        operands = put(v, EXPLICIT, None), put(w, EXPLICIT, None, None)
        got, sent = compile_and_run(
            lambda v, w: scaled_matmul(*((v, w) if side == 0 else (w, v)), LAST, out_sharding=P("b")), *operands
        )
    assert specs(got) == [P("b")]
    assert sent == []
    assert_same(np.asarray(got), np.asarray(w, np.float32) @ np.asarray(v, np.float32), "product")
