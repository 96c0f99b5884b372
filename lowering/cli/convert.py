"""`mx-opt convert IN.safetensors OUT.safetensors`: a published checkpoint as x4 containers and scale bytes."""

import sys
import time
from collections.abc import Sequence

from jax_mx import checkpoint
from lowering.cli import files
from lowering.cli.flags import Flags, UsageError
from lowering.cli.progress import ProgressBar

USAGE = "mx-opt convert IN.safetensors OUT.safetensors [--layout=logical|tile] [--scale-offset=0|4|8|12]"


def run(arguments: Sequence[str]) -> int:
    """Converts the file and prints a line for each weight."""
    flags = Flags(USAGE)
    flags.choice(
        "layout",
        ["logical", "tile"],
        "logical",
        "logical: data [.., N, K/4] and scale [.., N, K/32]. tile: data [.., K/4, N] and physical scale rows "
        "[.., K/4, N], as Trainium's instructions read them.",
    )
    flags.choice("scale-offset", ["0", "4", "8", "12"], "0", "Pack offset of the scale rows in the tile layout.")
    flags.boolean("quiet", "Show no progress bar and no table.")
    positional = flags.parse(arguments)
    if len(positional) != 2:
        raise UsageError(f"expected IN and OUT, got {len(positional)} arguments\nusage: {USAGE}")
    source, target = positional
    if source == "-":
        raise UsageError("IN is -, which is standard input; name a file")
    files.named_output(target, "OUT")
    layout, offset = flags["layout"], int(flags["scale-offset"])
    if offset and layout != "tile":
        raise UsageError(f"--scale-offset is {offset}, wanted 0 for --layout={layout}: only tiles have pack offsets")
    quiet = flags["quiet"]
    started = time.perf_counter()
    try:
        with ProgressBar(sys.stderr, shown=not quiet and sys.stderr.isatty()) as bar:
            done = checkpoint.convert(source, target, layout=layout, offset=offset, progress=bar.update)
    except (ValueError, ImportError) as e:
        raise UsageError(str(e)) from None
    except OSError as e:
        raise UsageError(f"cannot convert {source} to {target}: {e.strerror or e}") from None
    if not quiet:
        _print_table(done, target, time.perf_counter() - started)
    return 0


def _print_table(done: checkpoint.Converted, target: str, seconds: float) -> None:
    width = max(len(weight.name) for weight in done.weights)
    for weight in done.weights:
        shape = ", ".join(map(str, weight.shape))
        sys.stdout.write(f"{weight.name:<{width}}  {weight.format}[{shape}]  from {weight.convention}\n")
    sys.stdout.write(
        f"{len(done.weights)} weights converted, {len(done.copied)} tensors copied, "
        f"{done.nbytes / 1e6:.1f} MB in {seconds:.1f} s -> {target}\n"
    )
