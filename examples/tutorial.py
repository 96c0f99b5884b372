"""A tutorial in cells: from a bfloat16 layer to custom calls to legalized HLO."""

# %% [markdown]
# # From a bfloat16 layer to a hardware instruction
#
# A layer's product becomes an MX product in one line; that line becomes custom calls when the layer is lowered for
# Trainium; the compiler's passes turn those calls into the ones the hardware has. This tutorial follows one layer all
# the way, on a machine without any accelerator.
#
# Every cell can be run in an editor that knows `# %%` cells, or all at once: `python examples/tutorial.py`.

# %%
import jax
import jax.numpy as jnp
import numpy as np

import jax_mx
import lowering

x = jax.random.normal(jax.random.key(0), (4, 64), jnp.bfloat16)
w = (jax.random.normal(jax.random.key(1), (64, 32)) / 8).astype(jnp.bfloat16)
CONTRACT = (((1,), (0,)), ((), ()))


def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    """A dense layer as anybody writes it."""
    return jax.nn.relu(jax.lax.dot_general(x, w, CONTRACT, preferred_element_type=jnp.float32))


# %% [markdown]
# ## 1. What quantizing does
#
# MX formats store 32 neighbours as narrow floats that share one power of two. `quantize_mx` gives both parts: four
# codes a container, and one scale byte a block.

# %%
data, scale = jax_mx.quantize_mx(x)
print(f"x {x.dtype}{x.shape} -> data {data.dtype}{data.shape}, scale {scale.dtype}{scale.shape}")
print("the first block: scale byte", scale[0, 0], "stands for", 2.0 ** (int(scale[0, 0]) - 127))
print("its first codes:", [hex(int(code)) for code in jax_mx.unpack_x4(data, "float8_e4m3fn")[0, :4]])
print("they stand for: ", jax_mx.dequantize_mx(data, scale, "float8_e4m3fn")[0, :4], "and were", x[0, :4])

# %% [markdown]
# `MXArray` keeps the parts and what they mean together: the format, the axis, the rule, the shape.

# %%
weights = jax_mx.MXArray.quantize(w, axis=0)
print(weights, "-", weights.nbytes, "bytes instead of", w.nbytes)
print("product of two:", (jax_mx.MXArray.quantize(x) @ weights).shape)

# %% [markdown]
# ## 2. Which scale rule?
#
# A block's scale follows from its largest element, and libraries disagree on how. On weights with heavy tails:

# %%
heavy = jax.random.t(jax.random.key(2), 4.0, (64, 256)).astype(jnp.bfloat16)
print(jax_mx.compare_rules(heavy, "float8_e4m3fn"))

# %% [markdown]
# ## 3. The layer in MX
#
# `mx_dot_general` takes the arguments of `jax.lax.dot_general`, quantizes both sides along what is contracted, and has
# a derivative whose products are MX too. Layers of Flax take it as `dot_general=`.


# %%
def mx_layer(x: jax.Array, w: jax.Array) -> jax.Array:
    """The same layer; one name differs."""
    return jax.nn.relu(jax_mx.mx_dot_general(x, w, CONTRACT, preferred_element_type=jnp.float32))


exact, approximate = layer(x, w), mx_layer(x, w)
error = float(jnp.linalg.norm(approximate - exact) / jnp.linalg.norm(exact))
print(f"relative error of the layer in MXFP8: {error:.1%}")

gradient = jax.grad(lambda w: jnp.sum(layer(x, w) ** 2))(w).astype(jnp.float32)
mx_gradient = jax.grad(lambda w: jnp.sum(mx_layer(x, w) ** 2))(w).astype(jnp.float32)
cosine = float(jnp.vdot(gradient, mx_gradient) / jnp.linalg.norm(gradient) / jnp.linalg.norm(mx_gradient))
print(f"cosine between the gradients of the weights: {cosine:.4f}")

# %% [markdown]
# ## 4. The custom calls
#
# Lowered for the platform "neuron", quantizing is the custom call `QuantizeMX` and the product `__op$block_scaled_dot`.
# No device is needed to look at that.

# %%
lowered = jax.jit(mx_layer).trace(x, w).lower(lowering_platforms=("neuron",))
for line in lowered.as_text().splitlines():
    if "custom_call" in line:
        print(line.strip()[:160])

# %% [markdown]
# ## 5. Legalized HLO
#
# The passes of `mx-opt` check every call against its contract and turn it into what the hardware compiler has: tagged
# targets, with dimensions as a metadata operand. `mx-opt module.mlir --passes=...` does the same on the command line.

# %%
module = lowering.read_module(lowered.as_text(debug_info=True), "mx_layer")
lowering.run_passes(module, [lowering.LegalizeQuantizeMx(), lowering.LegalizeScaledMatmul()])
legalized = lowering.write_module(module, lowering.Format.HLO_TEXT).decode()
for line in legalized.splitlines():
    if "custom-call(" in line:
        print(line.strip().split(", backend_config")[0][:160])

# %% [markdown]
# ## 6. The same bits
#
# A legalized module runs on the CPU too, with the implementation that is exact to the last bit in place of each call.
# It gives what the layer gave.

# %%
(result,) = lowering.execute(module, [np.asarray(x), np.asarray(w)])
print("the legalized module computes the layer's bits:", np.array_equal(result, np.asarray(approximate)))
