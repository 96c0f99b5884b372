"""Says of every MX call, and of everything that almost is one, what the passes will do with it, and why not."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lowering import quantize_rules, scaled_dot_rules
from lowering.attributes import dictionary, text_of
from lowering.calls import (
    COMPOSITE,
    CUSTOM_CALL,
    FRONTEND_ATTRIBUTES,
    QUANTIZE_TARGET,
    SCALED_DOT_TARGET,
    Call,
    Signature,
    Spelling,
    array_shape,
    describe,
    target_of,
)
from lowering.diagnostics import Diagnostic, Severity, shorten
from lowering.hlo_adapter import COMPOSITE_NAME, LEGALIZED_PREFIXES
from lowering.legalize_quantize_mx import LegalizeQuantizeMx
from lowering.legalize_scaled_matmul import legalized_target
from lowering.locations import source_of
from lowering.module import Module
from lowering.options import choice
from lowering.rules import Target

_TAGS = tuple(
    f"QuantizeMX_{source}_{element}" for source in ("bf16", "f16") for element in ("e5m2", "e4m3fn", "e2m1fn")
)
_DOT_TAGS = tuple(f"ScaledMatmul_{e}_{e}_{out}" for e in ("e4m3fn", "e5m2") for out in ("f32", "bf16"))
_XLA_QUANTIZE, _XLA_DEQUANTIZE = "__op$quantize", "__op$dequantize"
_CALLERS = ("func.call", "mhlo.custom_call")


@dataclass(frozen=True, kw_only=True)
class NearMiss:
    """One row: targets that are almost MX calls.

    Attributes:
        matches: Whether a target is of this kind.
        cause: Why no pass touches it.
        resolution: What would have to change.
    """

    matches: Callable[[str], bool]
    cause: Callable[[str], str]
    resolution: str


def _plain(target: str) -> str:
    return "".join(c for c in target.lower() if c.isalnum())


NEAR_MISSES = (
    NearMiss(
        matches=lambda t: t in _TAGS + _DOT_TAGS,
        cause=lambda t: f"'{t}' is legalized already",
        resolution="nothing to do",
    ),
    NearMiss(
        matches=lambda t: t.startswith(LEGALIZED_PREFIXES),
        cause=lambda t: f"'{t}' looks like a legalized call, but no pass makes this target",
        resolution=f"the targets are {', '.join(_TAGS + _DOT_TAGS)}",
    ),
    NearMiss(
        matches=lambda t: t in (_XLA_QUANTIZE, _XLA_DEQUANTIZE),
        cause=lambda t: f"'{t}' is XLA's own block scaling operation, whose values are not packed",
        resolution=(
            "call QuantizeMX on bf16 or f16 along one of the last two dimensions, with results (u32 containers of "
            'four elements, u8 scales) and {"block_size":32,"dim":...,"dtype":...,"scale_method":"EMAX"}'
        ),
    ),
    NearMiss(
        matches=lambda t: any(name in _plain(t) for name in ("quantizemx", "quantisemx", "mxquantize")),
        cause=lambda t: f"'{t}' is not exactly '{QUANTIZE_TARGET}'",
        resolution=f"spell the target '{QUANTIZE_TARGET}'",
    ),
    NearMiss(
        matches=lambda t: any(name in _plain(t) for name in ("blockscaleddot", "scaledmatmul")),
        cause=lambda t: f"'{t}' is not exactly '{SCALED_DOT_TARGET}'",
        resolution=f"spell the target '{SCALED_DOT_TARGET}'",
    ),
)


def explain_module(module: Module, *, target: Target | str = Target.TRN3, allow_fp4: bool = False) -> list[Diagnostic]:
    """Says what the passes will do with the MX calls of a module, and with what almost is one.

    Args:
        module: The module; it is not changed.
        target: Hardware generation to judge calls for, a member of `Target` or its text: "trn2" or "trn3".
        allow_fp4: Accept `float4_e2m1fn` with 16-bit containers, which the published contract refuses.

    Returns:
        In post order, every finding about MX calls and a note for each legal call (MX014) and near miss (MX010).

    Raises:
        OptionError: A ValueError, with code MX017, when `target` is no target.
    """
    target = choice(Target, "target", target)
    legalize = LegalizeQuantizeMx(target=target, allow_fp4=allow_fp4)
    found: list[Diagnostic] = []
    with module.context:
        for op in module.operations_named(CUSTOM_CALL, COMPOSITE, *_CALLERS):
            if op.name in _CALLERS:
                found += _explain_composite(module, op) or _explain_other(module, op)
                continue
            name = target_of(op)
            if name == QUANTIZE_TARGET:
                call = describe(module, op)
                becomes = legalize.legalized_target(call) if call.operands else ""
                checked = quantize_rules.check_quantize(call, target=target, allow_fp4=allow_fp4)
                found += checked or [_legal(call, becomes)]
            elif name == SCALED_DOT_TARGET:
                call = describe(module, op)
                checked = scaled_dot_rules.check_scaled_dot(call)
                found += checked or [_legal(call, legalized_target(call))]
            else:
                found += _explain_near_miss(module, op, name)
    return found


def _explain_near_miss(module: Module, op: Any, name: str) -> list[Diagnostic]:
    for miss in NEAR_MISSES:
        if miss.matches(name):
            return [_note(describe(module, op), miss.cause(shorten(name)), miss.resolution)]
    return []


def _explain_composite(module: Module, op: Any) -> list[Diagnostic]:
    """A composite of HLO with several results, which is read as a call of its decomposition."""
    full = dictionary(op.attributes, FRONTEND_ATTRIBUTES).get(COMPOSITE_NAME.decode(), "")
    name = full.rpartition(".")[2]
    misses = [miss for miss in NEAR_MISSES if miss.matches(name)]
    if not misses:
        return []
    call = Call(
        op,
        module,
        Signature(
            target=name,
            spelling=Spelling.COMPOSITE,
            api_version=1,
            operands=tuple(array_shape(o.type) for o in op.operands),
            results=tuple(map(array_shape, op.results.types)),
            is_tuple=False,
            config=None,
            scale_rule=None,
        ),
    )
    if name == SCALED_DOT_TARGET:
        return [_note(call, f"'{full}' is a composite with several results", "a scaled matmul has one result")]
    return [_note(call, misses[0].cause(name), misses[0].resolution)]


def _explain_other(module: Module, op: Any) -> list[Diagnostic]:
    """A function of the name, or a custom call of the older MHLO dialect: spellings that no pass reads."""
    key = "callee" if op.name == "func.call" else "call_target_name"
    name = text_of(op.attributes[key])
    if _plain(name) != _plain(QUANTIZE_TARGET) and name != SCALED_DOT_TARGET:
        return []
    is_function = op.name == "func.call"
    kind = "a function of the module" if is_function else "an mhlo.custom_call"
    resolution = f"emit a custom call, or a stablehlo.composite named vendor.{QUANTIZE_TARGET}"
    return [
        Diagnostic(
            severity=Severity.NOTE,
            code="MX010",
            cause=f"'{name}' is {kind}, not a StableHLO custom call",
            resolution=resolution if is_function else "convert the module to StableHLO first",
            instruction=module.ssa_name(op.results[0]) if len(op.results) else op.name,
            location=source_of(op.location, module.name),
        )
    ]


def _legal(call: Call, becomes: str) -> Diagnostic:
    return _note(call, f"{call.target} ({call.spelling}) is legal", f"becomes {becomes}", code="MX014")


def _note(call: Call, cause: str, resolution: str, code: str = "MX010") -> Diagnostic:
    return Diagnostic(
        severity=Severity.NOTE,
        code=code,
        cause=cause,
        resolution=resolution,
        instruction=call.name,
        shapes=call.shapes,
        location=call.location,
    )
