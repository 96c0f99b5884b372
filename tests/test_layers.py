"""Layers of Flax linen, Flax NNX and Equinox that multiply in MX."""

import functools
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jax_mx
import jax_mx.equinox
from jax_mx.equinox import MXLinear, swap_linear

X = jax.random.normal(jax.random.key(0), (5, 64))
RECIPE = jax_mx.MXRecipe("float8_e5m2", "float4_e2m1fn", None, jax_mx.NKI)
WHOLE = (((1,), (0,)), ((), ()))


def product(w: Any, recipe: jax_mx.MXRecipe = jax_mx.MXFP8) -> jax.Array:
    return jax_mx.mx_dot_general(X, jnp.asarray(w), WHOLE, recipe=recipe)


@pytest.mark.parametrize(
    ("options", "recipe"),
    [
        ({"dot_general": jax_mx.mx_dot_general}, jax_mx.MXFP8),
        ({"dot_general": jax_mx.MXDotGeneral(RECIPE)}, RECIPE),
        ({"dot_general_cls": jax_mx.MXDotGeneral}, jax_mx.MXFP8),
        ({"dot_general_cls": functools.partial(jax_mx.MXDotGeneral, RECIPE)}, RECIPE),
    ],
)
def test_linen_and_nnx_take_it(options: dict[str, Any], recipe: jax_mx.MXRecipe) -> None:
    dense = nn.Dense(32, **options)
    params = dense.init(jax.random.key(1), X)
    kernel = params["params"]["kernel"]
    assert np.array_equal(dense.apply(params, X), product(kernel, recipe))

    general = nnx.LinearGeneral(64, 32, rngs=nnx.Rngs(1), **options)
    assert np.array_equal(general(X), product(general.kernel[...], recipe))
    if "dot_general" in options:
        linear = nnx.Linear(64, 32, rngs=nnx.Rngs(1), **options)
        assert np.array_equal(linear(X), product(linear.kernel[...], recipe))


def test_linen_dense_general_contracts_several_dimensions() -> None:
    x = X.reshape(5, 4, 16)
    layer = nn.DenseGeneral((3, 8), axis=(-2, -1), dot_general=jax_mx.mx_dot_general, use_bias=False)
    params = layer.init(jax.random.key(2), x)
    kernel = params["params"]["kernel"]
    assert np.array_equal(layer.apply(params, x).reshape(5, 24), product(kernel.reshape(64, 24)))


def test_linen_computes_in_bfloat16_when_told_to() -> None:
    dense = nn.Dense(32, dtype=jnp.bfloat16, dot_general=jax_mx.mx_dot_general)
    params = dense.init(jax.random.key(3), X)
    out = dense.apply(params, X)
    assert out.dtype == jnp.bfloat16
    assert np.array_equal(out, product(params["params"]["kernel"]).astype(jnp.bfloat16))


def test_nnx_trains() -> None:
    model = nnx.Linear(64, 1, dot_general=jax_mx.mx_dot_general, rngs=nnx.Rngs(2))
    target = X[:, :1] - X[:, 1:2]

    @nnx.jit
    def step(model: nnx.Linear) -> jax.Array:
        value, gradient = nnx.value_and_grad(lambda model: jnp.mean((model(X) - target) ** 2))(model)
        nnx.update(model, jax.tree.map(lambda p, g: p - 0.02 * g, nnx.state(model), gradient))
        return value

    losses = [float(step(model)) for _ in range(40)]
    assert losses[-1] < 0.05 * losses[0]


class Net(eqx.Module):
    first: eqx.nn.Linear
    layers: list[Any]
    scalar: eqx.nn.Linear

    def __call__(self, x: jax.Array) -> jax.Array:
        x = jax.nn.relu(self.first(x))
        for layer in self.layers:
            x = layer(x)
        return self.scalar(x)


def net() -> Net:
    keys = jax.random.split(jax.random.key(4), 3)
    layers = [eqx.nn.Linear(32, 32, key=keys[1]), eqx.nn.Lambda(jnp.tanh)]
    return Net(eqx.nn.Linear(64, 32, use_bias=False, key=keys[0]), layers, eqx.nn.Linear(32, "scalar", key=keys[2]))


def test_equinox_layers_are_swapped_with_their_parameters() -> None:
    model = net()
    swapped = swap_linear(model, RECIPE)
    assert isinstance(swapped.first, MXLinear) and isinstance(swapped.layers[0], MXLinear)
    assert swapped.scalar is model.scalar
    assert isinstance(model.first, eqx.nn.Linear)
    assert swapped.first.weight is model.first.weight and swapped.first.bias is None
    assert swapped.layers[0].bias is model.layers[0].bias
    hidden = jax.nn.relu(jax.vmap(swapped.first)(X))
    assert np.array_equal(jax.vmap(swapped.first)(X), product(model.first.weight.T, RECIPE))
    out = jax.vmap(swapped.layers[0])(hidden)
    dims = (((1,), (1,)), ((), ()))
    want = jax_mx.mx_dot_general(hidden, model.layers[0].weight, dims, recipe=RECIPE) + model.layers[0].bias
    assert np.array_equal(out, want)


def test_equinox_where_chooses_layers() -> None:
    swapped = swap_linear(net(), where=lambda linear: linear.in_features == 64)
    assert isinstance(swapped.first, MXLinear) and isinstance(swapped.layers[0], eqx.nn.Linear)


def test_equinox_gradients_flow_and_are_one_product_over_the_batch() -> None:
    model = swap_linear(net())

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(model: Net) -> jax.Array:
        return jnp.mean(jax.vmap(model)(X) ** 2)

    made = gradient(model)
    for layer in (made.first, made.layers[0]):
        assert np.isfinite(layer.weight).all() and np.abs(layer.weight).max() > 0


def test_equinox_errors() -> None:
    with pytest.raises(ValueError, match=r"model: got no equinox\.nn\.Linear layer to replace"):
        swap_linear(eqx.nn.Lambda(jnp.tanh))
    with pytest.raises(TypeError, match="recipe: got 'MXFP8'"):
        swap_linear(net(), "MXFP8")
    with pytest.raises(ValueError, match=r"x: got shape \(5, 64\), want \(64,\); use jax.vmap"):
        swap_linear(net()).first(X)
