"""Writes the golden BIR programs of this directory.

    python -m hlo_fixtures.bir.generate

Each is one quantize call, lowered. A change of these files is a change of what the lowering emits: look at the
difference before committing it.
"""

from pathlib import Path

from lowering.bir import LegalizedCall, LowerOptions, lower_calls, to_json

DIRECTORY = Path(__file__).parent

CALLS: dict[str, tuple[LegalizedCall, LowerOptions]] = {
    # One row in one partition of a padded quadrant, one scale of 4 elements.
    "k4": (LegalizedCall((4,), "bfloat16", "float8_e4m3fn"), LowerOptions()),
    # 9 rows of 32, the second block has 4 elements.
    "k36": (LegalizedCall((3, 36), "bfloat16", "float8_e4m3fn"), LowerOptions()),
    # The same in five tiles: each of the two buffers is zeroed once.
    "k36_tiled": (LegalizedCall((18, 36), "bfloat16", "float8_e4m3fn"), LowerOptions(columns_per_tile=4)),
    # Exactly 128 partitions, no padding.
    "k512": (LegalizedCall((16, 512), "bfloat16", "float8_e4m3fn"), LowerOptions()),
    # Three partition tiles, the last of 69 rows in 96 partitions, with a partial last block.
    "k1300": (LegalizedCall((5, 1300), "float16", "float8_e5m2"), LowerOptions()),
    # A single column.
    "n1": (LegalizedCall((96, 1), "bfloat16", "float8_e4m3fn", axis=-2), LowerOptions()),
    # More columns than SBUF holds: three double-buffered tiles that share one scale buffer.
    "n_tiled": (LegalizedCall((20000, 128), "bfloat16", "float8_e5m2"), LowerOptions()),
    # Second-to-last axis with a batch; tiles of 48 columns cross batches of 40.
    "batch_axis_minus_2": (
        LegalizedCall((3, 128, 40), "bfloat16", "float8_e4m3fn", axis=-2),
        LowerOptions(columns_per_tile=48),
    ),
    # Six tiles whose scales go round the four pack offsets.
    "pack_offsets": (LegalizedCall((6, 256), "bfloat16", "float8_e4m3fn"), LowerOptions(columns_per_tile=1)),
}


def main() -> None:
    """Writes every program."""
    for name, (call, options) in CALLS.items():
        (DIRECTORY / f"{name}.json").write_text(to_json(lower_calls([call], options)))


if __name__ == "__main__":
    main()
