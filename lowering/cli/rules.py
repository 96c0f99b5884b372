"""`mx-opt rules X.npy`: what each scale rule costs on a tensor, as a table, as JSON, as a picture."""

import json
import sys
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from jax_mx import RuleComparison, compare_rules
from lowering.arrays import ArrayFileError
from lowering.cli import files
from lowering.cli.flags import Flags, UsageError

USAGE = "mx-opt rules X.npy [--dtype=float8_e4m3fn] [--axis=-1] [--form=table|json] [--plot=PICTURE.png]"


def run(arguments: Sequence[str]) -> int:
    """Prints the comparison."""
    flags = Flags(USAGE)
    flags.choice("dtype", ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"], "float8_e4m3fn", "Element format.")
    flags.integer("axis", -1, "Axis to quantize along.")
    flags.choice("form", ["table", "json"], "table", "Form of the output.")
    flags.string("plot", "A picture to write as well, such as rules.png; needs matplotlib.")
    file = files.one_file(flags.parse(arguments), USAGE)
    if flags["plot"]:
        files.named_output(flags["plot"], "--plot")
    try:
        array = files.read_array(file)
    except ArrayFileError as e:
        raise UsageError(str(e)) from None
    if array.dtype == np.dtype("V2"):  # how numpy stores bfloat16
        array = array.view(ml_dtypes.bfloat16)
    elif array.dtype == np.float64:
        array = array.astype(np.float32)
    try:
        comparison = compare_rules(array, flags["dtype"], axis=flags["axis"])
    except (TypeError, ValueError) as e:
        raise UsageError(f"{file}: {e}") from None
    if flags["form"] == "json":
        sys.stdout.write(json.dumps(comparison.as_dict(), indent=2) + "\n")
    else:
        sys.stdout.write(f"{comparison}\n")
    if flags["plot"]:
        _plot(comparison, flags["plot"])
    return 0


def _plot(comparison: RuleComparison, path: str) -> None:
    try:
        from jax_mx import plot  # noqa: PLC0415  only this flag needs matplotlib
    except ImportError:
        raise UsageError("--plot needs the package matplotlib: pip install 'jax-mx[draw]'") from None
    try:
        plot.plot_rules(comparison, path)
    except OSError as e:
        raise UsageError(f"cannot write {path}: {e.strerror or e}") from None
    except ValueError as e:
        raise UsageError(f"cannot draw {path}: {e}") from None
    sys.stdout.write(f"wrote {path}\n")
