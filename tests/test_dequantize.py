"""Dequantization, exhaustively: every code under every scale byte into every output dtype, and round trips."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jax_mx
from tests import reference
from tests.arrays import RULES, assert_same, from_bits

pytestmark = pytest.mark.usefixtures("implementation")

OUT_DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
UNSIGNED = {"float32": np.uint32, "bfloat16": np.uint16, "float16": np.uint16}


def expected_bits(fmt: str, out_dtype: str) -> np.ndarray:
    """[256 scales, codes] bits: the exact double rounded once; a NaN is quiet and has its element's sign."""
    form = reference.FORMATS[fmt]
    codes = range(2 * form.sign_bit)
    exact = np.array([[reference.dequantize(code, scale, fmt) for code in codes] for scale in range(256)])
    signs = np.array([-1.0 if code & form.sign_bit else 1.0 for code in codes])
    with np.errstate(over="ignore", under="ignore"):
        values = np.copysign(exact, signs).astype(OUT_DTYPES[out_dtype])
    return values.view(UNSIGNED[out_dtype])


@pytest.mark.parametrize("out_dtype", OUT_DTYPES)
@pytest.mark.parametrize("fmt", reference.FORMATS)
@pytest.mark.parametrize("axis", [0, 1])
def test_every_code_under_every_scale(fmt: str, out_dtype: str, axis: int) -> None:
    count = 2 * reference.FORMATS[fmt].sign_bit
    length = -(-count // 32) * 32
    codes = np.resize(np.arange(count, dtype=np.uint8), (256, length))
    scale = np.broadcast_to(np.arange(256, dtype=np.uint8)[:, None], (256, length // 32))
    if axis == 0:
        codes, scale = codes.T, scale.T
    data = jax_mx.pack_x4(jnp.asarray(codes), fmt, axis)
    got = jax_mx.dequantize_mx(data, jnp.asarray(scale), fmt, axis=axis, out_dtype=out_dtype)
    got_bits = np.moveaxis(np.asarray(got).view(UNSIGNED[out_dtype]), axis, -1)[:, :count]
    assert got.dtype == jnp.dtype(out_dtype)
    assert_same(got_bits, expected_bits(fmt, out_dtype), f"{fmt} to {out_dtype}")


def test_some_values_by_hand() -> None:
    def value(code: int, scale: int, fmt: str, out_dtype: Any = jnp.float32) -> float:
        codes = jnp.full((4,), code, jnp.uint8)
        data = jax_mx.pack_x4(codes, fmt)
        return float(jax_mx.dequantize_mx(data, jnp.full((1,), scale, jnp.uint8), fmt, out_dtype=out_dtype)[0])

    assert value(0x7E, 127, "float8_e4m3fn") == 448.0
    assert value(0x7F, 127, "float8_e4m3fn") != value(0x7F, 127, "float8_e4m3fn")
    assert value(0x7C, 0, "float8_e5m2") == math.inf
    assert value(0xFB, 254, "float8_e5m2") == -math.inf  # 57344 * 2**127
    assert value(0x07, 1, "float4_e2m1fn") == 6 * 2.0**-126
    assert value(0x01, 127, "float8_e5m2", jnp.float16) == 2.0**-16
    # Below are subnormals, which float() of a jax scalar reads back without loss.
    assert value(0x38, 0, "float8_e4m3fn") == 2.0**-127
    assert value(0x01, 0, "float8_e4m3fn") == 2.0**-136
    assert value(0x01, 0, "float8_e4m3fn", jnp.bfloat16) == 0.0  # an eighth of bfloat16's smallest subnormal
    assert value(0x05, 0, "float8_e4m3fn", jnp.bfloat16) == 2.0**-133  # five eighths round up
    assert value(0x04, 0, "float8_e4m3fn", jnp.bfloat16) == 0.0  # a tie, to even
    assert value(0x01, 120, "float8_e4m3fn", jnp.float16) == 2.0**-16
    assert value(0x01, 111, "float8_e4m3fn", jnp.float16) == 0.0  # 2**-25, a tie, to even
    assert value(0x03, 111, "float8_e4m3fn", jnp.float16) == 2.0**-23  # 1.5 quanta, a tie, to even


@pytest.mark.parametrize("scale_dtype", [jnp.uint8, jnp.float8_e8m0fnu])
@pytest.mark.parametrize("fmt", reference.FORMATS)
def test_quantized_values_are_fixed_points(fmt: str, scale_dtype: Any) -> None:
    """Quantizing what was dequantized changes nothing when its block still has its largest exponent."""
    bits = np.random.default_rng(1).integers(0x3C00, 0x4400, size=(3, 5, 64), dtype=np.uint16)
    bits[..., ::2] |= 0x8000
    data, scale = jax_mx.quantize_mx(from_bits(bits, "bfloat16"), fmt, axis=1 - 2, scale_dtype=scale_dtype)
    assert scale.dtype == jnp.dtype(scale_dtype)
    values = jax_mx.dequantize_mx(data, scale, fmt, out_dtype=jnp.bfloat16)
    again, scale_again = jax_mx.quantize_mx(values, fmt)
    assert_same(again, data, "data")
    assert_same(scale_again, np.asarray(scale).view(np.uint8), "scale")


@pytest.mark.parametrize("rule", RULES)
def test_e8m0_scales_are_the_same_bytes(rule: str) -> None:
    """0xFF and 0 are the bytes that casts of this dtype lose."""
    bits = np.zeros((4, 32), np.uint16)
    bits[1, 3], bits[2, 3], bits[3, 3] = 0x7FC0, 0x0001, 0x7F7F
    x = from_bits(bits, "bfloat16")
    data, scale = jax_mx.quantize_mx(x, rule=RULES[rule])
    for quantize in (jax_mx.quantize_mx, jax.jit(jax_mx.quantize_mx, static_argnames=("rule", "scale_dtype"))):
        same_data, e8m0 = quantize(x, rule=RULES[rule], scale_dtype=jnp.float8_e8m0fnu)
        assert_same(same_data, data, "data")
        assert_same(np.asarray(e8m0).view(np.uint8), scale, "scale bytes")
        want = np.asarray(jax_mx.dequantize_mx(data, scale, "float8_e4m3fn")).view(np.uint32)
        got = np.asarray(jax_mx.dequantize_mx(data, e8m0, "float8_e4m3fn")).view(np.uint32)
        assert_same(got, want, "values")
