"""`mx_dot_general`: forward values, gradients, transformations and errors.

Values are compared with `jax_mx.fake_quantize_mx` on both sides and a product in float64: what differs is the order of
float32 sums alone. Gradients are compared with the same products written out by hand.
"""

# ruff: noqa: E501 - a table reads best a row a line

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_mx
from tests.errors import assert_blames_the_caller
from tests.test_lowering_mode import custom_calls, for_neuron

MATMUL = (((1,), (0,)), ((), ()))
E4, E5 = "float8_e4m3fn", "float8_e5m2"


def random(seed: int, *shape: int, dtype: Any = jnp.float32) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape).astype(dtype)


def quantized(x: Any, fmt: str, axis: int, rule: jax_mx.ScaleRule = jax_mx.EMAX) -> np.ndarray:
    """The values after quantizing along `axis`, filled up with zeros to a multiple of 4, as float64."""
    x = jnp.asarray(x, jnp.bfloat16) if x.dtype == jnp.float32 else jnp.asarray(x)
    length = x.shape[axis]
    widths = [(0, -n % 4 if d == axis % x.ndim else 0) for d, n in enumerate(x.shape)]
    values = jax_mx.fake_quantize_mx(jnp.pad(x, widths), fmt, axis=axis, rule=rule)
    return np.take(np.asarray(values, np.float64), range(length), axis)


def assert_close(got: Any, want: np.ndarray, tolerance: float = 2e-6) -> None:
    got = np.asarray(got, np.float64)
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= tolerance * np.abs(want).max()
    assert np.abs(want).max() > 0.1


def assert_near(got: Any, want: Any) -> None:
    """For values behind a nonlinearity: where one compilation rounds it otherwise, a code can flip by one step."""
    assert np.linalg.norm(np.asarray(got) - np.asarray(want)) < 1e-3 * np.linalg.norm(want)


def test_forward_is_the_product_of_quantized_operands() -> None:
    x, w = random(0, 5, 96), random(1, 96, 7)
    got = jax_mx.mx_dot_general(x, w, MATMUL)
    assert got.dtype == jnp.float32
    assert_close(got, quantized(x, E4, 1) @ quantized(w, E4, 0))
    exact = np.asarray(x, np.float64) @ np.asarray(w, np.float64)
    assert np.abs(got - exact).max() > 0.01 * np.abs(exact).max()  # so the comparison above can tell


def test_forward_is_bit_for_bit_the_scaled_matmul() -> None:
    x, w = random(2, 5, 64, dtype=jnp.bfloat16), random(3, 64, 7, dtype=jnp.bfloat16)
    recipe = jax_mx.MXRecipe("float4_e2m1fn", E5, rule=jax_mx.NKI)
    x_parts = jax_mx.quantize_mx(x, "float4_e2m1fn", axis=1, rule=jax_mx.NKI)
    w_parts = jax_mx.quantize_mx(w, E5, axis=0, rule=jax_mx.NKI)
    want = jax_mx.scaled_matmul_mx(*x_parts, *w_parts, ("float4_e2m1fn", E5), dimension_numbers=MATMUL)
    got = jax_mx.mx_dot_general(x, w, MATMUL, preferred_element_type=jnp.float32, recipe=recipe)
    assert np.array_equal(got, want)
    assert not np.array_equal(got, jax_mx.mx_dot_general(x, w, MATMUL, preferred_element_type=jnp.float32))


@pytest.mark.parametrize(
    ("lhs_shape", "rhs_shape", "dimension_numbers", "subscripts", "axes"),
    [
        ((2, 5, 64), (64, 7), (((2,), (0,)), ((), ())), "abk,kn->abn", (2, 0)),
        ((3, 5, 64), (7, 64, 3), (((2,), (1,)), ((0,), (2,))), "bmk,nkb->bmn", (2, 1)),
        ((64,), (64,), (((0,), (0,)), ((), ())), "k,k->", (0, 0)),
        ((5, 10), (10, 7), (((1,), (0,)), ((), ())), "mk,kn->mn", (1, 0)),
        ((5, 1), (1, 7), (((1,), (0,)), ((), ())), "mk,kn->mn", (1, 0)),
    ],
)
def test_dimension_numbers(lhs_shape: Any, rhs_shape: Any, dimension_numbers: Any, subscripts: str, axes: Any) -> None:
    x, w = random(4, *lhs_shape), random(5, *rhs_shape)
    got = jax_mx.mx_dot_general(x, w, dimension_numbers)
    assert_close(got, np.einsum(subscripts, quantized(x, E4, axes[0]), quantized(w, E4, axes[1])))


