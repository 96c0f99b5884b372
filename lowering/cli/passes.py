"""`mx-opt passes`: the passes and their options, from the passes' own dataclasses."""

import sys
from collections.abc import Sequence

from lowering.cli.flags import Flags, UsageError, options_of
from lowering.registry import PASSES

USAGE = "mx-opt passes"


def run(arguments: Sequence[str]) -> int:
    """Prints the list."""
    if Flags(USAGE).parse(arguments):
        raise UsageError(f"passes takes no arguments\nusage: {USAGE}")
    for name, cls in PASSES.items():
        sys.stdout.write(f"{name}: {cls.summary}\n")
        for option in options_of(cls):
            takes = "|".join(option.choices) or ("N" if option.kind is int else "")
            words = f"={takes} (default {option.default})" if takes else ""
            sys.stdout.write(f"  --{option.flag}{words}: {option.doc}\n")
    return 0
