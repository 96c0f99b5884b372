"""The timeline half of the picture: instructions as boxes by engine, dependencies as arrows."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from lowering.bir.palette import ANTI, DATA, FLOW, GRID, INK, OTHER, OUTPUT, QUANTIZE, SCALE_ROWS, SOURCE, ZEROS
from lowering.bir.program import AccessPattern, EdgeKind, Instruction
from lowering.bir.schedule import Slot

__all__ = ["draw_timeline"]

_ROWS = ("DMA in", "DVE", "PE", "DMA out")
_EDGES = {
    EdgeKind.FLOW: (FLOW, "-", "flow: reads what it wrote"),
    EdgeKind.ANTI: (ANTI, (0, (4, 2)), "anti: writes what it read"),
    EdgeKind.OUTPUT: (OUTPUT, (0, (1, 1)), "output: writes what it wrote"),
    EdgeKind.ORDERED: (GRID, (0, (6, 1, 1, 1)), "ordered"),
}
_WIDTH, _HEIGHT = 0.72, 0.7


def draw_timeline(axes: Axes, slots: Sequence[Slot], total: int) -> None:
    """Draws the slots, one row per engine and lane.

    Args:
        axes: Where to draw.
        slots: The slots.
        total: Instructions of the whole function, of which the slots may be the first ones.
    """
    lanes = _lanes(slots)
    for slot in slots:
        x, y = _corner(slot, lanes)
        colour, _ = _colour(slot.instruction)
        axes.add_patch(Rectangle((x, y), _WIDTH, _HEIGHT, facecolor=colour, edgecolor=INK, lw=0.8, zorder=2))
        label = _label(slot.instruction)
        axes.text(x + _WIDTH / 2, y + _HEIGHT / 2, label, ha="center", va="center", fontsize=7.5, zorder=4)
        for earlier, kind in slot.waits:
            _draw_edge(axes, _corner(earlier, lanes), (x, y), kind)
    rows = sorted({row for row, _ in lanes}, key=lambda row: (_order(row), row))
    for row in rows:
        mine = [y for (name, _), y in lanes.items() if name == row]
        axes.axhline(max(mine) + 0.92, color=GRID, lw=0.6)
        axes.text(-0.25, (min(mine) + max(mine)) / 2 + _HEIGHT / 2, row, ha="right", va="center", weight="bold")
    last = max(slot.step for slot in slots) if slots else 0
    axes.set_xlim(-0.15, max(last + 1, 5))
    axes.set_ylim(len(lanes), -0.15)
    axes.set_yticks([])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    shown = "" if len(slots) == total else f"; the first {len(slots)} of {total} instructions"
    axes.set_xlabel(f"step: the earliest the dependencies allow, one step an instruction; not time{shown}")
    for side in ("left", "top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title("timeline", loc="left", color=INK)
    _draw_legend(axes, slots)


def _lanes(slots: Sequence[Slot]) -> dict[tuple[str, int], float]:
    """Vertical place of every row and lane."""
    keys = sorted({(slot.row, slot.lane) for slot in slots}, key=lambda key: (_order(key[0]), *key))
    return {key: float(y) for y, key in enumerate(keys)}


def _order(row: str) -> int:
    return _ROWS.index(row) if row in _ROWS else len(_ROWS)


def _corner(slot: Slot, lanes: dict[tuple[str, int], float]) -> tuple[float, float]:
    return float(slot.step), lanes[slot.row, slot.lane] + (1 - _HEIGHT) / 4


def _draw_edge(axes: Axes, start: tuple[float, float], end: tuple[float, float], kind: EdgeKind) -> None:
    colour, style, _ = _EDGES[kind]
    tail = (start[0] + _WIDTH, start[1] + _HEIGHT / 2)
    head = (end[0], end[1] + _HEIGHT / 2)
    far = head[0] - tail[0] > 1
    axes.add_patch(
        FancyArrowPatch(
            tail,
            head,
            arrowstyle="-|>",
            mutation_scale=7,
            shrinkA=0,
            shrinkB=0,
            lw=0.9,
            color=colour,
            linestyle=style,
            connectionstyle="arc3,rad=0.12" if far else "arc3,rad=0",
            zorder=1,  # behind the boxes, which stay readable
        )
    )


def _label(instruction: Instruction) -> str:
    """A short name: "Load-3" becomes "L3"."""
    head, _, number = instruction.name.rpartition("-")
    return f"{head[:1]}{number}" if head and number.isdigit() else instruction.name[:6]


def _colour(instruction: Instruction) -> tuple[str, str]:
    """Colour of a box and what the legend calls it."""
    opcode = instruction.opcode
    if opcode == "Save":
        source = instruction.ins[0]
        is_data = isinstance(source, AccessPattern) and source.dtype.is_x4
        return (DATA, "S Save data") if is_data else (SCALE_ROWS, "S Save scale rows")
    known = {"Load": (SOURCE, "L Load"), "Memset": (ZEROS, "M Memset"), "QuantizeMx": (QUANTIZE, "Q QuantizeMx")}
    return known.get(opcode, (OTHER, opcode))


def _draw_legend(axes: Axes, slots: Sequence[Slot]) -> None:
    boxes = dict(_colour(slot.instruction)[::-1] for slot in slots)
    kinds = sorted({kind for slot in slots for _, kind in slot.waits}, reverse=True)
    handles: list[Patch | Line2D] = [Patch(facecolor=boxes[name], edgecolor=INK, label=name) for name in boxes]
    handles += [Line2D([], [], color=_EDGES[kind][0], ls=_EDGES[kind][1], label=_EDGES[kind][2]) for kind in kinds]
    columns = max(len(handles), 1)
    axes.legend(
        handles=handles,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=columns,
        frameon=False,
        borderaxespad=0.2,
        fontsize=8,
    )
