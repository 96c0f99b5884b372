"""`fake_quantize_mx`: its values, and the straight-through derivative in both modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_mx
from tests import reference
from tests.arrays import RULES, SOURCE_DTYPES, assert_same

pytestmark = pytest.mark.usefixtures("implementation")


@pytest.mark.parametrize("source", reference.SOURCES)
@pytest.mark.parametrize("fmt", reference.FORMATS)
@pytest.mark.parametrize("rule", RULES)
def test_value_is_quantize_then_dequantize(source: str, fmt: str, rule: str) -> None:
    x = jax.random.normal(jax.random.key(0), (3, 64, 2), SOURCE_DTYPES[source])
    data, scale = jax_mx.quantize_mx(x, fmt, axis=1, rule=RULES[rule])
    want = jax_mx.dequantize_mx(data, scale, fmt, axis=1, out_dtype=x.dtype)
    got = jax_mx.fake_quantize_mx(x, fmt, axis=1, rule=RULES[rule])
    assert got.dtype == x.dtype
    assert_same(np.asarray(got).view(np.uint16), np.asarray(want).view(np.uint16), "bits")
    assert not np.array_equal(np.asarray(got), np.asarray(x))


def test_derivatives_are_those_of_the_identity() -> None:
    x = jax.random.normal(jax.random.key(0), (4, 32), jnp.bfloat16)
    tangent = jax.random.normal(jax.random.key(1), (4, 32), jnp.bfloat16)
    value, got = jax.jvp(jax_mx.fake_quantize_mx, (x,), (tangent,))
    assert_same(np.asarray(got).view(np.uint16), np.asarray(tangent).view(np.uint16), "jvp")
    value_vjp, vjp = jax.vjp(jax_mx.fake_quantize_mx, x)
    (cotangent,) = vjp(tangent)
    assert_same(np.asarray(cotangent).view(np.uint16), np.asarray(tangent).view(np.uint16), "vjp")
    assert_same(np.asarray(value).view(np.uint16), np.asarray(value_vjp).view(np.uint16), "values")


def test_second_derivatives_go_through() -> None:
    def loss(x: jax.Array) -> jax.Array:
        return jnp.sum(jax_mx.fake_quantize_mx(x).astype(jnp.float32) ** 3)

    x = jnp.full((32,), 1.5, jnp.bfloat16)
    hessian_diagonal = jax.jvp(jax.grad(loss), (x,), (jnp.ones_like(x),))[1]
    assert np.all(np.asarray(hessian_diagonal, np.float32) == 9.0)


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint, jax.vmap])
def test_gradient_under(wrap: object) -> None:
    x = jax.random.normal(jax.random.key(2), (4, 32), jnp.bfloat16)
    weights = jnp.arange(4 * 32, dtype=jnp.float32).reshape(4, 32)
    f = wrap(lambda x: jax_mx.fake_quantize_mx(x, "float4_e2m1fn"))  # type: ignore[operator]
    gradient = jax.grad(lambda x: jnp.sum(f(x).astype(jnp.float32) * weights))(x)
    assert_same(np.asarray(gradient), np.asarray(weights.astype(jnp.bfloat16)), "gradient")
