"""Trains a small transformer in bfloat16 and in MXFP8 on the same data, and compares the losses.

    python examples/train_mx.py --out=out

The task can be learned, and its best loss is known: tokens follow a random Markov chain of second order, so the next
token depends on the last two, and the chain's own entropy is the loss of a perfect model. Both runs start from the same
weights and see the same batches. All weight products of the MXFP8 run, forward and backward, go through
`jax_mx.mx_dot_general`: activations and weights in float8_e4m3fn, gradients in float8_e5m2.

It prints both losses and the gap between them, exits with status 1 when the gap is above the margin, and draws the loss
curves.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from matplotlib.figure import Figure

import jax_mx

MARGIN = 0.02
"""How much more than the bfloat16 run the MXFP8 run may lose, in nats per token."""

_OUT = flags.DEFINE_string("out", "out", "Folder for the picture.")
_STEPS = flags.DEFINE_integer("steps", 500, "Training steps of each run.", lower_bound=20)

Params = dict[str, Any]
Dot = Callable[..., jax.Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Sizes of model and task."""

    vocabulary: int = 12
    successors: int = 3
    length: int = 48
    width: int = 128
    heads: int = 4
    layers: int = 2
    batch: int = 16
    steps: int = 500
    learning_rate: float = 3e-3


class MarkovChain:
    """Sequences in which two tokens decide which few may come next, and how likely each one is."""

    def __init__(self, settings: Settings, seed: int):
        """Draws the chain."""
        generator = np.random.default_rng(seed)
        pairs = settings.vocabulary**2
        self.next = np.stack([generator.permutation(settings.vocabulary)[: settings.successors] for _ in range(pairs)])
        self.chance = generator.dirichlet(np.ones(settings.successors), size=pairs)
        self._settings = settings

    def batches(self, seed: int) -> Iterator[np.ndarray]:
        """Endless batches, int32[batch, length + 1]."""
        generator = np.random.default_rng(seed)
        s = self._settings
        cumulative = np.cumsum(self.chance, axis=1)
        while True:
            tokens = np.zeros((s.batch, s.length + 1), np.int32)
            tokens[:, :2] = generator.integers(0, s.vocabulary, (s.batch, 2))
            for t in range(2, s.length + 1):
                pair = tokens[:, t - 2] * s.vocabulary + tokens[:, t - 1]
                choice = (generator.random((s.batch, 1)) > cumulative[pair]).sum(axis=1)
                tokens[:, t] = self.next[pair, np.minimum(choice, s.successors - 1)]
            yield tokens

    def entropy(self, tokens: np.ndarray) -> float:
        """The loss of a perfect model on these tokens, from the third on, in nats per token."""
        pair = tokens[:, :-2] * self._settings.vocabulary + tokens[:, 1:-1]
        chance = self.chance[pair]
        return float(-np.log(chance[self.next[pair] == tokens[:, 2:, None]]).mean())


def initial_params(settings: Settings, seed: int) -> Params:
    """Weights of a decoder with learned positions; every layer's weights are stacked for `jax.lax.scan`."""
    keys = iter(jax.random.split(jax.random.key(seed), 8))
    width, layers = settings.width, settings.layers

    def normal(*shape: int, scale: float) -> jax.Array:
        return scale * jax.random.normal(next(keys), shape)

    return {
        "embedding": normal(settings.vocabulary, width, scale=1.0),
        "positions": normal(settings.length, width, scale=0.1),
        "layers": {
            "qkv": normal(layers, width, 3 * width, scale=width**-0.5),
            "out": normal(layers, width, width, scale=width**-0.5),
            "up": normal(layers, width, 4 * width, scale=width**-0.5),
            "down": normal(layers, 4 * width, width, scale=(4 * width) ** -0.5),
        },
        "head": normal(width, settings.vocabulary, scale=width**-0.5),
    }


def dense(x: jax.Array, w: jax.Array, dot: Dot) -> jax.Array:
    """x[..., K] times w[K, N], in bfloat16."""
    return dot(x.astype(jnp.bfloat16), w.astype(jnp.bfloat16), (((x.ndim - 1,), (0,)), ((), ())))


