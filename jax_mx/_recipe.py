"""Recipes: the element formats of a product's operands and of the gradient that flows back through it."""

import dataclasses
from typing import Any

from jax_mx._check import check_rule
from jax_mx._formats import DTypeLike, ElementFormat, as_format
from jax_mx._scale_rule import EMAX, ScaleRule


@dataclasses.dataclass(frozen=True)
class MXRecipe:
    """What `mx_dot_general` quantizes to. Every format is an element format, as a string or dtype.

    Attributes:
        activation: the format of the first operand, forward and where it multiplies a gradient.
        weight: the same for the second operand.
        gradient: the format of the gradient that comes from above, in both products of the backward pass. None computes
            the backward pass in the operands' own precision, with float32 accumulation.
        rule: the scale rule of everything quantized.

    Raises:
        TypeError: a field is of another type.
    """

    activation: DTypeLike = "float8_e4m3fn"
    weight: DTypeLike = "float8_e4m3fn"
    gradient: DTypeLike | None = "float8_e5m2"
    rule: ScaleRule = EMAX

    def __post_init__(self) -> None:
        for field in ("activation", "weight", "gradient"):
            value = getattr(self, field)
            if value is None and field == "gradient":
                continue
            object.__setattr__(self, field, _format_of(field, value))
        check_rule(self.rule)

    @property
    def operands(self) -> tuple[ElementFormat, ElementFormat]:
        """The formats of the two operands."""
        return self.activation, self.weight


def _format_of(field: str, value: Any) -> ElementFormat:
    if isinstance(value, ElementFormat):
        return value
    return as_format(value, field)


MXFP8 = MXRecipe()
"""Activations and weights in float8_e4m3fn, gradients in float8_e5m2, which trades precision for range."""

MXFP8_FORWARD = MXRecipe(gradient=None)
"""Forward in float8_e4m3fn, backward in the operands' own precision."""

MXFP4_WEIGHTS = MXRecipe(weight="float4_e2m1fn", gradient=None)
"""float4_e2m1fn weights and float8_e4m3fn activations forward, backward in the operands' own precision."""
