"""`mx_dot_general` and `scaled_matmul_mx` on a mesh: gradients, contracted shards, axes of every kind."""

import jax
import jax.numpy as jnp
import pytest

import jax_mx
from tests.test_mx_dot_general import MATMUL, assert_near, random


def test_shard_map_gradients() -> None:
    x, w = random(34, 256, 64), random(35, 64, 32)
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    p = jax.sharding.PartitionSpec

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.psum(jnp.sum(jax_mx.mx_dot_general(x, w, MATMUL) ** 2), "d")

    gradient = jax.shard_map(jax.grad(f, 1), mesh=mesh, in_specs=(p("d"), p()), out_specs=p())
    want = jax.grad(lambda w: jnp.sum(jax_mx.mx_dot_general(x, w, MATMUL) ** 2))(w)
    # Every device quantizes 32 rows, one block, so the sharded gradient has the same codes.
    assert_near(jax.jit(gradient)(x, w), want)


@pytest.mark.parametrize("shape", [(256, 64), (16, 64), (16, 32, 64), (16, 3, 64)])
def test_gradients_on_a_mesh_with_explicit_axes(shape: tuple[int, ...]) -> None:
    """A sharded batch: the weight's gradient sums over all devices, whether or not shards hold whole blocks."""
    x, w = random(40, *shape), random(41, 64, 32)
    dims = (((len(shape) - 1,), (0,)), ((), ()))

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.sum(jax_mx.mx_dot_general(x, w, dims) ** 2)

    want = jax.grad(f, (0, 1))(x, w)
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    p = jax.sharding.PartitionSpec
    with jax.set_mesh(mesh):
        placed = jax.device_put(x, jax.NamedSharding(mesh, p("d"))), jax.device_put(w, jax.NamedSharding(mesh, p()))
        got = jax.jit(jax.grad(f, (0, 1)))(*placed)
        assert jax.typeof(got[0]).sharding.spec[0] == "d"
    for one, other in zip(got, want, strict=True):
        assert_near(one, other)


def test_contracting_a_sharded_dimension_with_explicit_axes() -> None:
    x, w = random(42, 8, 512), random(43, 512, 16)
    want = jax_mx.mx_dot_general(x, w, MATMUL)
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    p = jax.sharding.PartitionSpec
    with jax.set_mesh(mesh):
        placed = (
            jax.device_put(x, jax.NamedSharding(mesh, p(None, "d"))),
            jax.device_put(w, jax.NamedSharding(mesh, p("d"))),
        )
        with pytest.raises(Exception, match="out_sharding"):
            jax_mx.mx_dot_general(*placed, MATMUL)
        assert_near(jax_mx.mx_dot_general(*placed, MATMUL, out_sharding=p("d", None)), want)
        parts = [
            *jax_mx.quantize_mx(placed[0].astype(jnp.bfloat16)),
            *jax_mx.quantize_mx(placed[1].astype(jnp.bfloat16), axis=0),
        ]
        product = jax_mx.scaled_matmul_mx(*parts, dimension_numbers=MATMUL, out_sharding=p())
        assert_near(product, want)
        stacked = [jnp.stack([part, part]) for part in parts]
        mapped = jax.vmap(lambda *a: jax_mx.scaled_matmul_mx(*a, dimension_numbers=MATMUL, out_sharding=p()))(*stacked)
        assert_near(mapped[1], want)
