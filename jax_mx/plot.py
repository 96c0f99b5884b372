"""`plot_rules`: a comparison of scale rules as a picture. Needs the package matplotlib.

`import jax_mx.plot` is what asks for matplotlib; nothing else in the package does.
"""

import io
import os
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jax_mx._atomic import write_bytes
from jax_mx._compare_rules import RuleComparison

_OURS, _OTHERS = "#1f77b4", "#9aa5b1"


def plot_rules(comparison: RuleComparison, path: str | os.PathLike[str]) -> None:
    """Draws a comparison as bars: signal-to-noise ratio, saturated and underflown shares of every rule.

    Args:
        comparison: what `compare_rules` gave.
        path: the picture to write; its ending says the format, such as .png or .svg.

    Raises:
        OSError: the file cannot be written.
        ValueError: matplotlib does not know the ending.
    """
    path = Path(path)
    figure = Figure(figsize=(11, 0.42 * len(comparison.rows) + 1.6), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    names = [row.rule for row in comparison.rows]
    colors = [_OTHERS if name.startswith("torchao") else _OURS for name in names]
    panels = (
        ("SNR in dB (more is better)", [row.snr_db for row in comparison.rows], "{:.2f}"),
        ("saturated, % of elements", [100 * row.saturated for row in comparison.rows], "{:.3g} %"),
        ("became zero, % of elements", [100 * row.underflow for row in comparison.rows], "{:.3g} %"),
    )
    for ax, (title, values, text) in zip(axes, panels, strict=True):
        _draw(ax, names, values, colors, title, text)
    shape = ", ".join(map(str, comparison.shape))
    figure.suptitle(f"Scale rules on {comparison.format}[{shape}], axis {comparison.axis}", fontsize=11)
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix.lstrip(".") or "png", dpi=130)
    write_bytes(path, picture.getvalue())


def _draw(ax: Any, names: list[str], values: list[float], colors: list[str], title: str, text: str) -> None:
    drawn = [value if value != float("inf") else 0.0 for value in values]
    bars = ax.barh(names, drawn, color=colors)
    ax.bar_label(bars, [text.format(value) for value in values], padding=3, fontsize=8)
    ax.set_title(title, fontsize=10)
    ax.invert_yaxis()
    ax.margins(x=0.22)
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=9)
