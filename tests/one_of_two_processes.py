"""One process of two, run by `test_two_processes`: it holds half of every array and checks its half of every result.

python -m tests.one_of_two_processes COORDINATOR_ADDRESS PROCESS_ID
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import jax_mx
from tests.arrays import assert_same
from tests.collectives import transfers

DEVICES_PER_PROCESS = 4
M, N, K = 16, 24, 256


def integers(*shape: int, seed: int) -> np.ndarray[Any, Any]:
    """Small integers times powers of two as bfloat16: their float32 sums are exact in any order."""
    random = np.random.default_rng(seed)
    return (random.integers(-4, 5, shape) * 2.0 ** random.integers(0, 4, shape)).astype(jnp.bfloat16)


def globally(x: np.ndarray[Any, Any], mesh: Mesh, *spec: str | None) -> jax.Array:
    """An array over all devices of both processes, of which this process makes its shards only."""
    return jax.make_array_from_callback(x.shape, NamedSharding(mesh, PartitionSpec(*spec)), lambda index: x[index])


def assert_shards(got: jax.Array, want: jax.Array, what: str) -> None:
    """Compares the shards that this process holds with their places in an array of its own."""
    whole = np.asarray(want)
    assert len(got.addressable_shards) == DEVICES_PER_PROCESS
    for shard in got.addressable_shards:
        assert_same(np.asarray(shard.data), whole[shard.index], f"{what}, device {shard.device.id}")


def multiply(x: jax.Array, w: jax.Array) -> tuple[jax_mx.MXArray, jax.Array]:
    """x[M, K] times w[K, N], both quantized along K."""
    quantized = jax_mx.MXArray.quantize(x)
    product: jax.Array = quantized @ jax_mx.MXArray.quantize(w, axis=0)
    return quantized, product.astype(jnp.float32)


def main(address: str, process: int) -> None:
    """Quantizes and multiplies arrays that are sharded over the processes along K, and along M and N."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES_PER_PROCESS)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, num_processes=2, process_id=process)
    assert len(jax.devices()) == 2 * DEVICES_PER_PROCESS
    x, w = integers(M, K, seed=0), integers(K, N, seed=1)
    want, product = multiply(jnp.asarray(x), jnp.asarray(w))
    # The first axis of the mesh is that of the processes.
    mesh = jax.make_mesh((2, DEVICES_PER_PROCESS), ("host", "chip"), axis_types=(AxisType.Auto,) * 2)
    for x_spec, w_spec, sent in (
        (("chip", "host"), ("host", None), [("all-reduce", "f32", M // DEVICES_PER_PROCESS * N * 4)]),
        (("host", None), (None, "chip"), []),
    ):
        arguments = globally(x, mesh, *x_spec), globally(w, mesh, *w_spec)
        compiled = jax.jit(multiply).lower(*arguments).compile()
        got, got_product = compiled(*arguments)
        assert_shards(got.data, want.data, f"{x_spec} data")
        assert_shards(got.scale, want.scale, f"{x_spec} scale")
        assert_shards(got_product, product, f"{x_spec} product")
        assert transfers(compiled) == sent, (transfers(compiled), sent)
        print(f"process {process} {x_spec} same")
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
