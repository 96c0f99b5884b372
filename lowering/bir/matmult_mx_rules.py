"""The verifier's rules for MatmultMx: one table, read top to bottom.

Operands are ifmap and weights with a scale each, and the PSUM output. K of an operand is its elements in one
partition, a container counted as four. `tile_size` and `tile_position` are read as [row, column], -1 or an absent key
meaning unset; that spelling is this project's decision.
"""

from __future__ import annotations

from typing import Any

from lowering.bir.geometry import CORE_V4
from lowering.bir.program import PE
from lowering.bir.rules import Rule, Scene, dtype_in, in_sbuf, start_at_most

__all__ = ["MATMULT_MX_ROLES", "MATMULT_MX_RULES"]

MATMULT_MX_ROLES = (("ifmap", "weights", "ifmap_scales", "weights_scales"), ("out",))
"""Names of the operands: ins, then outs."""

_X4 = ("float8_e4m3fn_x4", "float8_e5m2_x4", "float4_e2m1fn_x4")
_SCALE = ("uint8", "float8_e8m0fnu")
_MAX_WEIGHT_ELEMENTS = 512
_COLUMNS = 128


def _engine(scene: Scene) -> str | None:
    engine, number = scene.instruction.engine, scene.instruction.engine_id
    return None if engine == PE.name and number in (PE.number, None) else f"engine {engine}, engine_id {number}"


def _scale_count(code: str, role: str) -> Rule:
    def check(scene: Scene) -> str | None:
        elements, scales = scene.operands[role].elements, scene.operands[f"{role}_scales"].units
        return None if elements == 4 * scales else f"{elements} elements and {scales} scales per partition"

    return Rule(code, (role, f"{role}_scales"), "four elements per scale in a partition", check)


def _one_quadrant(code: str, role: str) -> Rule:
    def check(scene: Scene) -> str | None:
        data, scale = (scene.operands[name].start_partition for name in (role, f"{role}_scales"))
        same = data // CORE_V4.quadrant == scale // CORE_V4.quadrant
        return None if same else f"start partitions {data} and {scale}"

    return Rule(code, (role, f"{role}_scales"), "start partitions in one quadrant", check)


def _scale_multiple(role: str) -> Rule:
    def check(scene: Scene) -> str | None:
        start = scene.operands[role].start_partition
        return None if start % 4 == 0 else f"start partition {start}"

    return Rule("214", (role,), "a start partition divisible by 4", check)


def _fmap_limit(scene: Scene) -> str | None:
    limit = 32 * (CORE_V4.psum_bank_bytes // scene.operands["out"].pattern.dtype.bytes)
    elements = scene.operands["ifmap"].elements
    return None if elements <= limit else f"{elements} elements per partition where {limit} fit"


def _weights_limit(scene: Scene) -> str | None:
    elements = scene.operands["weights"].elements
    return None if elements <= _MAX_WEIGHT_ELEMENTS else f"{elements} elements per partition"


def _weights_even(scene: Scene) -> str | None:
    containers = scene.operands["weights"].elements // 4
    return None if containers % 2 == 0 else f"{containers} containers per partition"


def _fmap_partitions(scene: Scene) -> str | None:
    partitions = scene.operands["ifmap"].partitions
    return None if partitions in (32, 64, 128) else f"{partitions} partitions"


def _same_partitions(scene: Scene) -> str | None:
    ifmap, weights = scene.operands["ifmap"].partitions, scene.operands["weights"].partitions
    return None if ifmap == weights else f"{ifmap} and {weights} partitions"


def _out_partitions(scene: Scene) -> str | None:
    out, weights = scene.operands["out"].partitions, scene.operands["weights"].elements
    return None if out * 4 == weights else f"{out} out partitions and {weights} weights elements per partition"


def _out_elements(scene: Scene) -> str | None:
    out, ifmap = scene.operands["out"].units, scene.operands["ifmap"].elements
    return None if out * 4 == ifmap else f"{out} out elements and {ifmap} ifmap elements per partition"


def _row_tile(scene: Scene) -> str | None:
    size = scene.instruction.extra.get("tile_size")
    allowed = (-1, scene.operands["ifmap"].partitions)
    return None if size is None or _part(size, 0) in allowed else f"tile_size {size}"


def _column_tile(scene: Scene) -> str | None:
    size = scene.instruction.extra.get("tile_size")
    position = scene.instruction.extra.get("tile_position")
    size_fits = size is None or _part(size, 1) in (-1, _COLUMNS)
    position_fits = position is None or _part(position, 1) in (-1, 0)
    return None if size_fits and position_fits else f"tile_size {size}, tile_position {position}"


def _part(pair: Any, index: int) -> Any:
    """`pair[index]`, or None when `pair` is not a list of two numbers, which then fits no rule."""
    return pair[index] if isinstance(pair, list) and len(pair) == 2 else None


def _replication(scene: Scene) -> str | None:
    amount = scene.instruction.extra.get("replication_shift_amnt", 0)
    return None if amount == 0 else f"replication_shift_amnt {amount}"


def _out_in_psum(scene: Scene) -> str | None:
    kind = scene.operands["out"].location.type
    return None if kind == "PSUM" else f"memory type {kind}"


MATMULT_MX_RULES: tuple[Rule, ...] = (
    Rule("205", (), f"engine PE, engine_id {PE.number}", _engine),
    Rule("204", (), "no replication shift: replication_shift_amnt absent or 0", _replication),
    in_sbuf("ifmap"),
    in_sbuf("weights"),
    in_sbuf("ifmap_scales"),
    in_sbuf("weights_scales"),
    Rule("memory", ("out",), "memory type PSUM", _out_in_psum),
    dtype_in("ifmap", _X4),
    dtype_in("weights", _X4),
    dtype_in("ifmap_scales", _SCALE),
    dtype_in("weights_scales", _SCALE),
    dtype_in("out", ("float32", "bfloat16")),
    _one_quadrant("212", "ifmap"),
    _one_quadrant("213", "weights"),
    _scale_multiple("ifmap_scales"),
    _scale_multiple("weights_scales"),
    _scale_count("228", "ifmap"),
    _scale_count("229", "weights"),
    start_at_most("230", "ifmap_scales"),
    start_at_most("231", "weights_scales"),
    Rule("232", ("ifmap", "out"), "at most 32 * (2048 / bytes of the out dtype) ifmap elements", _fmap_limit),
    Rule("233", ("weights",), f"at most {_MAX_WEIGHT_ELEMENTS} elements per partition", _weights_limit),
    Rule("289", ("weights",), "an even number of containers per partition", _weights_even),
    Rule("234", ("ifmap",), "32, 64 or 128 partitions", _fmap_partitions),
    Rule("235", ("ifmap", "weights"), "equal partition counts", _same_partitions),
    Rule("236", ("out", "weights"), "4 * out partitions equal to the weights elements of a partition", _out_partitions),
    Rule("237", ("out", "ifmap"), "4 * out elements equal to the ifmap elements of a partition", _out_elements),
    Rule("240", ("ifmap",), "a row tile size of -1 or of all ifmap partitions", _row_tile),
    Rule("241", (), "column tile position -1 or 0 and column tile size -1 or 128", _column_tile),
)
