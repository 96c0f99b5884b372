"""A transformer block in MX formats: how good it is, and what its module looks like before and after legalization.

    python examples/transformer_mlp.py --out=out

Every product of the block (attention projections and gated MLP) quantizes its activations and its weights under jit.
The block's output is compared with that of the same block in bfloat16. Then the block is lowered for "neuron", which
needs no device, and the pass `legalize-quantize-mx` runs over it.
"""

import functools
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import jax_mx
import lowering

FORMATS = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")
RULES = (jax_mx.EMAX, jax_mx.NKI)
BATCH, TOKENS, WIDTH, HIDDEN, HEADS = 4, 128, 512, 1536, 8

Weights: TypeAlias = dict[str, jax.Array]
Product: TypeAlias = Callable[[jax.Array, jax.Array], jax.Array]

_OUT = flags.DEFINE_string("out", "out", "Folder for the files that are written.")


def bf16_product(x: jax.Array, w: jax.Array) -> jax.Array:
    """x[..., K] times w[K, N], accumulated in float32."""
    return jnp.matmul(x, w, preferred_element_type=jnp.float32).astype(jnp.bfloat16)


def mx_product(x: jax.Array, w: jax.Array, *, dtype: str, rule: jax_mx.ScaleRule) -> jax.Array:
    """The same product with both sides quantized along K, as the hardware's scaled matmul computes it."""
    x_data, x_scale = jax_mx.quantize_mx(x, dtype, axis=-1, rule=rule)
    w_data, w_scale = jax_mx.quantize_mx(w, dtype, axis=0, rule=rule)
    x_values = jax_mx.dequantize_mx(x_data, x_scale, dtype, axis=-1)
    w_values = jax_mx.dequantize_mx(w_data, w_scale, dtype, axis=0)
    return jnp.matmul(x_values, w_values).astype(jnp.bfloat16)


def normalize(x: jax.Array) -> jax.Array:
    """Root-mean-square normalization over the last axis."""
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + 1e-6)).astype(jnp.bfloat16)


def attention(x: jax.Array, weights: Weights, product: Product) -> jax.Array:
    """Multi-head causal self-attention."""
    query, key, value = jnp.split(product(x, weights["qkv"]), 3, axis=-1)
    query, key, value = (t.reshape(*t.shape[:-1], HEADS, -1) for t in (query, key, value))
    mixed = jax.nn.dot_product_attention(query, key, value, is_causal=True)
    return product(mixed.reshape(x.shape), weights["out"])


def mlp(x: jax.Array, weights: Weights, product: Product) -> jax.Array:
    """Gated MLP."""
    return product(jax.nn.silu(product(x, weights["gate"])) * product(x, weights["up"]), weights["down"])


def block(x: jax.Array, weights: Weights, product: Product) -> jax.Array:
    """One pre-norm transformer block."""
    x = x + attention(normalize(x), weights, product)
    return x + mlp(normalize(x), weights, product)


def make_inputs() -> tuple[jax.Array, Weights]:
    """Activations with a few outlier channels, as trained models have them, and weights of the usual scale."""
    keys = iter(jax.random.split(jax.random.key(0), 8))
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "gate": (WIDTH, HIDDEN), "up": (WIDTH, HIDDEN)}
    shapes["down"] = (HIDDEN, WIDTH)
    weights = {
        name: (jax.random.normal(next(keys), shape) / math.sqrt(shape[0])).astype(jnp.bfloat16)
        for name, shape in shapes.items()
    }
    channels = jnp.exp(jax.random.normal(next(keys), (WIDTH,)))
    x = jax.random.normal(next(keys), (BATCH, TOKENS, WIDTH)) * channels
    return x.astype(jnp.bfloat16), weights


def signal_to_noise(value: jax.Array, reference: jax.Array) -> float:
    """Decibels of the reference's power over that of the difference."""
    signal = np.asarray(reference, np.float64)
    noise = np.asarray(value, np.float64) - signal
    return 10 * math.log10(float(np.sum(signal**2) / np.sum(noise**2)))


def size_in_bytes(dtype: str, weights: Weights) -> int:
    """Bytes of all weights, quantized: containers and scales."""
    shapes = jax.eval_shape(lambda: [jax_mx.quantize_mx(w, dtype, axis=0) for w in weights.values()])
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def print_quality(x: jax.Array, weights: Weights) -> None:
    """The table: each format and rule against the bfloat16 block."""
    reference = jax.jit(functools.partial(block, product=bf16_product))(x, weights)
    bf16_bytes = sum(w.nbytes for w in weights.values())
    print(f"{'format':<15}{'rule':<6}{'output SNR':>12}{'update SNR':>12}{'weights':>12}")
    print(f"{'bfloat16':<15}{'':<6}{'':>12}{'':>12}{bf16_bytes / 2**20:8.2f} MiB")
    for dtype in FORMATS:
        for rule in RULES:
            product = functools.partial(mx_product, dtype=dtype, rule=rule)
            got = jax.jit(functools.partial(block, product=product))(x, weights)
            output, update = signal_to_noise(got, reference), signal_to_noise(got - x, reference - x)
            size = size_in_bytes(dtype, weights) / 2**20
            print(f"{dtype:<15}{rule.name:<6}{output:9.1f} dB{update:9.1f} dB{size:8.2f} MiB")
    print("\nupdate: what the block adds to its input; SNR against the same block in bfloat16\n")


def print_first_call(title: str, hlo: str) -> None:
    """Shows the first MX call of a module and, once it is legalized, the constant it takes its shape from."""
    lines = [line.strip() for line in hlo.splitlines()]
    calls = [line for line in lines if 'custom_call_target="QuantizeMX' in line]
    operand = calls[0].partition("custom-call(")[2].partition(",")[0].strip("%)")
    constants = [line for line in lines if line.removeprefix("%").startswith(f"{operand} = ") and " constant(" in line]
    print(f"{title}: {len(calls)} calls, the first:")
    for line in (*constants, calls[0]):
        head, _, tail = line.partition(", metadata={")
        print(f"  {head}{tail.partition('}')[2]}")
    print()


def lower_and_legalize(x: jax.Array, weights: Weights, out: pathlib.Path) -> None:
    """Lowers the block for "neuron", legalizes it, shows one call before and after, and writes both modules."""
    product = functools.partial(mx_product, dtype="float8_e4m3fn", rule=jax_mx.EMAX)
    traced = jax.jit(functools.partial(block, product=product)).trace(x, weights)
    before = traced.lower(lowering_platforms=("neuron",)).as_text("hlo", debug_info=True)
    module = lowering.read_module(before.encode(), "block.hlo")
    lowering.run_passes(module, [lowering.LegalizeQuantizeMx()])
    after = lowering.write_module(module, lowering.Format.HLO_TEXT).decode()
    print_first_call("before", before)
    print_first_call("after legalize-quantize-mx", after)

    out.mkdir(parents=True, exist_ok=True)
    for name, text in (("block.hlo", before), ("block.legalized.hlo", after)):
        (out / name).write_text(text)
        print(f"wrote {out / name}")
    print(f"\nnext: .venv/bin/mx-opt inspect {out / 'block.hlo'}")


def main(argv: Sequence[str]) -> None:
    """Runs the whole job."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    x, weights = make_inputs()
    print(f"transformer block, {BATCH} x {TOKENS} tokens of width {WIDTH}, jax {jax.__version__}\n")
    print_quality(x, weights)
    lower_and_legalize(x, weights, pathlib.Path(_OUT.value))


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    app.run(main)
