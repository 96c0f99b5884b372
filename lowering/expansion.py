"""What an MX call computes, as plain operations: the bit-exact implementation of `jax_mx`, lowered by JAX.

`expand_calls` replaces every MX call of a module, before or after legalization, by a call of a function with those
operations. The module then runs on a CPU, which has no `QuantizeMX`.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import jax_mx
from lowering import hlo_adapter, quantize_rules, scaled_dot_rules
from lowering._compat import ir
from lowering.attributes import text_of
from lowering.calls import (
    COMPOSITE,
    CUSTOM_CALL,
    QUANTIZE_TARGET,
    SCALED_DOT_TARGET,
    Call,
    describe,
    target_of,
)
from lowering.diagnostics import Diagnostic, LoweringError, Severity
from lowering.module import Module
from lowering.rewriting import MetadataEntry, replace
from lowering.rules import Target
from lowering.shapes import ArrayShape

FUNCTION_NAME = "mx_expansion"
"""Name of the function that is lowered, by which its modules can be told."""

_SCALE_RULES = {r.name: r for r in (jax_mx.EMAX, jax_mx.EMAX_ALT, jax_mx.NKI, jax_mx.OCP_FLOOR)}
_DTYPES = {
    "bf16": jnp.bfloat16,
    "f16": jnp.float16,
    "f32": jnp.float32,
    "u8": jnp.uint8,
    "u16": jnp.uint16,
    "u32": jnp.uint32,
    "f8e8m0fnu": jnp.float8_e8m0fnu,
}
_SCALE_ELEMENT_TYPES = ("u8", "f8e8m0fnu")
_FORMATS = {"e4m3fn": "float8_e4m3fn", "e5m2": "float8_e5m2", "e2m1fn": "float4_e2m1fn"}


@dataclass(frozen=True, kw_only=True)
class QuantizeOp:
    """What a quantize call computes; equal calls share one expansion."""

    operand: ArrayShape
    dtype: str
    axis: int
    rule: str
    scale_element_type: str

    def lower(self) -> Any:
        """Returns the JAX lowering of the bit-exact implementation."""
        function = functools.partial(
            jax_mx.quantize_mx,
            dtype=self.dtype,
            axis=self.axis,
            rule=_SCALE_RULES[self.rule],
            scale_dtype=_DTYPES[self.scale_element_type],
        )
        return _lower(function, (self.operand,))


@dataclass(frozen=True, kw_only=True)
class ScaledDotOp:
    """What a scaled matmul call computes: one contracting dimension on each side, f32 accumulation."""

    operands: tuple[ArrayShape, ...]
    dtype: str
    batch: tuple[tuple[int, ...], tuple[int, ...]]
    contracting: tuple[int, int]
    result: str

    def lower(self) -> Any:
        """Returns the JAX lowering: dequantize both sides, multiply, round once."""
        return _lower(self._product, self.operands)

    def _product(self, lhs: jax.Array, rhs: jax.Array, lhs_scale: jax.Array, rhs_scale: jax.Array) -> jax.Array:
        left, right = (
            jax_mx.dequantize_mx(data, jax.lax.bitcast_convert_type(scale, jnp.uint8), self.dtype, axis=axis)
            for data, scale, axis in zip((lhs, rhs), (lhs_scale, rhs_scale), self.contracting, strict=True)
        )
        dimensions = (((self.contracting[0],), (self.contracting[1],)), self.batch)
        product = jax.lax.dot_general(
            left, right, dimensions, precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32
        )
        return product.astype(_DTYPES[self.result])


MxOp = QuantizeOp | ScaledDotOp


def is_mx_target(target: str) -> bool:
    """Whether a custom call of this target is an MX call, legalized or not."""
    return target in (QUANTIZE_TARGET, SCALED_DOT_TARGET) or target.startswith(hlo_adapter.LEGALIZED_PREFIXES)


def operation_of(call: Call) -> MxOp:
    """Returns what a call computes.

    Raises:
        LoweringError: With every violation of its contract, or code MX007 when it cannot be executed here.
    """
    if call.target == QUANTIZE_TARGET or call.target.startswith(f"{QUANTIZE_TARGET}_"):
        return _quantize_op(call)
    return _scaled_dot_op(call)


def expand_calls(module: Module) -> int:
    """Replaces every MX call of a module by plain operations that compute the same bits; a CPU can run those.

    A quantize call computes `jax_mx.quantize_mx` along the call's dimension, in blocks of 32, with the scale rule that
    its `mx_scale_rule` attribute names (EMAX when it names none). A scaled matmul dequantizes both sides, multiplies
    with float32 accumulation and rounds once, to the call's result type.

    Args:
        module: The module, changed in place; its calls may be legalized or not.

    Returns:
        How many calls were replaced. Results keep their shapes and types.

    Raises:
        LoweringError: With the findings of all calls that are malformed (`NCC_EVRF...`) or cannot be executed here
            (MX007); the module is then as it was.
    """
    with module.context:
        ops = [op for op in module.operations_named(CUSTOM_CALL, COMPOSITE) if is_mx_target(target_of(op))]
        planned: list[tuple[Any, MxOp]] = []
        diagnostics: list[Diagnostic] = []
        for op in ops:
            try:
                planned.append((op, operation_of(describe(module, op))))
            except LoweringError as e:
                diagnostics += e.diagnostics
        if diagnostics:
            raise LoweringError(diagnostics)
        functions: dict[MxOp, str] = {}
        for op, operation in planned:
            if operation not in functions:
                functions[operation] = _import_function(module, operation, len(functions))
            _replace_by_call(op, functions[operation])
        if ops:
            module.mark_changed()
        return len(ops)


@functools.lru_cache(maxsize=256)
def lowered(operation: MxOp) -> Any:
    """Returns an operation's JAX lowering; modules repeat the same few operations many times."""
    return operation.lower()


