"""Sharded arrays give the bytes of unsharded ones, and the compiler communicates what this table says and no more.

Under jit with `NamedSharding`, for every format and both lowerings. Where every shard holds whole blocks of 32 nothing
is communicated. Otherwise it is one of two things, besides the scale bytes, which cannot be sharded that finely: the
largest magnitudes of the blocks where shards divide a block, or else one gather.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_mx
from tests import reference
from tests.arrays import assert_same
from tests.collectives import Transfer, compile_and_run, mesh, mode, put, random_bits

ONE, TWO = (8,), (2, 4)


@dataclasses.dataclass(frozen=True)
class Row:
    """One way to shard one array, and what each function communicates.

    Attributes:
        devices: the shape of the mesh.
        shape: of the array.
        axis: the quantized one.
        spec: the partition spec.
        quantize: what `quantize_mx` communicates as plain operations.
        call: what it communicates as a custom call; XLA:CPU gathers bfloat16 as float32.
        fake: what `fake_quantize_mx` communicates.
        dequantize: what `dequantize_mx` communicates for data sharded alike, and scales too if they can be.
    """

    devices: tuple[int, ...]
    shape: tuple[int, ...]
    axis: int
    spec: tuple[Any, ...]
    quantize: tuple[Transfer, ...] = ()
    call: tuple[Transfer, ...] = ()
    fake: tuple[Transfer, ...] = ()
    dequantize: tuple[Transfer, ...] = ()

    def __str__(self) -> str:
        return f"{self.shape} axis {self.axis} {self.spec}"


ALIGNED = (
    Row(ONE, (64, 256), 1, ("d", None)),
    Row(ONE, (64, 256), 1, (None, "d")),
    Row(ONE, (256, 64), 0, ("d", None)),
    Row(ONE, (256, 64), 0, (None, "d")),
    Row(ONE, (16, 36), 1, ("d", None)),  # a partial block in every row
    Row(TWO, (64, 128), 1, ("a", "b")),
    Row(TWO, (8, 256), 1, (None, ("a", "b"))),
    Row(TWO, (4, 128, 6), 1, ("a", "b", None)),
)
MISALIGNED = (
    # Shards of 16, half a block: maxima, and the scales of 4 blocks that 8 devices cannot share.
    Row(
        ONE,
        (16, 128),
        1,
        (None, "d"),
        quantize=(("all-gather", "u8", 16 * 4), ("all-reduce", "u16", 16 * 4 * 2)),
        call=(("all-gather", "f32", 16 * 128 * 4), ("all-gather", "u8", 16 * 4)),
        fake=(("all-reduce", "u16", 16 * 4 * 2),),
    ),
    Row(
        ONE,
        (128, 16),
        0,
        ("d", None),
        quantize=(("all-gather", "u8", 16 * 4), ("all-reduce", "u16", 16 * 2)),
        call=(("all-gather", "f32", 16 * 128 * 4), ("all-gather", "u8", 16 * 4)),
        fake=(("all-reduce", "u16", 16 * 2),),
    ),
    # One block for 8 devices.
    Row(
        ONE,
        (16, 32),
        1,
        (None, "d"),
        quantize=(("all-reduce", "u16", 16 * 4 * 2),),
        call=(("all-gather", "f32", 16 * 32 * 4),),
        fake=(("all-reduce", "u16", 16 * 4 * 2),),
    ),
    # Shards of 12: no multiple of 32 and no divisor.
    Row(
        ONE,
        (16, 96),
        1,
        (None, "d"),
        quantize=(("all-gather", "u16", 16 * 96 * 2),),
        call=(("all-gather", "f32", 16 * 96 * 4),),
        fake=(("all-gather", "u16", 16 * 96 * 2),),
    ),
    # A partial block at the end; only the mesh axis that splits the quantized axis is gathered over.
    Row(
        TWO,
        (16, 72),
        1,
        ("b", "a"),
        quantize=(("all-gather", "u16", 4 * 72 * 2),),
        call=(("all-gather", "f32", 4 * 72 * 4),),
        fake=(("all-gather", "u16", 4 * 72 * 2),),
        dequantize=(("collective-permute", "u8", 4 * 12),),
    ),
    # Aligned over one axis of the mesh but not over both; the scales are gathered over the other one only.
    Row(
        TWO,
        (16, 128),
        1,
        (None, ("a", "b")),
        quantize=(("all-gather", "u8", 16 * 2), ("all-reduce", "u16", 16 * 4 * 2)),
        call=(("all-gather", "f32", 16 * 128 * 4), ("all-gather", "u8", 16 * 2)),
        fake=(("all-reduce", "u16", 16 * 4 * 2),),
    ),
)
rows = pytest.mark.parametrize("row", [*ALIGNED, *MISALIGNED], ids=str)
formats = pytest.mark.parametrize("fmt", reference.FORMATS)


def bits(x: jax.Array) -> np.ndarray:
    return np.asarray(x).view(f"u{x.dtype.itemsize}")


@rows
@formats
@pytest.mark.parametrize("lowered_as", ["inline", "custom_call"])
def test_quantize(row: Row, fmt: str, lowered_as: str) -> None:
    x = random_bits(*row.shape)
    with mode(lowered_as):
        got, sent = compile_and_run(
            lambda x: jax_mx.quantize_mx(x, fmt, axis=row.axis), put(x, mesh(*row.devices), *row.spec)
        )
    for result, want, name in zip(got, jax_mx.quantize_mx(x, fmt, axis=row.axis), ("data", "scale"), strict=True):
        assert_same(result, want, name)
    assert sent == sorted(row.call if lowered_as == "custom_call" else row.quantize)


@pytest.mark.parametrize("row", ALIGNED, ids=str)
def test_results_are_sharded_as_the_input(row: Row) -> None:
    x = put(random_bits(*row.shape), mesh(*row.devices), *row.spec)
    for result in jax.jit(lambda x: jax_mx.quantize_mx(x, axis=row.axis))(x):
        assert result.sharding.is_equivalent_to(x.sharding, x.ndim)


@rows
@formats
def test_fake_quantize(row: Row, fmt: str) -> None:
    x = random_bits(*row.shape)
    got, sent = compile_and_run(
        lambda x: jax_mx.fake_quantize_mx(x, fmt, axis=row.axis), put(x, mesh(*row.devices), *row.spec)
    )
    assert_same(bits(got), bits(jax_mx.fake_quantize_mx(x, fmt, axis=row.axis)), "values")
    assert sent == sorted(row.fake)


@rows
@formats
def test_dequantize(row: Row, fmt: str) -> None:
    data, scale = jax_mx.quantize_mx(random_bits(*row.shape), fmt, axis=row.axis)
    on = mesh(*row.devices)
    scale_spec = row.spec if row in ALIGNED else tuple(s if d != row.axis else None for d, s in enumerate(row.spec))
    got, sent = compile_and_run(
        lambda data, scale: jax_mx.dequantize_mx(data, scale, fmt, axis=row.axis),
        put(data, on, *row.spec),
        put(scale, on, *scale_spec),
    )
    assert_same(bits(got), bits(jax_mx.dequantize_mx(data, scale, fmt, axis=row.axis)), "values")
    assert sent == sorted(row.dequantize)


@pytest.mark.parametrize("rule", [jax_mx.EMAX_ALT, jax_mx.NKI, jax_mx.OCP_FLOOR], ids=repr)
def test_the_scale_rule_reaches_every_shard_of_the_call(rule: jax_mx.ScaleRule) -> None:
    x = random_bits(8, 256)
    with mode("custom_call"):
        got, sent = compile_and_run(lambda x: jax_mx.quantize_mx(x, rule=rule), put(x, mesh(8), None, "d"))
    for result, want in zip(got, jax_mx.quantize_mx(x, rule=rule), strict=True):
        assert_same(result, want, "result")
    assert sent == []


@pytest.mark.parametrize("lowered_as", ["inline", "custom_call"])
def test_what_the_result_is_asked_to_be_sharded_as_decides_for_a_replicated_input(lowered_as: str) -> None:
    x, on = random_bits(16, 256), mesh(8)
    out = jax.sharding.NamedSharding(on, jax.sharding.PartitionSpec(None, "d"))
    with mode(lowered_as):
        got, sent = compile_and_run(
            lambda x: jax.lax.with_sharding_constraint(jax_mx.quantize_mx(x), out), put(x, on, None, None)
        )
    for result, want in zip(got, jax_mx.quantize_mx(x), strict=True):
        assert_same(result, want, "result")
        assert result.sharding.is_equivalent_to(out, 2)
    assert sent == []


def test_float16_too() -> None:
    x = jax.lax.bitcast_convert_type(random_bits(16, 128), jnp.float16)
    for spec in (("d", None), (None, "d")):
        got, _ = compile_and_run(lambda x: jax_mx.quantize_mx(x, "float8_e5m2"), put(x, mesh(8), *spec))
        for result, want in zip(got, jax_mx.quantize_mx(x, "float8_e5m2"), strict=True):
            assert_same(result, want, "result")
