"""`mx_dot_general`: a drop-in for `jax.lax.dot_general` that multiplies in MX, forward and backward."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_mx import _dot_primitive
from jax_mx._check import OUT_DTYPES, check_array, check_dtype
from jax_mx._compat import api_boundary, canonicalize_sharding
from jax_mx._dot_dims import check_dimension_numbers
from jax_mx._recipe import MXFP8, MXRecipe


@api_boundary
def mx_dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    out_sharding: Any = None,
    recipe: MXRecipe = MXFP8,
) -> jax.Array:
    """Quantizes both operands along the contracting dimensions and multiplies them, accumulating in float32.

    float32 operands are rounded to bfloat16 first: that is what an MX quantizer takes. Several contracting dimensions
    are quantized as one, in the order in which they are named. A length that is no multiple of 4 is padded with zeros,
    which adds nothing to a product.

    An `MXArray` is taken for the values that it stands for, in its logical dtype, and those are quantized anew by
    `recipe`: its format, scale rule and axis do not matter, and its codes and scale bytes are not used as they are. To
    multiply them as they are, use `scaled_matmul_mx` or `@` of two `MXArray`s.

    The derivative is straight-through: quantizing counts as the identity. In the backward pass the gradient from above
    is quantized to `recipe.gradient` and each operand anew to its own format, both along the dimensions that are
    contracted there. Under `jax.vmap` a mapped dimension joins those dimensions first, so a weight's gradient is
    contracted, and quantized, over all examples at once.

    Args:
        lhs: the activations: float32, bfloat16 or float16, or an `MXArray`, which is quantized anew.
        rhs: the weights: likewise.
        dimension_numbers: as for `jax.lax.dot_general`: ((lhs contracting, rhs contracting), (lhs batch, rhs batch)).
        precision: not used; it is there because layers pass it.
        preferred_element_type: the result's dtype: float32, bfloat16 or float16. By default the operands' common one.
        out_sharding: on a mesh with explicit axes, the result's sharding; as for `jax.lax.dot_general`.
        recipe: the formats and the scale rule.

    Returns:
        [batch..., lhs's other dimensions..., rhs's other dimensions...].

    Raises:
        TypeError: an argument is of another type or dtype.
        ValueError: `dimension_numbers` does not fit the shapes.
    """
    lhs = check_array("lhs", lhs, OUT_DTYPES)
    rhs = check_array("rhs", rhs, OUT_DTYPES)
    dims = check_dimension_numbers(dimension_numbers, lhs.shape, rhs.shape)
    if preferred_element_type is None:
        out_dtype = jnp.promote_types(lhs.dtype, rhs.dtype)
    else:
        out_dtype = check_dtype("preferred_element_type", preferred_element_type, OUT_DTYPES)
    if not isinstance(recipe, MXRecipe):
        raise TypeError(f"recipe: got {recipe!r}, want a jax_mx.MXRecipe such as jax_mx.MXFP8")
    # The product itself comes in float32 or bfloat16; float16 is rounded from float32.
    product_dtype = out_dtype if out_dtype == jnp.bfloat16 else np.dtype(np.float32)
    product = _dot_primitive.bind(
        lhs,
        rhs,
        dimension_numbers=dims,
        recipe=recipe,
        out_dtype=product_dtype,
        out_sharding=canonicalize_sharding(out_sharding, "mx_dot_general"),
    )
    return product.astype(out_dtype)


@dataclasses.dataclass(frozen=True)
class MXDotGeneral:
    """`mx_dot_general` with a recipe of its own, as layers take it.

    Flax linen and NNX: `nn.Dense(..., dot_general=MXDotGeneral(recipe))`, or `dot_general_cls=MXDotGeneral` for the
    default recipe. For Equinox see `jax_mx.equinox`.

    Attributes:
        recipe: the formats and the scale rule.

    Raises:
        TypeError: `recipe` is no recipe.
    """

    recipe: MXRecipe = MXFP8

    def __post_init__(self) -> None:
        if not isinstance(self.recipe, MXRecipe):
            raise TypeError(f"recipe: got {self.recipe!r}, want a jax_mx.MXRecipe such as jax_mx.MXFP8")

    @api_boundary
    def __call__(
        self,
        lhs: Any,
        rhs: Any,
        dimension_numbers: Any,
        precision: Any = None,
        preferred_element_type: Any = None,
        *,
        out_sharding: Any = None,
    ) -> jax.Array:
        """As `mx_dot_general`, with this recipe."""
        return mx_dot_general(
            lhs,
            rhs,
            dimension_numbers,
            precision,
            preferred_element_type,
            out_sharding=out_sharding,
            recipe=self.recipe,
        )
