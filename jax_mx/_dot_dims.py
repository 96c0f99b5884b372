"""Dimension numbers of a product, as one value: which dimensions are contracted, which are batch, which stay.

They are those of `jax.lax.dot_general`: the result has the batch dimensions first, then the lhs's other dimensions in
their order, then the rhs's.
"""

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

DimensionNumbers = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]
"""As `jax.lax.dot_general` takes them: ((lhs contracting, rhs contracting), (lhs batch, rhs batch))."""


@dataclasses.dataclass(frozen=True)
class DotDims:
    """Dimension numbers, validated and non-negative; index 0 of each pair is the lhs, 1 the rhs.

    Attributes:
        contracting: dimensions summed over, paired by position.
        batch: dimensions that both sides share, paired by position.
    """

    contracting: tuple[tuple[int, ...], tuple[int, ...]]
    batch: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    def __repr__(self) -> str:
        return f"({self.contracting}, {self.batch})"

    @property
    def as_lax(self) -> DimensionNumbers:
        """The form that `jax.lax.dot_general` takes."""
        return (self.contracting, self.batch)

    def free(self, side: int, rank: int) -> tuple[int, ...]:
        """The dimensions of one side that are neither contracted nor batch."""
        used = {*self.contracting[side], *self.batch[side]}
        return tuple(d for d in range(rank) if d not in used)

    def mapped(self, mapped: tuple[int | None, int | None], ranks: tuple[int, int]) -> tuple["DotDims", int]:
        """The product of operands that have one more dimension each, or one of them has.

        Args:
            mapped: where the new dimension is on each side, None where there is none.
            ranks: the operands' ranks without it.

        Returns:
            The dimension numbers with it, and where it is in the result: a new batch dimension where both sides have
            it, else one more free dimension of the side that has it, so that no operand is copied.
        """

        def shift(side: int, dims: tuple[int, ...]) -> tuple[int, ...]:
            at = mapped[side]
            return dims if at is None else tuple(d + (d >= at) for d in dims)

        lhs, rhs = mapped
        contracting = (shift(0, self.contracting[0]), shift(1, self.contracting[1]))
        batch = (shift(0, self.batch[0]), shift(1, self.batch[1]))
        if lhs is not None and rhs is not None:
            return DotDims(contracting, ((lhs, *batch[0]), (rhs, *batch[1]))), 0
        dims = DotDims(contracting, batch)
        if lhs is not None:
            return dims, len(batch[0]) + dims.free(0, ranks[0] + 1).index(lhs)
        if rhs is None:
            raise ValueError("mapped: got (None, None), want a mapped dimension on one side or both")
        lhs_free = len(dims.free(0, ranks[0]))
        return dims, len(batch[0]) + lhs_free + dims.free(1, ranks[1] + 1).index(rhs)

    def transposed(self, side: int, ranks: tuple[int, int]) -> tuple["DotDims", tuple[int, ...]]:
        """The product that gives the cotangent of one side: the result's cotangent times the other side.

        Args:
            side: 0 for the lhs's cotangent, 1 for the rhs's.
            ranks: the operands' ranks.

        Returns:
            The dimension numbers of `cotangent . other`, and the permutation that brings its result into the layout of
            that side.
        """
        other = 1 - side
        batch_count = len(self.batch[0])
        lhs_free = self.free(0, ranks[0])
        rhs_free = self.free(1, ranks[1])
        start = batch_count if other == 0 else batch_count + len(lhs_free)
        other_free = self.free(other, ranks[other])
        contracting = (tuple(range(start, start + len(other_free))), other_free)
        dims = DotDims(contracting, (tuple(range(batch_count)), self.batch[other]))
        # The product has the batch dimensions, this side's free ones, then the other's contracted ones in their order.
        by_other = sorted(range(len(self.contracting[other])), key=lambda i: self.contracting[other][i])
        layout = (
            *self.batch[side],
            *(lhs_free if side == 0 else rhs_free),
            *(self.contracting[side][i] for i in by_other),
        )
        return dims, tuple(layout.index(d) for d in range(ranks[side]))


def check_dimension_numbers(value: Any, lhs_shape: tuple[int, ...], rhs_shape: tuple[int, ...]) -> DotDims:
    """`value` as dimension numbers of a product of arrays with these logical shapes.

    Raises:
        TypeError: it is not of the form that `jax.lax.dot_general` takes.
        ValueError: a dimension is out of range, named twice, or of another size on the other side.
    """
    try:
        (lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch) = value
        dims = DotDims(
            (_normalized("lhs", lhs_contracting, lhs_shape), _normalized("rhs", rhs_contracting, rhs_shape)),
            (_normalized("lhs", lhs_batch, lhs_shape), _normalized("rhs", rhs_batch, rhs_shape)),
        )
    except TypeError:
        dims = None
    except ValueError as e:
        if isinstance(e, _DimensionError):
            raise ValueError(str(e)) from None
        dims = None
    if dims is None:
        raise TypeError(
            f"dimension_numbers: got {value!r}, want ((lhs contracting, rhs contracting), (lhs batch, rhs batch)), "
            "each a sequence of dimension indices"
        )
    for name, pair in (("contracting", dims.contracting), ("batch", dims.batch)):
        _check_pair(name, pair, lhs_shape, rhs_shape)
    for side, shape in enumerate((lhs_shape, rhs_shape)):
        named = (*dims.contracting[side], *dims.batch[side])
        if len(set(named)) != len(named):
            raise ValueError(
                f"dimension_numbers: got a dimension of {('lhs', 'rhs')[side]} of shape {shape} twice, "
                f"contracting {dims.contracting[side]} and batch {dims.batch[side]}; want each at most once"
            )
    return dims


class _DimensionError(ValueError):
    """A dimension is out of range; apart from the ValueError that unpacking a malformed value raises."""


def _normalized(name: str, dims: Sequence[Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    rank = len(shape)
    indices = tuple(operator.index(d) for d in dims)
    for d in indices:
        if not -rank <= d < rank:
            raise _DimensionError(
                f"dimension_numbers: got dimension {d} of {name}, want one in [{-rank}, {rank}) for its shape {shape}"
            )
    return tuple(d % rank for d in indices)


def _check_pair(name: str, pair: tuple[tuple[int, ...], tuple[int, ...]], lhs: Any, rhs: Any) -> None:
    if len(pair[0]) != len(pair[1]):
        raise ValueError(
            f"dimension_numbers: got {len(pair[0])} {name} dimensions of lhs and {len(pair[1])} of rhs, want as many"
        )
    for left, right in zip(*pair, strict=True):
        if lhs[left] != rhs[right]:
            raise ValueError(
                f"dimension_numbers: got {name} dimensions of different sizes, {left} of lhs of shape {lhs} "
                f"and {right} of rhs of shape {rhs}"
            )