def norm(x: jax.Array) -> jax.Array:
    """Root-mean-square normalization in float32."""
    x = x.astype(jnp.float32)
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def attention(qkv: jax.Array, heads: int) -> jax.Array:
    """Causal attention in float32; its products have no weights and stay as they are."""
    batch, length, width = qkv.shape
    split = qkv.astype(jnp.float32).reshape(batch, length, 3, heads, width // (3 * heads))
    query, key, value = split[:, :, 0], split[:, :, 1], split[:, :, 2]
    return jax.nn.dot_product_attention(query, key, value, is_causal=True).reshape(batch, length, width // 3)


def logits(params: Params, tokens: jax.Array, settings: Settings, dot: Dot) -> jax.Array:
    """float32[batch, length, vocabulary]."""
    x = params["embedding"][tokens] + params["positions"]

    def layer(x: jax.Array, w: Params) -> tuple[jax.Array, None]:
        x = x + dense(attention(dense(norm(x), w["qkv"], dot), settings.heads), w["out"], dot)
        return x + dense(jax.nn.gelu(dense(norm(x), w["up"], dot)), w["down"], dot), None

    x, _ = jax.lax.scan(layer, x, params["layers"])
    return norm(x) @ params["head"]  # the head stays in float32, as is usual


def loss(params: Params, tokens: jax.Array, settings: Settings, dot: Dot) -> jax.Array:
    """Mean cross-entropy of tokens that have two before them, in nats."""
    predicted = jax.nn.log_softmax(logits(params, tokens[:, :-1], settings, dot))[:, 1:]
    return -jnp.take_along_axis(predicted, tokens[:, 2:, None], axis=-1).mean()


@functools.partial(jax.jit, static_argnames=("settings", "dot"), donate_argnames=("params", "state"))
def train_step(
    params: Params, state: Any, tokens: jax.Array, step: jax.Array, settings: Settings, dot: Dot
) -> tuple[Params, Any, jax.Array]:
    """One step of Adam with linear warm-up and cosine decay."""
    value, gradient = jax.value_and_grad(loss)(params, tokens, settings, dot)
    warm = jnp.minimum(1.0, (step + 1) / 20)
    rate = settings.learning_rate * warm * (0.5 + 0.5 * jnp.cos(jnp.pi * step / settings.steps))
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state[0], gradient)
    second = jax.tree.map(lambda v, g: 0.98 * v + 0.02 * g * g, state[1], gradient)
    correct = (1 - 0.9 ** (step + 1), 1 - 0.98 ** (step + 1))
    params = jax.tree.map(
        lambda p, m, v: p - rate * (m / correct[0]) / (jnp.sqrt(v / correct[1]) + 1e-8), params, first, second
    )
    return params, (first, second), value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What one training run came to."""

    name: str
    curve: np.ndarray
    final: float
    seconds: float


def train(name: str, dot: Dot, chain: MarkovChain, settings: Settings, held_out: np.ndarray) -> Run:
    """Trains from the same weights on the same batches as every other run; returns its losses."""
    params = initial_params(settings, seed=0)
    state = (jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params))
    batches = chain.batches(seed=1)
    curve = []
    started = time.perf_counter()
    for step in range(settings.steps):
        params, state, value = train_step(params, state, next(batches), jnp.float32(step), settings, dot)
        curve.append(float(value))
    evaluate = jax.jit(loss, static_argnames=("settings", "dot"))
    final = np.mean([evaluate(params, tokens, settings, dot) for tokens in held_out])
    return Run(name=name, curve=np.array(curve), final=float(final), seconds=time.perf_counter() - started)


def draw(runs: list[Run], best: float, path: Path) -> None:
    """Draws the smoothed loss curves, and the gap between them."""
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    window = np.ones(15) / 15
    smooth = [np.convolve(run.curve, window, "valid") for run in runs]
    steps = np.arange(len(smooth[0])) + 7
    for run, line, style in zip(runs, smooth, ("-", "--"), strict=True):
        top.plot(steps, line, style, label=f"{run.name}: {run.final:.3f} on held-out data")
    top.axhline(best, color="gray", linewidth=1, label=f"entropy of the task: {best:.3f}")
    top.set_ylabel("loss, nats per token")
    top.set_title("The same transformer, the same batches, bfloat16 and MXFP8", fontsize=11)
    top.legend(frameon=False)
    bottom.plot(steps, smooth[1] - smooth[0], color="C3")
    bottom.axhline(0, color="gray", linewidth=1)
    bottom.set_ylabel("MXFP8 - bfloat16")
    bottom.set_xlabel("step")
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def compare(settings: Settings) -> tuple[list[Run], float]:
    """Trains both models; returns their runs and the entropy of the held-out data."""
    chain = MarkovChain(settings, seed=0)
    evaluation = chain.batches(seed=2)
    held_out = np.stack([next(evaluation) for _ in range(16)])
    bf16 = functools.partial(jax.lax.dot_general, preferred_element_type=jnp.float32)
    mxfp8 = functools.partial(jax_mx.mx_dot_general, preferred_element_type=jnp.float32)
    runs = []
    for name, dot in (("bfloat16", bf16), ("MXFP8", mxfp8)):
        run = train(name, dot, chain, settings, held_out)
        print(
            f"{name:>9}: loss {run.final:.4f} on held-out data, {len(run.curve)} steps, {run.seconds:.0f} s", flush=True
        )
        runs.append(run)
    return runs, float(np.mean([chain.entropy(tokens) for tokens in held_out]))


def main(_: Sequence[str]) -> int:
    """Trains, compares, draws; returns the exit status."""
    runs, best = compare(Settings(steps=_STEPS.value))
    gap = runs[1].final - runs[0].final
    print(f"entropy of the task: {best:.4f}; MXFP8 - bfloat16: {gap:+.4f}, margin {MARGIN}")
    picture = Path(_OUT.value) / "train_mx.png"
    draw(runs, best, picture)
    print(f"wrote {picture}")
    return 0 if gap <= MARGIN else 1


if __name__ == "__main__":
    app.run(main)
