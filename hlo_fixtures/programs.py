"""The JAX programs behind the fixtures: pieces of real models, small enough to read once lowered."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import jax_mx

BF16, F16 = jnp.bfloat16, jnp.float16


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program that becomes one fixture.

    Attributes:
        name: Name of the fixture's file, without ending.
        function: What is lowered.
        arguments: Shapes and dtypes of its arguments.
        form: `hlo` for HLO text, `stablehlo` for StableHLO text.
        checks: FileCheck lines for the legalized module, written by hand.
        platforms: Platforms to lower for; several make a case with one branch for each.
        options: Further `mx-opt` flags.
        directory: Directory of the fixture's files.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[jax.ShapeDtypeStruct, ...]
    form: str
    checks: tuple[str, ...]
    platforms: tuple[str, ...] = ("neuron",)
    options: str = ""
    directory: str = "valid"


def array(*shape: int, dtype: Any = BF16) -> jax.ShapeDtypeStruct:
    """Returns the shape and dtype of an argument."""
    return jax.ShapeDtypeStruct(shape, dtype)


def mx_matmul(x: jax.Array, w: jax.Array, dtype: str, rule: jax_mx.ScaleRule = jax_mx.EMAX) -> jax.Array:
    """Multiplies x[..., K] by w[K, N], both quantized along K."""
    x_data, x_scale = jax_mx.quantize_mx(x, dtype, axis=-1, rule=rule)
    w_data, w_scale = jax_mx.quantize_mx(w, dtype, axis=0, rule=rule)
    x_values = jax_mx.dequantize_mx(x_data, x_scale, dtype, axis=-1)
    w_values = jax_mx.dequantize_mx(w_data, w_scale, dtype, axis=0)
    return (x_values @ w_values).astype(x.dtype)


def mlp(x: jax.Array, w_up: jax.Array, w_gate: jax.Array, w_down: jax.Array) -> jax.Array:
    """A transformer block's gated MLP, its three products in float8_e4m3fn."""
    hidden = jax.nn.silu(mx_matmul(x, w_gate, "float8_e4m3fn")) * mx_matmul(x, w_up, "float8_e4m3fn")
    return x + mx_matmul(hidden, w_down, "float8_e4m3fn")


def attention(x: jax.Array, w_qkv: jax.Array, w_out: jax.Array) -> jax.Array:
    """A transformer block's attention, its projections in float8_e5m2: four heads of 16."""
    query, key, value = jnp.split(mx_matmul(x, w_qkv, "float8_e5m2"), 3, axis=-1)
    heads = [t.reshape(*t.shape[:-1], 4, -1) for t in (query, key, value)]
    scores = jnp.einsum("bqhd,bkhd->bhqk", heads[0], heads[1]) / 4.0
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), heads[2])
    return x + mx_matmul(mixed.reshape(x.shape), w_out, "float8_e5m2")


