"""`quantize_mx` under every JAX transformation gives the bytes that it gives eagerly."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import jax_mx
from tests import reference
from tests.arrays import assert_same

pytestmark = pytest.mark.usefixtures("implementation")

FMT = "float8_e4m3fn"


def random(*shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(len(shape)), shape, jnp.bfloat16)


def assert_tree_same(got: Any, want: Any) -> None:
    for index, (one, other) in enumerate(zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)):
        assert_same(one, other, f"result {index}")


@pytest.mark.parametrize("fmt", reference.FORMATS)
@pytest.mark.parametrize("mapped", [0, 1, 2])
@pytest.mark.parametrize("axis", [0, 1])
def test_vmap_over_every_axis(fmt: str, mapped: int, axis: int) -> None:
    x = random(64, 32, 96)
    outer_axis = axis + (mapped <= axis)
    want = jax_mx.quantize_mx(x, fmt, axis=outer_axis)
    got = jax.vmap(lambda x: jax_mx.quantize_mx(x, fmt, axis=axis), in_axes=mapped, out_axes=mapped)(x)
    assert_tree_same(got, want)


def test_nested_vmap() -> None:
    x = random(3, 32, 5, 2)
    inner = jax.vmap(lambda x: jax_mx.quantize_mx(x, FMT, axis=0), in_axes=1, out_axes=1)  # [32, 5] over the 5
    got = jax.vmap(jax.vmap(inner, in_axes=2, out_axes=2))(x)
    assert_tree_same(got, jax_mx.quantize_mx(x, FMT, axis=1))


def test_scan() -> None:
    x = random(5, 4, 64)
    _, got = jax.lax.scan(lambda carry, row: (carry + 1, jax_mx.quantize_mx(row, FMT)), 0, x)
    assert_tree_same(got, jax_mx.quantize_mx(x, FMT))


def test_cond() -> None:
    x = random(4, 64)

    @jax.jit
    def f(flag: jax.Array, x: jax.Array) -> Any:
        return jax.lax.cond(flag, lambda x: jax_mx.quantize_mx(x, FMT), lambda x: jax_mx.quantize_mx(2 * x, FMT), x)

    assert_tree_same(f(jnp.array(True), x), jax_mx.quantize_mx(x, FMT))
    assert_tree_same(f(jnp.array(False), x), jax_mx.quantize_mx(2 * x, FMT))


def test_remat() -> None:
    x = random(4, 64)

    @jax.checkpoint
    def f(x: jax.Array) -> jax.Array:
        data, scale = jax_mx.quantize_mx(jax.lax.stop_gradient(x), FMT)
        return jnp.sum(x * jax_mx.dequantize_mx(data, scale, FMT, out_dtype=x.dtype))

    gradient = jax.grad(lambda x: f(x).astype(jnp.float32))(x)
    want = jax_mx.fake_quantize_mx(x, FMT)
    assert_same(np.asarray(gradient).view(np.uint16), np.asarray(want).view(np.uint16), "gradient")


@pytest.mark.parametrize(("axis", "spec"), [(1, ("d", None)), (1, (None, "d")), (0, ("d", None))])
def test_shard_map(axis: int, spec: tuple[str | None, ...]) -> None:
    x = random(256, 256)
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    specs = PartitionSpec(*spec)
    f = jax.shard_map(
        lambda x: jax_mx.quantize_mx(x, FMT, axis=axis), mesh=mesh, in_specs=specs, out_specs=(specs, specs)
    )
    assert_tree_same(jax.jit(f)(x), jax_mx.quantize_mx(x, FMT, axis=axis))


def test_shard_map_refuses_out_specs_that_drop_the_sharded_axis() -> None:
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    specs = PartitionSpec("d", None)
    f = jax.shard_map(
        lambda x: jax_mx.quantize_mx(x, FMT), mesh=mesh, in_specs=specs, out_specs=(specs, PartitionSpec())
    )
    with pytest.raises(ValueError, match="out_specs"):
        f(random(256, 256))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("spec", [("d", None), (None, "d")])
def test_sharded_jit(axis: int, spec: tuple[str | None, ...]) -> None:
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    x = random(256, 256)
    sharded = jax.device_put(x, NamedSharding(mesh, PartitionSpec(*spec)))
    got = jax.jit(lambda x: jax_mx.quantize_mx(x, FMT, axis=axis))(sharded)
    assert_tree_same(got, jax_mx.quantize_mx(x, FMT, axis=axis))


def test_eval_shape() -> None:
    data, scale = jax.eval_shape(
        lambda x: jax_mx.quantize_mx(x, "float4_e2m1fn", axis=1), jax.ShapeDtypeStruct((2, 100, 3), jnp.float16)
    )
    assert (data.shape, data.dtype) == ((2, 25, 3), jnp.uint16)
    assert (scale.shape, scale.dtype) == ((2, 4, 3), jnp.uint8)


@pytest.mark.parametrize(("shape", "axis"), [((0, 32), 1), ((0, 32), 0), ((32, 0), 0), ((2, 0, 3), 1), ((0,), 0)])
@pytest.mark.parametrize("fmt", reference.FORMATS)
def test_empty_arrays(fmt: str, shape: tuple[int, ...], axis: int) -> None:
    x = jnp.zeros(shape, jnp.bfloat16)
    for quantize in (jax_mx.quantize_mx, jax.jit(jax_mx.quantize_mx, static_argnames=("dtype", "axis"))):
        data, scale = quantize(x, dtype=fmt, axis=axis)
        want = list(shape)
        want[axis] //= 4
        assert data.shape == tuple(want)
        want[axis] = -(-shape[axis] // 32)
        assert scale.shape == tuple(want)
        assert jax_mx.dequantize_mx(data, scale, fmt, axis=axis).shape == shape


@pytest.mark.parametrize(
    "spelling", ["float8_e5m2", jnp.float8_e5m2, jnp.dtype("float8_e5m2"), np.dtype("float8_e5m2")]
)
def test_every_spelling_of_a_dtype(spelling: Any) -> None:
    x = random(4, 64)
    assert_tree_same(jax_mx.quantize_mx(x, spelling), jax_mx.quantize_mx(x, "float8_e5m2"))


def test_numpy_arrays_are_arrays() -> None:
    x = random(4, 64)
    assert_tree_same(jax_mx.quantize_mx(np.asarray(x)), jax_mx.quantize_mx(x))


def test_the_jaxpr_shows_one_primitive() -> None:
    text = str(jax.make_jaxpr(lambda x: jax_mx.quantize_mx(x, FMT, rule=jax_mx.NKI))(random(4, 64)))
    assert "quantize_mx[axis=1 fmt=float8_e4m3fn rule=NKI]" in " ".join(text.split()).replace("[ ", "[").replace(
        " ]", "]"
    )


def test_disable_jit() -> None:
    x = random(4, 64)
    with jax.disable_jit():
        got = jax_mx.quantize_mx(x)
        values = jax_mx.dequantize_mx(*got, FMT)
    assert_tree_same(got, jax.jit(jax_mx.quantize_mx)(x))
    assert_tree_same(values, jax_mx.dequantize_mx(*got, FMT))
