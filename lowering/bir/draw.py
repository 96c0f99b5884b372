"""Draws a BIR function: where its buffers lie in SBUF, and in which order its instructions can run.

Upper left the SBUF map, partitions by bytes, to scale; upper right the scale buffer alone, with the rows each quantize
writes; below the timeline by engine with the dependencies. Needs matplotlib (the extra `draw`).
"""

from __future__ import annotations

import io

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from lowering.bir.draw_sbuf import draw_sbuf_map, draw_scale_rows, uses_of
from lowering.bir.draw_timeline import draw_timeline
from lowering.bir.errors import BirError
from lowering.bir.palette import INK
from lowering.bir.program import Function, Instruction
from lowering.bir.schedule import schedule

__all__ = ["FORMATS", "MAX_INSTRUCTIONS", "draw_function"]

FORMATS = (".svg", ".png")
"""Picture formats by file suffix."""

MAX_INSTRUCTIONS = 40
"""Instructions the timeline shows before it becomes unreadable."""


def draw_function(function: Function, suffix: str, *, limit: int = MAX_INSTRUCTIONS) -> bytes:
    """The picture of a verified function, as the bytes of a file.

    Args:
        function: The function.
        suffix: ".svg" or ".png".
        limit: Instructions shown in the timeline, from the first on.

    Raises:
        BirError: `suffix` is neither, or the function has nothing in SBUF.
    """
    if suffix not in FORMATS:
        raise BirError(f"the picture's suffix is {suffix or 'missing'}, wanted {' or '.join(FORMATS)}")
    uses = uses_of(function)
    if not uses:
        raise BirError(f"{function.name} has no buffer in SBUF to draw")
    instructions = list(function.instructions())
    slots = schedule(instructions[:limit])
    lanes = len({(slot.row, slot.lane) for slot in slots})
    timeline_height = 1.3 + 0.36 * lanes
    # Fixed ids, so that the same program gives the same file, and text that stays text; a $ begins no formula.
    with matplotlib.rc_context(
        {
            "svg.hashsalt": "bir",
            "svg.fonttype": "none",
            "font.size": 9,
            "hatch.linewidth": 0.6,
            "text.parse_math": False,
        }
    ):
        figure = Figure(figsize=(14, 5.2 + timeline_height), layout="constrained")
        (FigureCanvasSVG if suffix == ".svg" else FigureCanvasAgg)(figure)
        grid = figure.add_gridspec(2, 2, height_ratios=(4.6, timeline_height), width_ratios=(3.4, 1))
        draw_sbuf_map(figure.add_subplot(grid[0, 0]), uses)
        draw_scale_rows(figure.add_subplot(grid[0, 1]), uses)
        draw_timeline(figure.add_subplot(grid[1, :]), slots, len(instructions))
        figure.suptitle(_title(function, instructions), fontsize=12, color=INK)
        buffer = io.BytesIO()
        metadata = {"Date": None} if suffix == ".svg" else {"Software": None}
        figure.savefig(buffer, format=suffix[1:], metadata=metadata, dpi=110)
    return buffer.getvalue()


def _title(function: Function, instructions: list[Instruction]) -> str:
    tensors = [
        f"{item.tensor} {item.dtype.name}{list(item.tensor_shape)}"
        for kind in ("ExternalInput", "ExternalOutput")
        for item in function.allocations_of_kind(kind)
    ]
    count = sum(instruction.opcode == "QuantizeMx" for instruction in instructions)
    tiles = f"{count} tile{'' if count == 1 else 's'}"
    return f"{function.name}: {tensors[0]} to {', '.join(tensors[1:])} in {tiles}" if tensors else function.name
