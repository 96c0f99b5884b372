"""Shapes as HLO spells them, and how to read them off MLIR types."""

from dataclasses import dataclass
from typing import Any

from lowering._compat import ir

_NO_ARRAYS = ("token", "opaque")
_DEEPEST_TUPLE = 16
"""Calls have tuples of arrays. Types nest deeper than Python calls functions, and repeat exponentially."""


@dataclass(frozen=True)
class ArrayShape:
    """Element type and dimensions of one value; None is a dynamic dimension.

    What is no array has no dimensions, and its kind as element type: `token`, or a tuple's elements in parentheses.
    """

    element_type: str
    dims: tuple[int | None, ...] = ()

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def is_static(self) -> bool:
        """Whether every dimension is known."""
        return None not in self.dims

    @property
    def static_dims(self) -> tuple[int, ...]:
        """The dimensions, dynamic ones left out; callers check `is_static` first."""
        return tuple(d for d in self.dims if d is not None)

    @property
    def is_tuple(self) -> bool:
        """Whether this is a tuple."""
        return self.element_type.startswith("(")

    def __str__(self) -> str:
        if self.is_tuple or self.element_type in _NO_ARRAYS:
            return self.element_type
        return f"{self.element_type}[{','.join('?' if d is None else str(d) for d in self.dims)}]"


def array_shape(mlir_type: Any, depth: int = 0) -> ArrayShape:
    """Returns a type as HLO spells it; tuples that nest too deeply (`depth` levels are outside) are `(...)`."""
    if isinstance(mlir_type, ir.TupleType):
        if depth >= _DEEPEST_TUPLE:
            return ArrayShape("(...)")
        elements = (array_shape(mlir_type.get_type(i), depth + 1) for i in range(mlir_type.num_types))
        return ArrayShape(f"({', '.join(map(str, elements))})")
    if not isinstance(mlir_type, ir.RankedTensorType):
        return ArrayShape("token" if "token" in str(mlir_type) else "opaque")
    dims = tuple(None if mlir_type.is_dynamic_dim(i) else d for i, d in enumerate(mlir_type.shape))
    return ArrayShape(_element_type(str(mlir_type.element_type)), dims)


_HLO_ELEMENT_TYPES = {"i1": "pred", "complex<f32>": "c64", "complex<f64>": "c128"}


def _element_type(mlir: str) -> str:
    if mlir in _HLO_ELEMENT_TYPES:
        return _HLO_ELEMENT_TYPES[mlir]
    if mlir.startswith("ui"):
        return f"u{mlir[2:]}"
    if mlir.startswith("i"):
        return f"s{mlir[1:]}"
    return mlir.lower()
