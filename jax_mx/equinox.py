"""Equinox layers in MX: `swap_linear` replaces a model's linear layers. Needs the package equinox.

    model = jax_mx.equinox.swap_linear(model)

Only this module imports equinox, so `import jax_mx.equinox` is what asks for it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from jax_mx._dot_general import mx_dot_general
from jax_mx._recipe import MXFP8, MXRecipe

Model = TypeVar("Model")


class MXLinear(eqx.Module):
    """A linear layer that multiplies in MX, with the parameters of an `equinox.nn.Linear`.

    Attributes:
        weight: [out_features, in_features].
        bias: [out_features] or None.
        recipe: the formats and the scale rule.
    """

    weight: jax.Array
    bias: jax.Array | None
    recipe: MXRecipe = eqx.field(static=True)

    def __call__(self, x: jax.Array, *, key: Any = None) -> jax.Array:
        """Maps [in_features] to [out_features]; use `jax.vmap` for more dimensions, as with `equinox.nn.Linear`.

        Args:
            x: float32, bfloat16 or float16[in_features].
            key: not used; it is there because Equinox passes it.

        Raises:
            ValueError: `x` is of another shape.
        """
        if jnp.shape(x) != (self.weight.shape[1],):
            raise ValueError(
                f"x: got shape {jnp.shape(x)}, want ({self.weight.shape[1]},); use jax.vmap for other dimensions"
            )
        out = mx_dot_general(x, self.weight, (((0,), (1,)), ((), ())), recipe=self.recipe)
        return out if self.bias is None else out + self.bias


def swap_linear(
    model: Model, recipe: MXRecipe = MXFP8, *, where: Callable[[eqx.nn.Linear], bool] = lambda linear: True
) -> Model:
    """Returns the model with `MXLinear` in place of its `equinox.nn.Linear` layers, parameters kept.

    Layers whose input or output is a scalar (`"scalar"` features) stay as they are: there is nothing to quantize.

    Args:
        model: any Equinox module or pytree of them.
        recipe: the formats and the scale rule.
        where: says of a layer whether to replace it; all are by default.

    Returns:
        A new model; the old one is unchanged.

    Raises:
        TypeError: `recipe` is no recipe.
        ValueError: no layer was replaced.
    """
    if not isinstance(recipe, MXRecipe):
        raise TypeError(f"recipe: got {recipe!r}, want a jax_mx.MXRecipe such as jax_mx.MXFP8")
    replaced = 0

    def swap(node: Any) -> Any:
        nonlocal replaced
        if not isinstance(node, eqx.nn.Linear) or "scalar" in (node.in_features, node.out_features) or not where(node):
            return node
        replaced += 1
        return MXLinear(weight=node.weight, bias=node.bias, recipe=recipe)

    swapped = jax.tree.map(swap, model, is_leaf=lambda node: isinstance(node, eqx.nn.Linear))
    if replaced == 0:
        raise ValueError("model: got no equinox.nn.Linear layer to replace, want one or more")
    return swapped
