"""Colours of the pictures: one for each role, told apart in greyscale and by colour-blind readers (Okabe and Ito)."""

from __future__ import annotations

__all__ = [
    "ANTI",
    "DATA",
    "FLOW",
    "GRID",
    "INK",
    "OTHER",
    "OUTPUT",
    "QUANTIZE",
    "SCALE",
    "SCALE_ROWS",
    "SOURCE",
    "ZEROS",
]

SOURCE = "#56b4e9"
DATA = "#e69f00"
SCALE = "#c9e8dc"
SCALE_ROWS = "#009e73"
QUANTIZE = "#cc79a7"
ZEROS = "#b0b0b0"
OTHER = "#dddddd"
INK = "#222222"
GRID = "#8a8a8a"
FLOW = "#555555"
ANTI = "#d55e00"
OUTPUT = "#0072b2"
