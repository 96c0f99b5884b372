"""The SBUF half of the picture: buffers as rectangles of partitions by bytes, and the rows of the scale buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MultipleLocator

from lowering.bir.access import Access, locations_of, resolve
from lowering.bir.geometry import CORE_V4
from lowering.bir.palette import DATA, GRID, INK, OTHER, SCALE, SCALE_ROWS, SOURCE
from lowering.bir.program import AccessPattern, Function, MemoryLocation
from lowering.bir.simulator import physical_scale

__all__ = ["BufferUse", "draw_sbuf_map", "draw_scale_rows", "uses_of"]

_COLOURS = {"source": SOURCE, "data": DATA, "scale": SCALE, "other": OTHER}
_MAX_WRITERS = 4


@dataclass
class BufferUse:
    """How a program uses one buffer.

    Attributes:
        place: The buffer.
        role: "source", "data", "scale" or "other".
        loaded: Partitions a Load fills, one bit each.
        zeroed: Partitions a Memset fills, one bit each.
        written: Of a scale buffer, the writing quantize and its physical rows.
    """

    place: MemoryLocation
    role: str = "other"
    loaded: int = 0
    zeroed: int = 0
    written: list[tuple[str, Access]] = field(default_factory=list)


def uses_of(function: Function) -> dict[str, BufferUse]:
    """The buffers of a verified function in SBUF, by name."""
    places = locations_of(function)
    uses = {name: BufferUse(place) for name, place in places.items() if place.type == "SB"}
    for instruction in function.instructions():
        ins, outs = (
            [(o.memref, resolve(o, places[o.memref])) for o in operands if isinstance(o, AccessPattern)]
            for operands in (instruction.ins, instruction.outs)
        )
        if instruction.opcode == "QuantizeMx":
            uses[ins[0][0]].role, uses[outs[0][0]].role, uses[outs[1][0]].role = "source", "data", "scale"
            rows = physical_scale(outs[1][1], ins[0][1].partitions)
            uses[outs[1][0]].written.append((instruction.name, rows))
        elif instruction.opcode == "Load":
            uses[outs[0][0]].loaded |= outs[0][1].partition_mask
        elif instruction.opcode == "Memset":
            uses[outs[0][0]].zeroed |= outs[0][1].partition_mask
    return uses


def draw_sbuf_map(axes: Axes, uses: Mapping[str, BufferUse]) -> None:
    """Every buffer, partitions down and bytes across, to scale."""
    end = max(use.place.addr + use.place.dims[1] for use in uses.values())
    for name, use in uses.items():
        place = use.place
        rows, width = place.dims
        colour = _COLOURS[use.role]
        axes.add_patch(Rectangle((place.addr, place.base), width, rows, facecolor=colour, edgecolor=INK))
        for first, count in _runs(use.zeroed & ~use.loaded):
            hatched = Rectangle((place.addr, first), width, count, facecolor="none", edgecolor=INK, hatch="///", lw=0)
            axes.add_patch(hatched)
        for _, access in use.written:
            for first, count in _runs(access.partition_mask):
                axes.add_patch(Rectangle((place.addr, first), width, count, facecolor=SCALE_ROWS, lw=0))
        share = width / end
        if share > 0.015:
            text = f"{name}\n{width} bytes" if share > 0.11 else name
            rotation = 0 if share > 0.11 else 90
            middle = (place.addr + width / 2, place.base + rows / 2)
            box = {"facecolor": colour, "edgecolor": "none", "pad": 1.5} if not rotation else None
            axes.text(*middle, text, ha="center", va="center", rotation=rotation, color=INK, bbox=box)
    _quadrants(axes)
    axes.set_xlim(0, end)
    # Addresses are read in hex, so ticks stand at a power of two.
    axes.xaxis.set_major_locator(MultipleLocator(1 << max(0, (end // 6).bit_length() - 1)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{int(value):#x}"))
    axes.set_xlabel(f"byte in each partition; {end} of {CORE_V4.sbuf_usable} usable bytes")
    axes.set_title("SBUF", loc="left", color=INK)
    handles = [
        Patch(facecolor=SOURCE, edgecolor=INK, label="source"),
        Patch(facecolor="white", edgecolor=INK, hatch="///", label="padding, zeros"),
        Patch(facecolor=DATA, edgecolor=INK, label="data (x4 containers)"),
        Patch(facecolor=SCALE, edgecolor=INK, label="scale, not written"),
        Patch(facecolor=SCALE_ROWS, edgecolor=INK, label="scale rows"),
    ]
    axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=5, frameon=False, borderaxespad=0.2)


def draw_scale_rows(axes: Axes, uses: Mapping[str, BufferUse]) -> None:
    """The first scale buffer alone: a column for each quantize that writes rows of its own."""
    axes.set_title("scale rows by quantize", loc="left", color=INK)
    scales = [use for use in uses.values() if use.written]
    if not scales:
        axes.set_axis_off()
        return
    place, written = scales[0].place, scales[0].written
    shown = _distinct(written)
    axes.add_patch(Rectangle((0, place.base), len(shown), place.dims[0], facecolor=SCALE, edgecolor=INK))
    for column, (_, access) in enumerate(shown):
        for first, count in _runs(access.partition_mask):
            axes.add_patch(Rectangle((column + 0.1, first), 0.8, count, facecolor=SCALE_ROWS, lw=0))
            axes.text(
                column + 0.5, first + count + 0.6, f"{first}-{first + count - 1}", ha="center", va="top", fontsize=7
            )
    _quadrants(axes)
    axes.set_xlim(0, len(shown))
    axes.set_xticks(
        [column + 0.5 for column in range(len(shown))], [name for name, _ in shown], rotation=20, ha="right"
    )
    more = len(written) - len(shown)
    axes.set_xlabel(f"{place.name}" + (f"; {more} more reuse these rows" if more else ""))


def _distinct(written: list[tuple[str, Access]]) -> list[tuple[str, Access]]:
    """The first quantize of each set of rows."""
    first: dict[int, tuple[str, Access]] = {}
    for name, access in written:
        first.setdefault(access.partition_mask, (name, access))
    return list(first.values())[:_MAX_WRITERS]


def _quadrants(axes: Axes) -> None:
    """Partition 0 on top, a line and a number at every quadrant."""
    axes.set_ylim(CORE_V4.partitions, 0)
    starts = range(0, CORE_V4.partitions + 1, CORE_V4.quadrant)
    axes.set_yticks(list(starts))
    for start in starts:
        axes.axhline(start, color=GRID, lw=0.8, ls="--")
    axes.set_ylabel("partition; dashed: quadrants")


def _runs(mask: int) -> Iterator[tuple[int, int]]:
    """First bit and length of every run of ones."""
    first = 0
    while mask >> first:
        if mask >> first & 1:
            count = 1
            while mask >> (first + count) & 1:
                count += 1
            yield first, count
            first += count
        else:
            first += 1