def test_several_contracting_dimensions_are_quantized_as_one() -> None:
    x, w = random(6, 4, 5, 3, 16), random(7, 16, 7, 4)
    got = jax_mx.mx_dot_general(x, w, (((0, 3), (2, 0)), ((), ())))
    x_flat = np.asarray(x).transpose(1, 2, 0, 3).reshape(5, 3, 64)
    w_flat = np.asarray(w).transpose(1, 2, 0).reshape(7, 64)
    assert_close(got, np.einsum("abk,nk->abn", quantized(x_flat, E4, 2), quantized(w_flat, E4, 1)))


def test_no_contracting_dimension() -> None:
    x, w = random(8, 5), random(9, 7)
    got = jax_mx.mx_dot_general(x, w, (((), ()), ((), ())))
    assert_close(got, np.outer(quantized(x[:, None], E4, 1)[:, 0], quantized(w[:, None], E4, 1)[:, 0]))


def test_gradients_are_products_of_quantized_operands() -> None:
    """The gradient in e5m2 and the operand in e4m3fn, both quantized along the dimension that is contracted there."""
    x, w, g = random(10, 6, 64), random(11, 64, 40), random(12, 6, 40)
    _, pull = jax.vjp(lambda x, w: jax_mx.mx_dot_general(x, w, MATMUL), x, w)
    dx, dw = pull(g)
    assert dx.dtype == dw.dtype == jnp.float32
    assert_close(dx, quantized(g, E5, 1) @ quantized(w, E4, 1).T)
    assert_close(dw, quantized(x, E4, 0).T @ quantized(g, E5, 0))


def test_each_operand_keeps_its_own_format_in_the_backward_pass() -> None:
    x, w, g = (random(13 + i, *shape, dtype=jnp.bfloat16) for i, shape in enumerate([(8, 64), (64, 32), (8, 32)]))
    recipe = jax_mx.MXRecipe(E5, "float4_e2m1fn", E4, rule=jax_mx.NKI)

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax_mx.mx_dot_general(x, w, MATMUL, preferred_element_type=jnp.float32, recipe=recipe)

    out, pull = jax.vjp(f, x, w)
    dx, dw = pull(g.astype(jnp.float32))
    nki = jax_mx.NKI
    assert_close(out, quantized(x, E5, 1, nki) @ quantized(w, "float4_e2m1fn", 0, nki))
    assert dx.dtype == dw.dtype == jnp.bfloat16
    assert_close(dx, quantized(g, E4, 1, nki) @ quantized(w, "float4_e2m1fn", 1, nki).T, 2**-8)
    assert_close(dw, quantized(x, E5, 0, nki).T @ quantized(g, E4, 0, nki), 2**-8)


def test_a_recipe_without_gradient_format_computes_the_backward_pass_in_full() -> None:
    x, w, g = random(16, 6, 64), random(17, 64, 40), random(18, 6, 40)
    _, pull = jax.vjp(lambda x, w: jax_mx.mx_dot_general(x, w, MATMUL, recipe=jax_mx.MXFP8_FORWARD), x, w)
    dx, dw = pull(g)
    assert_close(dx, np.float64(g) @ np.float64(w).T)
    assert_close(dw, np.float64(x).T @ np.float64(g))


def test_gradients_with_batch_and_several_dimensions() -> None:
    """Dims "abkcl,nlbk->bacn": every kind of dimension, in scrambled order."""
    x, w = random(19, 3, 2, 4, 5, 8), random(20, 7, 8, 2, 4)
    dims = (((2, 4), (3, 1)), ((1,), (2,)))
    g = random(21, 2, 3, 5, 7)
    _, pull = jax.vjp(lambda x, w: jax_mx.mx_dot_general(x, w, dims), x, w)
    dx, dw = pull(g)
    # dx contracts n; dw contracts a and c, quantized as one in the order of the lhs's dimensions.
    assert_close(dx, np.einsum("bacn,nlbk->abkcl", quantized(g, E5, 3), quantized(w, E4, 0)))
    x_flat = np.asarray(x).transpose(1, 2, 4, 0, 3).reshape(2, 4, 8, 15)
    g_flat = np.asarray(g).reshape(2, 15, 7)
    assert_close(dw, np.einsum("bklm,bmn->nlbk", quantized(x_flat, E4, 3), quantized(g_flat, E5, 1)))