def layers(x: jax.Array, weights: jax.Array) -> jax.Array:
    """Several layers as one scan: the calls end up in a while body."""

    def layer(carry: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        return jnp.tanh(mx_matmul(carry, w, "float8_e4m3fn")), None

    return jax.lax.scan(layer, x, weights)[0]


def cache_update(x: jax.Array, keep: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A key-value cache entry that is either quantized anew or zero: one call in a branch of a conditional."""

    def fresh(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax_mx.quantize_mx(x, "float8_e5m2")

    def empty(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros((8, 16), jnp.uint32), jnp.zeros((8, 2), jnp.uint8)

    return jax.lax.cond(keep, fresh, empty, x)


def experts(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Weights of four experts, quantized along the second-to-last axis, one expert at a time under vmap."""
    return jax.vmap(lambda w: jax_mx.quantize_mx(w, "float8_e4m3fn", axis=-2))(x)


def half_precision(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A float16 activation with a partial last block: 36 elements, two scales."""
    return jax_mx.quantize_mx(x * 2, "float8_e5m2")


def nki_rule(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A scale rule other than the default, which travels as a frontend attribute."""
    return jax_mx.quantize_mx(x, "float8_e4m3fn", rule=jax_mx.NKI)


def fp4(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """float4 elements in 16-bit containers, which only `--allow-fp4` accepts."""
    return jax_mx.quantize_mx(x, "float4_e2m1fn")


def checkpointed(x: jax.Array, w: jax.Array) -> jax.Array:
    """The gradient of a rematerialized product: forward calls appear again in the backward pass."""

    @jax.checkpoint
    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        product = jax_mx.fake_quantize_mx(x, "float8_e4m3fn") @ jax_mx.fake_quantize_mx(w, "float8_e4m3fn", axis=0)
        return jnp.sum(jnp.tanh(product.astype(jnp.float32)))

    return jax.grad(loss)(x, w)


def quantize_weights(w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One call, lowered for CPU and Neuron at once: a case with a branch for each platform."""
    return jax_mx.quantize_mx(w, "float8_e4m3fn", axis=-1)


PROGRAMS = (
    Program(
        name="transformer_mlp",
        function=mlp,
        arguments=(array(2, 8, 64), array(64, 128), array(64, 128), array(128, 64)),
        form="hlo",
        checks=(
            "CHECK-LABEL: ENTRY",
            "CHECK: constant(( {2, 8, 64}, 2, 32, 0 ))",
            'CHECK-COUNT-6: custom_call_target="QuantizeMX_bf16_e4m3fn"',
            'CHECK-NOT: custom_call_target="QuantizeMX"',
        ),
    ),
    Program(
        name="attention_projections",
        function=attention,
        arguments=(array(2, 8, 64), array(64, 192), array(64, 64)),
        form="stablehlo",
        checks=(
            "CHECK-LABEL: func.func public @main",
            "CHECK: %[[DIMS:.*]] = stablehlo.constant dense<[2, 8, 64]> : tensor<3xi64>",
            "CHECK-NEXT: %[[DIM:.*]] = stablehlo.constant dense<2> : tensor<i64>",
            "CHECK-NEXT: %[[BLOCK:.*]] = stablehlo.constant dense<32> : tensor<i64>",
            "CHECK-NEXT: %[[ZERO:.*]] = stablehlo.constant dense<0> : tensor<i64>",
            "CHECK-NEXT: %[[META:.*]] = stablehlo.tuple %[[DIMS]], %[[DIM]], %[[BLOCK]], %[[ZERO]] :",
            'CHECK-NEXT: stablehlo.custom_call @QuantizeMX_bf16_e5m2(%[[META]], %arg0) {backend_config = ""}',
            "CHECK-COUNT-3: stablehlo.custom_call @QuantizeMX_bf16_e5m2(",
            "CHECK-NOT: stablehlo.custom_call @QuantizeMX(",
        ),
    ),
    Program(
        name="scanned_layers",
        function=layers,
        arguments=(array(8, 64), array(3, 64, 64)),
        form="stablehlo",
        checks=(
            "CHECK: stablehlo.while",
            "CHECK-COUNT-2: stablehlo.custom_call @QuantizeMX_bf16_e4m3fn(",
            "CHECK-NOT: stablehlo.custom_call @QuantizeMX(",
        ),
    ),
    Program(
        name="conditional_cache",
        function=cache_update,
        arguments=(array(8, 64), array(dtype=jnp.bool_)),
        form="hlo",
        checks=(
            "CHECK: %[[META:.*]] = (s64[2]{0}, s64[], s64[], s64[]) constant(( {8, 64}, 1, 32, 0 ))",
            'CHECK: custom-call(%[[META]], %{{.*}}), custom_call_target="QuantizeMX_bf16_e5m2"',
            "CHECK: ENTRY",
            "CHECK: conditional(",
        ),
    ),
    Program(
        name="expert_weights",
        function=experts,
        arguments=(array(4, 64, 32),),
        form="hlo",
        checks=(
            "CHECK: %[[META:.*]] = (s64[3]{0}, s64[], s64[], s64[]) constant(( {4, 64, 32}, 1, 32, 0 ))",
            "CHECK: (u32[4,16,32]{2,1,0}, u8[4,2,32]{2,1,0}) custom-call(%[[META]], ",
            'CHECK-SAME: custom_call_target="QuantizeMX_bf16_e4m3fn"',
        ),
    ),
    Program(
        name="half_precision",
        function=half_precision,
        arguments=(array(3, 36, dtype=F16),),
        form="stablehlo",
        checks=(
            "CHECK: stablehlo.constant dense<[3, 36]> : tensor<2xi64>",
            "CHECK: stablehlo.custom_call @QuantizeMX_f16_e5m2(",
            "CHECK-SAME: tensor<3x36xf16>) -> (tensor<3x9xui32>, tensor<3x2xui8>)",
        ),
    ),
    Program(
        name="nki_rule",
        function=nki_rule,
        arguments=(array(4, 64),),
        form="hlo",
        checks=(
            'CHECK: custom_call_target="QuantizeMX_bf16_e4m3fn"',
            'CHECK-SAME: frontend_attributes={mx_scale_rule="NKI"}',
        ),
    ),
    Program(
        name="fp4",
        function=fp4,
        arguments=(array(4, 64),),
        form="stablehlo",
        checks=(
            "CHECK: stablehlo.custom_call @QuantizeMX_bf16_e2m1fn(",
            "CHECK-SAME: -> (tensor<4x16xui16>, tensor<4x2xui8>)",
        ),
        options="--allow-fp4",
    ),
    Program(
        name="checkpointed_gradient",
        function=checkpointed,
        arguments=(array(8, 64), array(64, 32)),
        form="stablehlo",
        checks=(
            "CHECK-COUNT-2: stablehlo.custom_call @QuantizeMX_bf16_e4m3fn(",
            "CHECK-NOT: stablehlo.custom_call @QuantizeMX(",
        ),
    ),
    Program(
        name="several_platforms",
        function=quantize_weights,
        arguments=(array(8, 64),),
        form="stablehlo",
        platforms=("cpu", "neuron"),
        checks=(
            "CHECK: stablehlo.case",
            "CHECK: stablehlo.custom_call @QuantizeMX_bf16_e4m3fn(",
            "CHECK-NOT: stablehlo.custom_call @QuantizeMX(",
        ),
    ),
)