def _lower(function: Callable[..., Any], operands: tuple[ArrayShape, ...]) -> Any:

    def mx_expansion(*arrays: jax.Array) -> Any:
        return function(*arrays)

    arguments = [jax.ShapeDtypeStruct(o.static_dims, _DTYPES[o.element_type]) for o in operands]
    with jax_mx.lowering_mode("inline"):
        return jax.jit(mx_expansion).trace(*arguments).lower(lowering_platforms=("cpu",))


def _quantize_op(call: Call) -> QuantizeOp:
    if call.target == QUANTIZE_TARGET:
        facts = quantize_rules.facts_of(call.signature, target=Target.TRN3, allow_fp4=True)
        found = quantize_rules.check_quantize(call, target=Target.TRN3, allow_fp4=True)
        errors = [d for d in found if d.severity is Severity.ERROR]
        if errors or facts.axis is None:
            raise LoweringError(errors)
        operand, dtype, axis = call.operands[0], facts.config.dtype, facts.axis
        block_size: MetadataEntry = facts.config.block_size
    else:
        metadata = call.metadata
        dtype = _FORMATS.get(call.target.rpartition("_")[2], "")
        arrays = [o for o in call.operands if not o.is_tuple]
        if metadata is None or len(metadata) != 4 or len(arrays) != 1 or not dtype or len(call.results) != 2:
            raise _cannot_run(call, "its operands are not metadata {dims, dim, block size, 0} and one array")
        operand, named, block_size = arrays[0], metadata[1], metadata[2]
        if not isinstance(named, int) or named not in range(operand.rank) or not operand.is_static:
            raise _cannot_run(call, f"its metadata names dimension {named} of {operand}")
        if metadata[0] != operand.static_dims:
            raise _cannot_run(call, f"its metadata says dims {metadata[0]} and its operand is {operand}")
        if not call.target.startswith(f"{QUANTIZE_TARGET}_{operand.element_type}_"):
            raise _cannot_run(call, f"its target is {call.target} and its operand is {operand}")
        axis = named
    rule = call.scale_rule or "EMAX"
    if rule not in _SCALE_RULES:
        raise _cannot_run(call, f"its scale rule '{rule}' is unknown")
    if block_size != quantize_rules.BLOCK_SIZE or operand.element_type not in ("bf16", "f16"):
        raise _cannot_run(call, f"it quantizes {operand} in blocks of {block_size}")
    scale_element_type = call.results[1].element_type
    if scale_element_type not in _SCALE_ELEMENT_TYPES:
        raise _cannot_run(call, f"its scale is {call.results[1]}")
    operation = QuantizeOp(operand=operand, dtype=dtype, axis=axis, rule=rule, scale_element_type=scale_element_type)
    _check_results(call, operation)
    return operation


