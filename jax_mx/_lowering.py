"""What the primitives become in a lowered module: the `QuantizeMX` custom call, a native kernel or plain operations.

On the CPU a call of a native kernel is one more way to compute the same bits; `_implementation` says when it is taken.
The contract of the custom call `QuantizeMX`:

    %data, %scale = QuantizeMX(%x)    x: bf16 or f16, rank >= 1; data: ui32 (ui16 for float4); scale: ui8
    backend_config = {"block_size": 32, "dim": <axis>, "dtype": "<element format>", "scale_method": "EMAX"}

`dim` is the last axis or the one before it; any other axis is transposed to the last one and back. The call has no
room for a scale rule, so a rule other than EMAX travels as the frontend attribute `mx_scale_rule`.
"""

import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_mx import _primitive, _shardy
from jax_mx._compat import ir, mlir
from jax_mx._dequantize import dequantize
from jax_mx._dequantize_primitive import dequantize_mx_p
from jax_mx._formats import BLOCK_SIZE, ElementFormat
from jax_mx._implementation import takes_native
from jax_mx._lowering_mode import QUANTIZE_TARGET, current_mode, lowers_for_neuron, uses_custom_call
from jax_mx._native import library
from jax_mx._primitive import quantize_mx_p
from jax_mx._quantize import quantize
from jax_mx._scale_rule import EMAX, SCALE_RULES, ScaleRule

SCALE_RULE_ATTRIBUTE = "mx_scale_rule"

_lower_operations = mlir.lower_fun(quantize, multiple_results=True)
_lower_dequantize = mlir.lower_fun(dequantize, multiple_results=False)


def _lower_inline(ctx: Any, x: Any, *, fmt: ElementFormat, rule: ScaleRule, axis: int) -> Any:
    x = _shardy.gather_partial_blocks(ctx, x, axis)
    return _lower_operations(ctx, x, fmt=fmt, rule=rule, axis=axis)


def _lower(ctx: Any, x: Any, *, fmt: ElementFormat, rule: ScaleRule, axis: int, auto: bool) -> Any:
    """Lowers by the current mode; `auto` says what that mode means for the platforms of this rule."""
    lower = _lower_custom_call if uses_custom_call(auto) else _lower_inline
    return lower(ctx, x, fmt=fmt, rule=rule, axis=axis)


def _lower_default(ctx: Any, x: Any, **params: Any) -> Any:
    return _lower(ctx, x, auto=lowers_for_neuron(ctx), **params)


def _lower_custom_call(ctx: Any, x: Any, *, fmt: ElementFormat, rule: ScaleRule, axis: int) -> Any:
    _shardy.check_partitioner(ctx, QUANTIZE_TARGET)
    (aval,) = ctx.avals_in
    if axis < aval.ndim - 2:
        moved = mlir.lower_fun(_quantize_along_last_axis, multiple_results=True)
        return moved(ctx, x, fmt=fmt, rule=rule, axis=axis)
    if rule not in SCALE_RULES:
        wanted = ", ".join(known.name for known in SCALE_RULES)
        raise ValueError(f"rule: got {rule!r}, which the {QUANTIZE_TARGET} call cannot name; want one of {wanted}")
    config = {"block_size": BLOCK_SIZE, "dim": axis, "dtype": fmt.name, "scale_method": EMAX.name}
    if rule != EMAX and _shardy.is_partitioned(ctx):
        config[SCALE_RULE_ATTRIBUTE] = rule.name  # the partitioner is shown this text and no attributes
    emit = jax.ffi.ffi_lowering(QUANTIZE_TARGET, backend_config=json.dumps(config), api_version=2)
    results: Any = emit(ctx, x)
    data, scale = results
    if rule != EMAX:
        attributes = {SCALE_RULE_ATTRIBUTE: ir.StringAttr.get(rule.name)}
        data.owner.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get(attributes)
    _shardy.attach(ctx, data.owner, _shardy.quantize_rule(aval.shape, axis))
    return data, scale


def _quantize_along_last_axis(
    x: jax.Array, *, fmt: ElementFormat, rule: ScaleRule, axis: int
) -> tuple[jax.Array, jax.Array]:
    data, scale = _primitive.bind(jnp.moveaxis(x, axis, -1), fmt=fmt, rule=rule, axis=x.ndim - 1)
    return jnp.moveaxis(data, -1, axis), jnp.moveaxis(scale, -1, axis)


def _lower_on_cpu(ctx: Any, x: Any, *, fmt: ElementFormat, rule: ScaleRule, axis: int) -> Any:
    if current_mode() != "auto" or not takes_native(ctx):
        return _lower(ctx, x, fmt=fmt, rule=rule, axis=axis, auto=False)
    return jax.ffi.ffi_lowering(library.QUANTIZE_TARGET)(
        ctx,
        x,
        axis=np.int64(axis),
        format=fmt.name,
        exponent_offset=np.int32(rule.exponent_offset(fmt)),
        min_scale=np.int32(rule.min_scale),
        propagate_nan=rule.propagate_nan,
    )


def _lower_dequantize_on_cpu(ctx: Any, data: Any, scale: Any, *, fmt: ElementFormat, axis: int, out_dtype: Any) -> Any:
    if current_mode() != "auto" or not takes_native(ctx):
        return _lower_dequantize(ctx, data, scale, fmt=fmt, axis=axis, out_dtype=out_dtype)
    return jax.ffi.ffi_lowering(library.DEQUANTIZE_TARGET)(ctx, data, scale, axis=np.int64(axis), format=fmt.name)


mlir.register_lowering(quantize_mx_p, _lower_default)
mlir.register_lowering(quantize_mx_p, _lower_on_cpu, platform="cpu")
for _platform in ("gpu", "tpu"):
    mlir.register_lowering(quantize_mx_p, functools.partial(_lower, auto=False), platform=_platform)
mlir.register_lowering(dequantize_mx_p, _lower_dequantize)
mlir.register_lowering(dequantize_mx_p, _lower_dequantize_on_cpu, platform="cpu")
