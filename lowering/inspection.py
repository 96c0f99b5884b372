"""What a module's MX calls are: one row each, legal or the reasons why not."""

from collections.abc import Sequence
from dataclasses import dataclass

from lowering import scaled_dot_rules
from lowering.calls import (
    COMPOSITE,
    CUSTOM_CALL,
    QUANTIZE_TARGET,
    SCALED_DOT_TARGET,
    Call,
    describe,
    target_of,
)
from lowering.diagnostics import Diagnostic, Severity
from lowering.hlo_adapter import LEGALIZED_PREFIXES
from lowering.module import Module
from lowering.options import choice
from lowering.quantize_rules import BLOCK_SIZE, check_quantize, facts_of
from lowering.rules import Target


@dataclass(frozen=True, kw_only=True)
class Row:
    """One MX call for people to read; `-` stands for what the call does not say.

    Attributes:
        name: Instruction name in the input.
        target: Custom call target.
        operand: Shape of the tensor to quantize, or of both sides of a matmul.
        dtype: Element format.
        axis: Quantized dimension, non-negative.
        block_size: Elements in a block.
        data: Shape of the first result.
        scale: Shape of the second result.
        verdict: `legal`, `legalized`, or the codes and causes.
        source: The user's file:line.
        diagnostics: The findings behind the verdict.
    """

    name: str
    target: str
    operand: str
    dtype: str
    axis: str
    block_size: str
    data: str
    scale: str
    verdict: str
    source: str
    diagnostics: tuple[Diagnostic, ...] = ()


_DTYPES = {"e4m3fn": "float8_e4m3fn", "e5m2": "float8_e5m2", "e2m1fn": "float4_e2m1fn"}

HEADINGS = ("name", "target", "operand", "dtype", "axis", "block", "data", "scale", "verdict", "source")


def inspect_module(module: Module, *, target: Target | str = Target.TRN3, allow_fp4: bool = False) -> list[Row]:
    """Says what the MX calls of a module are: those that passes rewrite and those rewritten.

    Args:
        module: The module; it is not changed.
        target: Hardware generation to judge calls for, a member of `Target` or its text: "trn2" or "trn3".
        allow_fp4: Accept `float4_e2m1fn` with 16-bit containers, which the published contract refuses.

    Returns:
        A row for every call, in post order. Its shapes are spelled as HLO does, its verdict follows the compiler
        contract (`NCC_EVRF036` to `NCC_EVRF058`), its diagnostics are the findings behind the verdict.

    Raises:
        OptionError: A ValueError, with code MX017, when `target` is no target.
    """
    target = choice(Target, "target", target)
    rows = []
    with module.context:
        for op in module.operations_named(CUSTOM_CALL, COMPOSITE):
            name = target_of(op)
            if name == QUANTIZE_TARGET:
                rows.append(_quantize_row(describe(module, op), target, allow_fp4))
            elif name == SCALED_DOT_TARGET:
                rows.append(_scaled_dot_row(describe(module, op)))
            elif name.startswith(LEGALIZED_PREFIXES):
                rows.append(_legalized_row(describe(module, op)))
    return rows


def format_table(rows: Sequence[Row]) -> str:
    """Returns rows as an aligned table with headings."""
    cells = [HEADINGS] + [
        (r.name, r.target, r.operand, r.dtype, r.axis, r.block_size, r.data, r.scale, r.verdict, r.source) for r in rows
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(lines) + "\n"


def _quantize_row(call: Call, target: Target, allow_fp4: bool) -> Row:
    facts = facts_of(call.signature, target=target, allow_fp4=allow_fp4)
    found = check_quantize(call, target=target, allow_fp4=allow_fp4)
    return Row(
        name=call.name,
        target=call.target,
        operand=", ".join(map(str, call.operands)) or "-",
        dtype=facts.config.dtype or "-",
        axis="-" if facts.axis is None else str(facts.axis),
        block_size=str(facts.config.block_size),
        data=_result(call, 0),
        scale=_result(call, 1),
        verdict=verdict(found),
        source="-" if call.location is None else str(call.location),
        diagnostics=tuple(found),
    )


def _scaled_dot_row(call: Call) -> Row:
    facts = scaled_dot_rules.facts_of(call.signature)
    found = scaled_dot_rules.check_scaled_dot(call)
    axes = [str(side.effective_contracting[0]) if side.effective_contracting else "-" for side in facts.sides]
    return Row(
        name=call.name,
        target=call.target,
        operand=", ".join(map(str, call.operands)) or "-",
        dtype=facts.config.element_dtype or "-",
        axis=", ".join(axes),
        block_size=str(BLOCK_SIZE),
        data=_result(call, 0),
        scale="-",
        verdict=verdict(found),
        source="-" if call.location is None else str(call.location),
        diagnostics=tuple(found),
    )


def _legalized_row(call: Call) -> Row:
    metadata = call.metadata
    is_quantize = call.target.startswith(f"{QUANTIZE_TARGET}_")
    readable = is_quantize and metadata is not None and len(metadata) == 4
    return Row(
        name=call.name,
        target=call.target,
        operand=", ".join(str(o) for o in call.operands if not o.is_tuple) or "-",
        dtype=_DTYPES.get(call.target.split("_")[-1 if is_quantize else 1], "-"),
        axis=str(metadata[1]) if readable and metadata else "-",
        block_size=str(metadata[2]) if readable and metadata else "-",
        data=_result(call, 0),
        scale=_result(call, 1),
        verdict="legalized",
        source="-" if call.location is None else str(call.location),
    )


def _result(call: Call, index: int) -> str:
    return str(call.results[index]) if index < len(call.results) else "-"


def verdict(found: Sequence[Diagnostic]) -> str:
    """Returns `legal`, or codes and causes of the errors."""
    errors = [d for d in found if d.severity is Severity.ERROR]
    return "; ".join(f"{d.code}: {d.cause}" for d in errors) or "legal"
