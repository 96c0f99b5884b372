"""The verifier's rules for QuantizeMx: one table, read top to bottom.

Numbers are the compiler's own codes. `dtype`, `shape` and the `isa-` codes are this project's names for conditions
that have none.
"""

from __future__ import annotations

from lowering.bir.geometry import CORE_V4
from lowering.bir.program import DVE
from lowering.bir.rules import Rule, Scene, dtype_in, in_sbuf, start_at_most

__all__ = ["QUANTIZE_MX_ROLES", "QUANTIZE_MX_RULES", "scale_partitions"]

QUANTIZE_MX_ROLES = (("src",), ("data", "scale"))
"""Names of the operands: ins, then outs."""

PARTITION_COUNTS = (32, 64, 96, 128)


def scale_partitions(source_partitions: int, pack_offset: int) -> int:
    """Partitions the scale operand spans: its first four rows, or up to the end of the source's last quadrant."""
    return 4 if source_partitions == CORE_V4.quadrant else source_partitions - pack_offset


def _arch_old(scene: Scene) -> str | None:
    return None if scene.arch >= 40 else f"arch level {scene.arch}"


def _arch_new(scene: Scene) -> str | None:
    return None if scene.arch <= 40 else f"arch level {scene.arch}"


def _engine(scene: Scene) -> str | None:
    engine = scene.instruction.engine
    return None if engine == DVE.name else f"engine {engine}"


def _engine_id(scene: Scene) -> str | None:
    number = scene.instruction.engine_id
    return None if number in (DVE.number, None) else f"engine_id {number}"


def _last_pair(scene: Scene) -> str | None:
    free = [pair for pair in scene.operands["src"].free if pair[1] != 1]
    run = 1  # consecutive elements at the inner end: pairs that continue one another count as one
    for step, num in reversed(free):
        if step != run:
            break
        run *= num
    return None if run % 4 == 0 else f"free pairs {[list(pair) for pair in scene.operands['src'].free]}"


def _other_steps(scene: Scene) -> str | None:
    odd = [list(pair) for pair in scene.operands["src"].free[:-1] if pair[1] != 1 and pair[0] % 2]
    return f"the free pair {odd[0]}" if odd else None


def _counts(scene: Scene) -> str | None:
    source, data = scene.operands["src"], scene.operands["data"]
    wanted, found = source.partitions * source.elements, data.partitions * data.elements
    return None if wanted == found else f"{wanted} src elements and {found} data elements"


def _source_partitions(scene: Scene) -> str | None:
    partitions = scene.operands["src"].partitions
    return None if partitions in PARTITION_COUNTS else f"{partitions} partitions"


def _same_quadrant(scene: Scene) -> str | None:
    data, scale = (scene.operands[role].start_partition for role in ("data", "scale"))
    same = data // CORE_V4.quadrant == scale // CORE_V4.quadrant
    return None if same else f"start partitions {data} and {scale}"


def _scale_count(scene: Scene) -> str | None:
    scale, source = scene.operands["scale"].units, scene.operands["src"].units
    return None if scale * 4 == source else f"{scale} scales and {source} src elements per partition"


def _data_partitions(scene: Scene) -> str | None:
    source, data = scene.operands["src"].partitions, scene.operands["data"].partitions
    return None if source == data else f"{source} and {data} partitions"


def _scale_span(scene: Scene) -> str | None:
    source, scale = scene.operands["src"].partitions, scene.operands["scale"]
    wanted = scale_partitions(source, scale.start_partition % CORE_V4.quadrant)
    if source not in PARTITION_COUNTS or scale.partitions == wanted:
        return None
    return f"{scale.partitions} scale partitions for {source} src partitions from {scale.start_partition}"


def _data_start(scene: Scene) -> str | None:
    start = scene.operands["data"].start_partition
    return None if start % CORE_V4.quadrant == 0 else f"start partition {start}"


def _source_alignment(scene: Scene) -> str | None:
    byte = scene.operands["src"].start_byte
    return None if byte % 4 == 0 else f"byte address {byte:#x}"


def _fp4(scene: Scene) -> str | None:
    is_fp4 = scene.operands["data"].pattern.dtype.name == "float4_e2m1fn_x4"
    return "dtype float4_e2m1fn_x4" if is_fp4 and not scene.allow_fp4 else None


QUANTIZE_MX_RULES: tuple[Rule, ...] = (
    Rule("366", (), "arch level 40 (core_v4) or later", _arch_old),
    Rule("367", (), "arch level 40 (core_v4) or earlier", _arch_new),
    Rule("400", (), "engine DVE", _engine),
    Rule("207", (), f"engine_id {DVE.number} (DVE)", _engine_id),
    in_sbuf("src"),
    in_sbuf("data"),
    in_sbuf("scale"),
    dtype_in("src", ("bfloat16", "float16")),
    dtype_in("data", ("float8_e4m3fn_x4", "float8_e5m2_x4", "float4_e2m1fn_x4")),
    dtype_in("scale", ("uint8", "float8_e8m0fnu")),
    Rule("209", ("src",), "a last free pair of step 1 whose num is divisible by 4", _last_pair),
    Rule("210", ("src",), "an even step, or num 1, in every free pair but the last", _other_steps),
    Rule("211", ("src", "data"), "equal counts, a data container counted as 4", _counts),
    Rule("215", ("src",), "32, 64, 96 or 128 partitions", _source_partitions),
    start_at_most("264", "scale", multiple_of=4),
    Rule("1821", ("data", "scale"), "start partitions in one quadrant", _same_quadrant),
    Rule("270", ("scale", "src"), "four src elements per scale in a partition", _scale_count),
    Rule("shape", ("src", "data"), "equal partition counts", _data_partitions),
    Rule(
        "shape",
        ("scale",),
        "4 scale partitions for 32 src partitions, otherwise the src partitions less the pack offset",
        _scale_span,
    ),
    Rule("isa-data-start", ("data",), "start partition 0, 32, 64 or 96", _data_start),
    Rule("isa-source-alignment", ("src",), "a source address divisible by 4", _source_alignment),
    Rule("isa-fp4", ("data",), "an fp8 x4 dtype; fp4 is accepted only when fp4 is allowed", _fp4),
)
