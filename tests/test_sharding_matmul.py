"""Sharded `scaled_matmul_mx` and `MXArray`: the same bytes, and no more communication than any product of that shape.

The operands are small integers times powers of two, so that float32 sums are exact in any order and bytes can be
compared.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_mx
from tests.arrays import assert_same
from tests.collectives import Transfer, compile_and_run, mesh, mode, put

ONE, TWO = (8,), (2, 4)
M, N = 16, 24


@dataclasses.dataclass(frozen=True)
class Row:
    """One way to shard lhs [M, K] and rhs [N, K], and what the product communicates.

    Attributes:
        name: what model authors call it.
        devices: the shape of the mesh.
        length: K.
        lhs: the partition spec of the lhs, data and scale.
        rhs: that of the rhs.
        inline: what is communicated as plain operations.
        call: what is communicated as a custom call.
    """

    name: str
    devices: tuple[int, ...]
    length: int
    lhs: tuple[Any, ...]
    rhs: tuple[Any, ...]
    inline: tuple[Transfer, ...] = ()
    call: tuple[Transfer, ...] = ()


SUM = (("all-reduce", "f32", M * N * 4),)
ROWS = (
    Row("data parallel", ONE, 128, ("d", None), (None, None)),
    Row("column parallel", ONE, 128, (None, None), ("d", None)),
    Row("both", TWO, 128, ("a", None), ("b", None)),
    Row("row parallel", ONE, 256, (None, "d"), (None, "d"), SUM, SUM),
    Row(
        "row and data parallel",
        TWO,
        128,
        ("a", "b"),
        (None, "b"),
        (("all-reduce", "f32", M * N * 4 // 2),),
        (("all-reduce", "f32", M * N * 4 // 2),),
    ),
    # Shards of half a block. Dequantized they are added up as any; the call takes whole blocks, gathered as codes.
    Row(
        "split blocks",
        ONE,
        128,
        (None, "d"),
        (None, "d"),
        SUM,
        (("all-gather", "u32", M * 128), ("all-gather", "u32", N * 128)),
    ),
    # One side only: the call gathers it as codes, plain operations share the work and add up.
    Row(
        "one side",
        ONE,
        256,
        (None, "d"),
        (None, None),
        SUM,
        (("all-gather", "u32", M * 256), ("all-gather", "u8", M * 8)),
    ),
)


def integers(*shape: int, seed: int) -> jax.Array:
    random = np.random.default_rng(seed)
    return jnp.asarray(random.integers(-4, 5, shape) * 2.0 ** random.integers(0, 4, shape), jnp.bfloat16)


def quantized(length: int, fmt: str) -> tuple[jax_mx.MXArray, jax_mx.MXArray]:
    return (
        jax_mx.MXArray.quantize(integers(M, length, seed=0), fmt),
        jax_mx.MXArray.quantize(integers(N, length, seed=1), fmt),
    )


def shard(x: jax_mx.MXArray, on: Any, spec: tuple[Any, ...]) -> tuple[jax.Array, jax.Array]:
    """Data and scale over a mesh; the scale's quantized axis whole where its blocks cannot be shared."""
    pieces = np.prod([on.shape[name] for name in spec[-1:] if name is not None])
    scale_spec = spec if x.shape[-1] % (32 * pieces) == 0 else (*spec[:-1], None)
    return put(x.data, on, *spec), put(x.scale, on, *scale_spec)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize(
    ("fmt", "lowered_as", "out_dtype"),
    [
        ("float8_e4m3fn", "inline", jnp.float32),
        ("float4_e2m1fn", "inline", jnp.bfloat16),
        ("float8_e4m3fn", "custom_call", jnp.bfloat16),
        ("float8_e5m2", "custom_call", jnp.float32),
    ],
)
def test_scaled_matmul(row: Row, fmt: str, lowered_as: str, out_dtype: Any) -> None:
    on = mesh(*row.devices)
    lhs, rhs = quantized(row.length, fmt)

    def multiply(*operands: jax.Array) -> jax.Array:
        return jax_mx.scaled_matmul_mx(*operands, fmt, out_dtype=out_dtype)

    with mode(lowered_as):
        got, sent = compile_and_run(multiply, *shard(lhs, on, row.lhs), *shard(rhs, on, row.rhs))
    want = multiply(lhs.data, lhs.scale, rhs.data, rhs.scale)
    assert_same(np.asarray(got).view(np.uint8), np.asarray(want).view(np.uint8), "product")
    assert sent == sorted(row.call if lowered_as == "custom_call" else row.inline)


@pytest.mark.parametrize("lowered_as", ["inline", "custom_call"])
@pytest.mark.parametrize(
    ("spec", "inline_sent"),
    [(("d", None, None), ()), ((None, None, "d"), (("all-reduce", "f32", 8 * M * N * 4),))],
    ids=["batch", "contracting"],
)
def test_a_batch_of_products(spec: tuple[Any, ...], inline_sent: tuple[Transfer, ...], lowered_as: str) -> None:
    lhs = jax_mx.MXArray.quantize(integers(8, M, 256, seed=0))
    rhs = jax_mx.MXArray.quantize(integers(8, N, 256, seed=1))

    def multiply(*operands: jax.Array) -> jax.Array:
        return jax_mx.scaled_matmul_mx(*operands, dimension_numbers=(((2,), (2,)), ((0,), (0,))))

    with mode(lowered_as):
        got, sent = compile_and_run(multiply, *shard(lhs, mesh(8), spec), *shard(rhs, mesh(8), spec))
    want = multiply(lhs.data, lhs.scale, rhs.data, rhs.scale)
    assert_same(np.asarray(got).view(np.uint32), np.asarray(want).view(np.uint32), "product")
    assert sent == sorted(inline_sent)


def test_mx_array_is_sharded_and_multiplied_as_one_value() -> None:
    on = mesh(2, 4)
    x, w = integers(M, 128, seed=0), integers(128, N, seed=1)
    weights = jax_mx.MXArray.quantize(w, axis=0)
    sharded = jax.device_put(weights, jax.sharding.NamedSharding(on, jax.sharding.PartitionSpec(None, "b")))

    def multiply(x: jax.Array, w: jax_mx.MXArray) -> jax.Array:
        return jax_mx.MXArray.quantize(x) @ w

    got, sent = compile_and_run(multiply, put(x, on, "a", None), sharded)
    assert_same(np.asarray(got).view(np.uint16), np.asarray(multiply(x, weights)).view(np.uint16), "product")
    assert got.sharding.spec == jax.sharding.PartitionSpec("a", "b")
    assert sent == []


def test_mx_array_is_quantized_where_it_lies() -> None:
    x = integers(M, 256, seed=0)
    got, sent = compile_and_run(jax_mx.MXArray.quantize, put(x, mesh(8), None, "d"))
    want = jax_mx.MXArray.quantize(x)
    assert_same(got.data, want.data, "data")
    assert_same(got.scale, want.scale, "scale")
    assert {leaf.sharding.spec for leaf in jax.tree.leaves(got)} == {jax.sharding.PartitionSpec(None, "d")}
    assert sent == []
