"""A two-layer MLP with MX weights on eight devices: examples over one axis of the mesh, weights over the other.

    python examples/sharded_mlp.py

The first weight is sharded by columns, the second by rows, as tensor parallelism does it. Both are quantized along the
dimension that is contracted, so the second one's blocks lie within the shards: nothing is communicated but the sum that
any row-parallel product needs. The devices are made on the CPU, so this runs on a laptop.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import app
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import jax_mx

EXAMPLES, WIDTH, HIDDEN = 64, 512, 2048
ACTIVATIONS, FORMATS = "float8_e4m3fn", ("float8_e4m3fn", "float4_e2m1fn")
COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")


class Weights(NamedTuple):
    """The weights of the MLP: up [WIDTH, HIDDEN] and down [HIDDEN, WIDTH]."""

    up: jax_mx.MXArray
    down: jax_mx.MXArray


def mlp(x: jax.Array, weights: Weights) -> jax.Array:
    """x[examples, WIDTH] through both layers, activations quantized on the way."""
    hidden = jax.nn.relu(jax_mx.MXArray.quantize(x, ACTIVATIONS) @ weights.up)
    return jax_mx.MXArray.quantize(hidden, ACTIVATIONS) @ weights.down


def normal(seed: int, shape: tuple[int, int], variance_divisor: int) -> jax.Array:
    """Normally distributed bfloat16 of variance 1 / variance_divisor."""
    return (jax.random.normal(jax.random.key(seed), shape) / math.sqrt(variance_divisor)).astype(jnp.bfloat16)


def shard(weights: Weights, mesh: Mesh) -> Weights:
    """Puts the first weight's columns and the second one's rows on the devices along `model`."""
    columns, rows = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in ((None, "model"), ("model", None)))
    return Weights(jax.device_put(weights.up, columns), jax.device_put(weights.down, rows))


def bytes_per_device(weights: Weights) -> int:
    """Bytes of containers and scales that the first device holds."""
    return sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(weights))


def communication(compiled: jax.stages.Compiled) -> dict[str, int]:
    """How many of each collective the compiled program has."""
    text = compiled.as_text() or ""
    counts = {name: text.count(f" {name}(") + text.count(f" {name}-start(") for name in COLLECTIVES}
    return {name: count for name, count in counts.items() if count}


def signal_to_noise(value: jax.Array, reference: jax.Array) -> float:
    """Decibels of the reference's power over that of the difference."""
    signal = np.asarray(reference, np.float64)
    noise = np.asarray(value, np.float64) - signal
    return 10 * math.log10(float(np.sum(signal**2) / np.sum(noise**2)))


def main(argv: Sequence[str]) -> None:
    """Runs the MLP in one piece and in eight, and compares."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    x = normal(0, (EXAMPLES, WIDTH), 1)
    up, down = normal(1, (WIDTH, HIDDEN), WIDTH), normal(2, (HIDDEN, WIDTH), HIDDEN)
    reference = jax.nn.relu(x @ up) @ down
    x_shards = jax.device_put(x, NamedSharding(mesh, PartitionSpec("data", None)))
    print(f"MLP {WIDTH} -> {HIDDEN} -> {WIDTH}, {EXAMPLES} examples, mesh data=2 x model=4, jax {jax.__version__}\n")
    header = f"{'weights':<15}{'whole':>10}{'a device':>10}{'SNR to bf16':>13}{'differ':>8}  communicated"
    print(f"{header}\n{'-' * len(header)}")
    for dtype in FORMATS:
        weights = Weights(jax_mx.MXArray.quantize(up, dtype, axis=0), jax_mx.MXArray.quantize(down, dtype, axis=0))
        whole = jax.jit(mlp)(x, weights)
        shards = shard(weights, mesh)
        compiled = jax.jit(mlp).lower(x_shards, shards).compile()
        result = compiled(x_shards, shards)
        size, piece = (f"{count / 2**10:.0f} KiB" for count in (up_and_down(weights), bytes_per_device(shards)))
        sent = ", ".join(f"{count} {name}" for name, count in communication(compiled).items()) or "nothing"
        print(
            f"{dtype:<15}{size:>10}{piece:>10}{signal_to_noise(result, reference):10.1f} dB"
            f"{int(np.sum(np.asarray(result) != np.asarray(whole))):>8}  {sent}"
        )
    print(f"\ndiffer: of {whole.size} results, those that are not the whole MLP's, whose sums have another order")


def up_and_down(weights: Weights) -> int:
    """Bytes of containers and scales of both weights."""
    return weights.up.nbytes + weights.down.nbytes


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    app.run(main)
