"""Lowers a legalized quantize call to one BIR function: load a tile, quantize it, store data and scale.

    QuantizeMX_bf16_e4m3fn(x[.., K, ..])  ->  for each tile: [Memset], Load, QuantizeMx, Save data, Save scale rows

The DRAM results equal the call's results byte for byte. Tiles are double-buffered: tile t uses buffer t % 2, and
waits for what tile t - 2 still does with it. Loads are issued one tile ahead of the quantize instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import jax_mx
from lowering.bir.buffers import dram_tensor, plan_buffers
from lowering.bir.dtypes import BF16, E2M1_X4, E4M3_X4, E5M2_X4, F16, Dtype, dtype_named
from lowering.bir.emit import emit_tiles
from lowering.bir.errors import BirLoweringError
from lowering.bir.geometry import CORE_V4
from lowering.bir.program import Block, Debug, Function, Module
from lowering.bir.scale_rules import rule_name
from lowering.bir.tiling import Layout

__all__ = ["SCALE_RULE_KEY", "LegalizedCall", "LowerOptions", "lower_calls"]

SCALE_RULE_KEY = "mx_scale_rule"
"""Key of the module's attributes that holds a scale rule other than EMAX; this project's decision."""

_SOURCES: dict[str, Dtype] = {"bfloat16": BF16, "float16": F16}
_DATA: dict[str, tuple[Dtype, Dtype]] = {
    "float8_e4m3fn": (E4M3_X4, dtype_named("uint32")),
    "float8_e5m2": (E5M2_X4, dtype_named("uint32")),
    "float4_e2m1fn": (E2M1_X4, dtype_named("uint16")),
}
_TARGETS = ("core_v4", "trn3")


@dataclass(frozen=True)
class LegalizedCall:
    """One `QuantizeMX_*` call of a legalized module.

    Attributes:
        shape: Shape of the operand.
        element_type: "bfloat16" or "float16".
        dtype: "float8_e4m3fn", "float8_e5m2" or "float4_e2m1fn".
        axis: The quantized axis, negative or not.
        scale_rule: "EMAX", "EMAX_ALT", "NKI" or "OCP_FLOOR", or `jax_mx`'s rule of that name; one for a whole module.
        operand: Name of the operand, which the function's input gets.
        data: Name of the data output.
        scale: Name of the scale output.
        source: File and line of the user's call, when known.
    """

    shape: tuple[int, ...]
    element_type: str
    dtype: str
    axis: int = -1
    scale_rule: str | jax_mx.ScaleRule = "EMAX"
    operand: str = "x"
    data: str = "data"
    scale: str = "scale"
    source: tuple[str, int] | None = None


@dataclass(frozen=True)
class LowerOptions:
    """Choices of the lowering.

    Attributes:
        sbuf_budget: Bytes of each SBUF partition that may be used.
        columns_per_tile: Columns of the flattened array in one tile; chosen to fit the budget when None.
        pack_scales: Let up to four tiles share one scale buffer through pack offsets 0, 4, 8 and 12.
        target: Architecture to lower for; "core_v4", also spelled "trn3", or `Target.TRN3`.
    """

    sbuf_budget: int = field(default=CORE_V4.sbuf_usable)
    columns_per_tile: int | None = None
    pack_scales: bool = True
    target: str = "core_v4"


def lower_calls(calls: Sequence[LegalizedCall], options: LowerOptions | None = None) -> Module:
    """Lowers legalized quantize calls to a program.

    Args:
        calls: The calls, such as `legalized_calls` returns; all of one scale rule, which is the module's.
        options: Choices of the lowering; `LowerOptions()` when None.

    Returns:
        A module with a function per call, named "sg0000", "sg0001" and so on. A function takes the operand and gives
        the data, u32 containers of four fp8 elements (u16 of four fp4 elements), K/4 along the quantized axis, and
        the scales, u8, ceil(K/32) along it.

    Raises:
        BirLoweringError: A call or an option is not one the instruction can do, or a tile does not fit SBUF.
    """
    options = options or LowerOptions()
    if options.target not in _TARGETS:
        raise BirLoweringError(f"target is {options.target}, wanted core_v4 (trn3): no other core has QuantizeMx")
    _check_options(options)
    rules = sorted({rule_name(call.scale_rule, BirLoweringError) for call in calls})
    if len(rules) > 1:
        raise BirLoweringError(
            f"the calls ask for the scale rules {', '.join(rules)}; the rule is module-wide, wanted one"
        )
    functions = tuple(_lower_call(call, f"sg{i:04d}", options) for i, call in enumerate(calls))
    attributes: dict[str, object] = {"neuron_core_id": 0}
    if rules and rules[0] != "EMAX":
        attributes[SCALE_RULE_KEY] = rules[0]
    return Module(functions, arch=CORE_V4.arch, attributes=attributes)


def _lower_call(call: LegalizedCall, name: str, options: LowerOptions) -> Function:
    axis = _checked_axis(call)
    layout = Layout.of(call.shape, axis)
    source, (data, stored) = _SOURCES[call.element_type], _DATA[call.dtype]

    def resized(size: int) -> tuple[int, ...]:
        return (*call.shape[:axis], size, *call.shape[axis + 1 :])

    tensors = (
        dram_tensor(call.operand, "ExternalInput", source, call.shape, 0),
        dram_tensor(call.data, "ExternalOutput", stored, resized(layout.k // 4), 1),
        dram_tensor(call.scale, "ExternalOutput", dtype_named("uint8"), resized(-(-layout.k // 32)), 2),
    )
    buffers = plan_buffers(
        layout, source, data, options.sbuf_budget, options.columns_per_tile, pack_scales=options.pack_scales
    )
    debug = None if call.source is None else Debug(*call.source)
    instructions = emit_tiles(layout, tensors, buffers, debug)
    allocations = (*tensors, *buffers.allocations())
    return Function(name, allocations, (Block("Block1", tuple(instructions)),))


def _check_options(options: LowerOptions) -> None:
    """Whether numbers fit is for the planning to say, which knows the array."""
    for name, value in (("sbuf_budget", options.sbuf_budget), ("columns_per_tile", options.columns_per_tile)):
        if not isinstance(value, int) and not (value is None and name == "columns_per_tile"):
            raise BirLoweringError(f"{name} is {value!r}, wanted a whole number")


def _checked_axis(call: LegalizedCall) -> int:
    rank = len(call.shape)
    if rank == 0 or any(size < 0 for size in call.shape):
        raise BirLoweringError(
            f"{call.operand}: the shape is {list(call.shape)}, wanted rank 1 or more, sizes 0 or more"
        )
    if not -rank <= call.axis < rank:
        raise BirLoweringError(f"{call.operand}: the axis is {call.axis}, wanted {-rank} to {rank - 1}")
    axis = call.axis % rank
    if call.shape[axis] % 4:
        raise BirLoweringError(f"{call.operand}: axis {axis} has {call.shape[axis]} elements, wanted a multiple of 4")
    for what, value, known in (
        ("element type", call.element_type, _SOURCES),
        ("dtype", call.dtype, _DATA),
    ):
        if value not in known:
            raise BirLoweringError(f"{call.operand}: the {what} is {value}, wanted {' or '.join(known)}")
    if len({call.operand, call.data, call.scale}) < 3:
        raise BirLoweringError(f"the names {call.operand}, {call.data} and {call.scale} are not distinct")
    return axis