def _scaled_dot_op(call: Call) -> ScaledDotOp:
    signature = call.signature
    if call.target != SCALED_DOT_TARGET:
        arrays = tuple(o for o in call.operands if not o.is_tuple)
        signature = dataclasses.replace(signature, operands=arrays)
    facts = scaled_dot_rules.facts_of(signature)
    errors = [v.at(call) for v in scaled_dot_rules.violations(signature) if v.severity is Severity.ERROR]
    if errors:
        raise LoweringError(errors)
    contradiction = "" if call.target == SCALED_DOT_TARGET else _dot_contradiction(call, facts)
    if contradiction:
        raise _cannot_run(call, contradiction)
    if any(o.element_type not in _SCALE_ELEMENT_TYPES for o in facts.call.operands[2:]):
        raise _cannot_run(call, f"its scales are {facts.call.operands[2]} and {facts.call.operands[3]}")
    contracting = [side.effective_contracting for side in facts.sides]
    if any(len(c) != 1 for c in contracting):
        raise _cannot_run(call, "it contracts more than one dimension")
    operation = ScaledDotOp(
        operands=facts.call.operands,
        dtype="float8_e4m3fn" if facts.config.element_dtype == "float8_e4m3fn" else "float8_e5m2",
        batch=(facts.lhs.batch, facts.rhs.batch),
        contracting=(contracting[0][0], contracting[1][0]),
        result=call.results[0].element_type,
    )
    _check_results(call, operation)
    return operation


def _dot_contradiction(call: Call, facts: scaled_dot_rules.ScaledDotFacts) -> str:
    """Says in what a legalized call's target and metadata contradict its configuration and result, if anything."""
    element = "e4m3fn" if facts.config.element_dtype == "float8_e4m3fn" else "e5m2"
    target = f"ScaledMatmul_{element}_{element}_{call.results[0].element_type}"
    if call.target != target:
        return f"its configuration and result {call.results[0]} make it {target}"
    contracting = (tuple(d % s.rank for d in s.contracting) for s in facts.sides)
    dims = (facts.lhs.batch, facts.rhs.batch, *contracting)
    return "" if call.metadata == dims else f"its metadata is {call.metadata} and its configuration says {dims}"


def _check_results(call: Call, operation: MxOp) -> None:
    """Checks that a call's results are what it computes; a module may lie about them."""
    try:
        computed_by = lowered(operation)
    except (TypeError, ValueError) as e:
        raise _cannot_run(call, str(e).splitlines()[0]) from None
    computed = [tuple(info.shape) for info in jax.tree.leaves(computed_by.out_info)]
    if computed != [r.dims for r in call.results]:
        raise _cannot_run(call, f"it computes {computed} and its results are {[str(r) for r in call.results]}")


def _cannot_run(call: Call, cause: str) -> LoweringError:
    return LoweringError(
        [
            Diagnostic(
                code="MX007",
                cause=f"{call.target} cannot be executed: {cause}",
                resolution="correct the call; mx-opt inspect shows what it says",
                instruction=call.name,
                shapes=call.shapes,
                location=call.location,
            )
        ]
    )


def _import_function(module: Module, operation: MxOp, index: int) -> str:
    """Copies an expansion's functions into a module under new names; returns the name of the one to call."""
    expansion = ir.Module.parse(str(lowered(operation).compiler_ir("stablehlo")))
    functions = [op for op in expansion.body.operations if op.operation.name == "func.func"]
    taken = {text_of(op.attributes["sym_name"]) for op in module.mlir.body.operations if "sym_name" in op.attributes}
    unused = (name for n in itertools.count() if (name := f"{FUNCTION_NAME}_{index}_{n}") not in taken)
    names = {f.attributes["sym_name"].value: next(unused) for f in functions}

    def rename(op: Any) -> Any:
        for attribute in ("sym_name", "callee"):
            if attribute in op.attributes and op.attributes[attribute].value in names:
                new = names[op.attributes[attribute].value]
                is_name = attribute == "sym_name"
                op.attributes[attribute] = ir.StringAttr.get(new) if is_name else ir.FlatSymbolRefAttr.get(new)
        return ir.WalkResult.ADVANCE

    expansion.operation.walk(rename)
    for function in functions:
        function.attributes["sym_visibility"] = ir.StringAttr.get("private")
        function.operation.clone(ip=ir.InsertionPoint(module.mlir.body))
    return names["main"]


def _replace_by_call(op: Any, function: str) -> None:
    """Replaces an MX call by a call of its expansion."""
    point, location = ir.InsertionPoint(op), op.location
    arrays = [o for o in op.operands if not isinstance(o.type, ir.TupleType)]
    result_types = [r.type for r in op.results]
    tuple_type = result_types[0] if isinstance(result_types[0], ir.TupleType) else None
    if tuple_type is not None:
        result_types = [tuple_type.get_type(i) for i in range(tuple_type.num_types)]
    new = ir.Operation.create(
        "func.call",
        results=result_types,
        operands=arrays,
        attributes={"callee": ir.FlatSymbolRefAttr.get(function)},
        loc=location,
        ip=point,
    )
    if tuple_type is not None:
        new = ir.Operation.create(
            "stablehlo.tuple", results=[tuple_type], operands=list(new.results), loc=location, ip=point
        )
    replace(op, new)
