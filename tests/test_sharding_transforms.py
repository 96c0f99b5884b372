"""Sharding inside transformations, and what a module says of it before it is compiled."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

import jax_mx
from tests.arrays import assert_same
from tests.collectives import compile_and_run, mesh, mode, put, random_bits

lowerings = pytest.mark.parametrize("lowered_as", ["inline", "custom_call"])


def assert_quantized(got: Any, x: jax.Array) -> None:
    for result, want in zip(got, jax_mx.quantize_mx(x), strict=True):
        assert_same(result, want, "result")


@lowerings
@pytest.mark.parametrize("spec", [("d", None, None), (None, None, "d")])
def test_vmap_with_spmd_axis_name(spec: tuple[Any, ...], lowered_as: str) -> None:
    x = random_bits(8, 4, 256)
    with mode(lowered_as):
        got, sent = compile_and_run(jax.vmap(jax_mx.quantize_mx, spmd_axis_name="d"), put(x, mesh(8), *spec))
    assert_quantized(got, x)
    assert sent == []


@lowerings
def test_vmap_with_spmd_axis_name_of_a_shard_map(lowered_as: str) -> None:
    x, on = random_bits(2, 4, 128), mesh(2, 4)
    spec = PartitionSpec(None, "b")
    shards = jax.shard_map(jax_mx.quantize_mx, mesh=on, in_specs=spec, out_specs=spec)
    with mode(lowered_as):
        got, sent = compile_and_run(jax.vmap(shards, spmd_axis_name="a"), put(x, on, "a", None, "b"))
    assert_quantized(got, x)
    assert sent == []


@lowerings
@pytest.mark.parametrize("manual", [{"a"}, {"a", "b"}], ids=["some axes", "all axes"])
def test_shard_map(manual: set[str], lowered_as: str) -> None:
    x, on = random_bits(8, 128), mesh(2, 4)
    spec = PartitionSpec(*(name if name in manual else None for name in ("a", "b")))
    shards = jax.shard_map(jax_mx.quantize_mx, mesh=on, in_specs=spec, out_specs=spec, axis_names=manual)
    with mode(lowered_as):
        got, sent = compile_and_run(shards, put(x, on, "a", "b"))
    assert_quantized(got, x)
    assert sent == []


@lowerings
def test_product_in_a_shard_map(lowered_as: str) -> None:
    x, on = jnp.ones((16, 128), jnp.bfloat16), mesh(2, 4)

    def product(x: jax.Array) -> jax.Array:
        quantized = jax_mx.quantize_mx(x)
        return jax.lax.psum(jax_mx.scaled_matmul_mx(*quantized, *quantized), "b")

    shards = jax.shard_map(product, mesh=on, in_specs=PartitionSpec("a", "b"), out_specs=PartitionSpec("a", None))
    with mode(lowered_as):
        got, sent = compile_and_run(shards, put(x, on, "a", "b"))
    assert_same(got, jnp.full((16, 8), 128, jnp.float32), "product")
    assert sent == [("all-reduce", "f32", 8 * 8 * 4)]


def test_scan_over_sharded_layers() -> None:
    x = random_bits(3, 8, 256)

    def layers(x: jax.Array) -> Any:
        return jax.lax.scan(lambda carry, layer: (carry, jax_mx.quantize_mx(layer)), 0, x)[1]

    got, sent = compile_and_run(layers, put(x, mesh(8), None, None, "d"))
    assert_quantized(got, x)
    assert sent == []


@pytest.mark.parametrize(("length", "spec"), [(256, (None, "d")), (72, ("d", None))])
def test_an_exported_program_shards(length: int, spec: tuple[Any, ...]) -> None:
    x = random_bits(8, length)
    sharded = put(x, mesh(8), *spec)
    exported = jax.export.export(jax.jit(jax_mx.quantize_mx))(sharded)
    assert exported.nr_devices == 8
    got, sent = compile_and_run(jax.export.deserialize(exported.serialize()).call, sharded)
    assert_quantized(got, x)
    assert sent == []


def test_a_call_that_another_frontend_wrote_is_refused_by_name() -> None:
    results = jax.ShapeDtypeStruct((8, 64), jnp.uint32), jax.ShapeDtypeStruct((8, 8), jnp.uint8)
    typed = jax.jit(lambda x: jax.ffi.ffi_call("QuantizeMX", results)(x, dim=1))
    with pytest.raises(Exception, match=r"QuantizeMX: got backend_config .* in a module to be partitioned, want JSON"):
        typed.lower(put(random_bits(8, 256), mesh(8), "d", None)).compile()


def lowered_text(x: Any, **options: Any) -> str:
    function = jax.jit(lambda x: jax_mx.quantize_mx(x, **options))
    return function.trace(x).lower(lowering_platforms=("neuron",)).as_text()


@pytest.fixture
def gspmd() -> Iterator[None]:
    jax.config.update("jax_use_shardy_partitioner", False)
    yield
    jax.config.update("jax_use_shardy_partitioner", True)


@pytest.mark.parametrize("spec", [("d", None), (None, None)])
@pytest.mark.parametrize(
    ("call", "target"),
    [
        (jax_mx.quantize_mx, "QuantizeMX"),
        (lambda x: jax_mx.quantize_mx(x[..., None, None], axis=1), "QuantizeMX"),
        (
            lambda x: jax_mx.scaled_matmul_mx(*[x.view(jnp.uint32), jnp.zeros((64, 8), jnp.uint8)] * 2),
            "__op$block_scaled_dot",
        ),
    ],
)
def test_without_shardy_a_custom_call_is_an_error(
    gspmd: None, call: Callable[..., Any], target: str, spec: tuple[str | None, ...]
) -> None:
    """XLA would end the process when it compiles the module."""
    x = put(jnp.zeros((64, 128), jnp.bfloat16), mesh(8), *spec)
    with jax_mx.lowering_mode("custom_call"), pytest.raises(ValueError) as caught:
        jax.jit(call).lower(x)
    assert str(caught.value) == (
        f"jax_use_shardy_partitioner: got False for a module of several devices with the custom call {target}, "
        "want True: only Shardy can shard it"
    )


def test_without_shardy_other_modules_are_lowered(gspmd: None) -> None:
    x = random_bits(64, 128)
    sharded = put(x, mesh(8), "d", None)
    assert_quantized(jax.jit(jax_mx.quantize_mx)(sharded), x)
    local = jax.shard_map(
        jax_mx.quantize_mx, mesh=mesh(8), in_specs=PartitionSpec("d"), out_specs=PartitionSpec("d"), check_vma=False
    )
    for call, argument in ((jax_mx.quantize_mx, x), (local, sharded)):
        with jax_mx.lowering_mode("custom_call"):
            assert "@QuantizeMX" in jax.jit(call).lower(argument).as_text()


def test_only_a_partitioned_module_has_a_rule() -> None:
    x = jnp.zeros((64, 128), jnp.bfloat16)
    want = "sdy.sharding_rule = #sdy.op_sharding_rule<([i, jkl])->([i, jk], [i, j]) {i=64, j=4, k=8, l=4}"
    assert want in lowered_text(put(x, mesh(8), "d", None))
    assert "sdy." not in lowered_text(x)


@pytest.mark.parametrize(
    ("shape", "axis", "want"),
    [
        ((64, 32), 1, "([i, kl])->([i, k], [i, j]) {i=64, j=1, k=8, l=4} need_replication={l}"),
        ((64, 36), 1, "([i, l])->([i, k], [i, j]) {i=64, j=2, k=9, l=36} need_replication={j, k, l}"),
        ((96, 8), 0, "([ikl, j])->([ik, j], [i, j]) {i=3, j=8, k=8, l=4} need_replication={l}"),
        ((64, 2, 8), 0, "([i, j, klm])"),
    ],
)
def test_rule(shape: tuple[int, ...], axis: int, want: str) -> None:
    text = lowered_text(put(jnp.zeros(shape, jnp.bfloat16), mesh(8), *[None] * len(shape)), axis=axis)
    assert want in text


def test_only_a_call_to_be_partitioned_names_its_scale_rule_twice() -> None:
    x = jnp.zeros((64, 128), jnp.bfloat16)
    twice = lowered_text(put(x, mesh(8), "d", None), rule=jax_mx.NKI)
    once = lowered_text(x, rule=jax_mx.NKI)
    assert (twice.count("NKI"), once.count("NKI")) == (2, 1)
    assert "mx_scale_rule" not in lowered_text(put(x, mesh(8), "d", None))