def test_under_vmap_a_weight_gradient_is_one_product_over_all_examples() -> None:
    x, w, g = random(22, 40, 64), random(23, 64, 9), random(24, 40, 9)

    def batched(w: jax.Array) -> jax.Array:
        one = jax.vmap(lambda x: jax_mx.mx_dot_general(x, w, (((0,), (0,)), ((), ()))))
        return jnp.sum(one(x) * g)

    def whole(w: jax.Array) -> jax.Array:
        return jnp.sum(jax_mx.mx_dot_general(x, w, MATMUL) * g)

    assert np.array_equal(jax.grad(batched)(w), jax.grad(whole)(w))
    shapes = [v.aval.shape for e in jax.make_jaxpr(jax.grad(batched))(w).eqns for v in e.outvars]
    assert (40, 64, 9) not in shapes and (40, 9, 64) not in shapes  # no outer product for each example


@pytest.mark.parametrize("in_axes", [(0, 0), (1, None), (None, 2), (2, 1)])
def test_vmap_of_values_and_gradients(in_axes: tuple[int | None, int | None]) -> None:
    x, w = random(25, 5, 64), random(26, 64, 7)
    stacked = [a if at is None else jnp.stack([a, -2 * a, a + 1], at) for a, at in zip((x, w), in_axes, strict=True)]

    def f(x: jax.Array, w: jax.Array) -> Any:
        return jax.value_and_grad(lambda x, w: jnp.sum(jnp.sin(jax_mx.mx_dot_general(x, w, MATMUL))), (0, 1))(x, w)

    got = jax.vmap(f, in_axes=in_axes)(*stacked)
    for i in range(3):
        one = [a if at is None else jnp.take(a, i, at) for a, at in zip(stacked, in_axes, strict=True)]
        for whole, part in zip(jax.tree.leaves(got), jax.tree.leaves(f(*one)), strict=True):
            assert_near(whole[i], part)


def test_forward_mode_is_straight_through() -> None:
    x, w, t = random(27, 5, 64), random(28, 64, 7), random(29, 5, 64)
    _, tangent = jax.jvp(lambda x: jax_mx.mx_dot_general(x, w, MATMUL), (x,), (t,))
    assert_close(tangent, np.float64(t) @ quantized(w, E4, 0))
    _, tangent = jax.jvp(lambda w: jax_mx.mx_dot_general(x, w, MATMUL), (w,), (w,))
    assert_close(tangent, quantized(x, E4, 1) @ np.float64(w))
    _, both = jax.jvp(lambda x, w: jax_mx.mx_dot_general(x, w, MATMUL), (x, w), (t, w))
    assert_close(both, np.float64(t) @ quantized(w, E4, 0) + quantized(x, E4, 1) @ np.float64(w))


def test_second_derivatives() -> None:
    x, w = random(30, 5, 64), random(31, 64, 7)

    def f(w: jax.Array) -> jax.Array:
        return jnp.sum(jax_mx.mx_dot_general(x, w, MATMUL, recipe=jax_mx.MXFP8_FORWARD) ** 2)

    got = jax.jvp(jax.grad(f), (w,), (w,))[1]
    want = 2 * np.float64(x).T @ (quantized(x, E4, 1) @ np.float64(w))
    assert_close(got, want)
    twice = jax.grad(lambda w: jnp.vdot(jax.grad(f)(w), w))(w)
    assert twice.shape == w.shape and np.isfinite(twice).all() and np.abs(twice).max() > 1


def test_scan_remat_and_jit_agree() -> None:
    x, weights = random(32, 6, 32), random(33, 3, 32, 32)

    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(jax_mx.mx_dot_general(x, w, MATMUL))

    def unrolled(weights: jax.Array) -> jax.Array:
        out = x
        for w in weights:
            out = layer(out, w)
        return jnp.sum(out**2)

    def scanned(weights: jax.Array) -> jax.Array:
        out, _ = jax.lax.scan(jax.checkpoint(lambda x, w: (layer(x, w), None)), x, weights)
        return jnp.sum(out**2)

    want = jax.grad(unrolled)(weights)
    assert_near(jax.jit(jax.grad(scanned))(weights), want)
    with jax.disable_jit():
        assert_near(jax.grad(unrolled)(weights), want)


