"""A 24-layer transformer with 200 `QuantizeMX` calls, its products left to `__op$block_scaled_dot`."""

import json

import jax
import jax.numpy as jnp

import jax_mx

LAYERS, WIDTH, HIDDEN, HEADS, SHARDS, VOCABULARY = 24, 64, 128, 4, 7, 32
DTYPE = "float8_e4m3fn"
CONFIG = {
    "scaled_dot_backend_config": {
        "element_dtype": DTYPE,
        "lhs_batch_dimensions": [],
        "lhs_contracting_dimensions": [1],
        "rhs_batch_dimensions": [],
        "rhs_contracting_dimensions": [1],
    }
}

Weights = dict[str, jax.Array]
Quantized = tuple[jax.Array, jax.Array]


def scaled_dot(lhs: Quantized, rhs: Quantized) -> jax.Array:
    """Multiplies two quantized matrices along their last axes."""
    out = jax.ShapeDtypeStruct((lhs[0].shape[0], rhs[0].shape[0]), jnp.float32)
    config = json.dumps(CONFIG, sort_keys=True)
    call = jax.ffi.ffi_call(
        "__op$block_scaled_dot", out, custom_call_api_version=2, legacy_backend_config=config, vmap_method="sequential"
    )
    return call(lhs[0], rhs[0], lhs[1], rhs[1])


def quantize(x: jax.Array) -> Quantized:
    """Quantizes along the last axis."""
    return jax_mx.quantize_mx(x, DTYPE)


def layer(x: jax.Array, weights: Weights) -> jax.Array:
    """One layer: eight MX calls, four products."""
    qkv = scaled_dot(quantize(x), quantize(weights["qkv"]))
    query, key, value = (t.reshape(x.shape[0], HEADS, -1) for t in jnp.split(qkv, 3, axis=-1))
    scores = jax.nn.softmax(jnp.einsum("qhd,khd->hqk", query, key) / 4.0, axis=-1)
    mixed = jnp.einsum("hqk,khd->qhd", scores, value).reshape(x.shape).astype(x.dtype)
    x = x + scaled_dot(quantize(mixed), quantize(weights["out"])).astype(x.dtype)
    hidden = jax.nn.silu(scaled_dot(quantize(x), quantize(weights["up"]))).astype(x.dtype)
    return x + scaled_dot(quantize(hidden), quantize(weights["down"])).astype(x.dtype)


def large_transformer(x: jax.Array, layers: list[Weights], heads: list[jax.Array]) -> jax.Array:
    """A 24-layer transformer with 200 MX calls, and an output projection in seven vocabulary shards."""
    for weights in layers:
        x = layer(x, weights)
    activations = quantize(x)
    return jnp.concatenate([scaled_dot(activations, quantize(head)) for head in heads], axis=-1)


def arguments() -> tuple[jax.ShapeDtypeStruct, list[dict[str, jax.ShapeDtypeStruct]], list[jax.ShapeDtypeStruct]]:
    """Returns the shapes of the model's input and weights."""

    def array(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16)

    weights = {
        "qkv": array(3 * WIDTH, WIDTH),
        "out": array(WIDTH, WIDTH),
        "up": array(HIDDEN, WIDTH),
        "down": array(WIDTH, HIDDEN),
    }
    return array(8, WIDTH), [dict(weights) for _ in range(LAYERS)], [array(VOCABULARY, WIDTH)] * SHARDS
