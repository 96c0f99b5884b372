"""Eight CPU devices for the tests that shard; set before jax makes its backend."""

import jax

jax.config.update("jax_num_cpu_devices", 8)