@pytest.mark.parametrize(
    ("lhs", "rhs", "preferred", "want"),
    [
        ("bfloat16", "bfloat16", None, "bfloat16"),
        ("float16", "float16", None, "float16"),
        ("float32", "bfloat16", None, "float32"),
        ("float16", "bfloat16", None, "float32"),
        ("bfloat16", "bfloat16", "float32", "float32"),
        ("float32", "float32", "bfloat16", "bfloat16"),
    ],
)
def test_dtypes(lhs: str, rhs: str, preferred: str | None, want: str) -> None:
    x, w = random(36, 5, 64, dtype=lhs), random(37, 64, 7, dtype=rhs)

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax_mx.mx_dot_general(x, w, MATMUL, preferred_element_type=preferred)

    out, pull = jax.vjp(f, x, w)
    assert out.dtype == want
    assert_close(out, quantized(x, E4, 1) @ quantized(w, E4, 0), 2**-7)
    dx, dw = pull(jnp.ones_like(out))
    assert (dx.dtype, dw.dtype) == (lhs, rhs)


def test_training_step_lowers_to_custom_calls() -> None:
    x, w = random(38, 8, 64), random(39, 64, 32)
    recipe = jax_mx.MXRecipe(gradient=E4)  # one format throughout, which the call can name

    def loss(w: jax.Array) -> jax.Array:
        return jnp.sum(jax_mx.mx_dot_general(x, w, MATMUL, recipe=recipe) ** 2)

    targets = [call.target for call in custom_calls(for_neuron(jax.value_and_grad(loss), w))]
    assert targets.count("QuantizeMX") == 4
    assert targets.count("__op$block_scaled_dot") == 2


X, W = jnp.ones((4, 64)), jnp.ones((64, 4))
CASES: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("dtype", lambda: jax_mx.mx_dot_general(X.astype(jnp.int32), W, MATMUL), TypeError, "lhs: got dtype int32, want float32"),
    ("list", lambda: jax_mx.mx_dot_general(X, [1.0], MATMUL), TypeError, "rhs: got list, want an array"),
    ("dims", lambda: jax_mx.mx_dot_general(X, W.T, MATMUL), ValueError, "dimension_numbers: got contracting dimensions of different sizes, 1 of lhs of shape (4, 64) and 0 of rhs"),
    ("preferred", lambda: jax_mx.mx_dot_general(X, W, MATMUL, None, jnp.int8), TypeError, "preferred_element_type: got int8, want float32"),
    ("recipe", lambda: jax_mx.mx_dot_general(X, W, MATMUL, recipe="MXFP8"), TypeError, "recipe: got 'MXFP8', want a jax_mx.MXRecipe"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_error_names_the_argument(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    assert_blames_the_caller(call, error, text)


DATACLASS_CASES: list[tuple[str, Callable[[], Any], str]] = [
    ("recipe_class", lambda: jax_mx.MXDotGeneral(E4), "recipe: got 'float8_e4m3fn', want a jax_mx.MXRecipe"),
    ("activation", lambda: jax_mx.MXRecipe("float8"), "activation: got 'float8', want an MX element format"),
    ("weight", lambda: jax_mx.MXRecipe(weight=None), "weight: got None, want an MX element format"),
    ("rule", lambda: jax_mx.MXRecipe(rule="NKI"), "rule: got 'NKI', want a jax_mx.ScaleRule"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "text"), [case[1:] for case in DATACLASS_CASES], ids=[case[0] for case in DATACLASS_CASES]
)
def test_recipes_name_the_field(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(TypeError) as caught:
        make()
    assert str(caught.value).startswith(text)


def test_an_mx_array_is_quantized_anew_by_the_recipe() -> None:
    x = jax.random.normal(jax.random.key(20), (4, 64), jnp.bfloat16)
    weight = jax_mx.MXArray.quantize(jax.random.normal(jax.random.key(21), (64, 8), jnp.bfloat16), "float4_e2m1fn")
    dims = (((1,), (0,)), ((), ()))
    got = jax_mx.mx_dot_general(x, weight, dims)
    assert np.array_equal(got, jax_mx.mx_dot_general(x, weight.dequantize(), dims))
    assert got.dtype == jnp.bfloat16
