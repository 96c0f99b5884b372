"""Eight CPU devices for the tests that shard, set before jax makes its backend, and the choice of implementation."""

from collections.abc import Iterator

import jax
import pytest

import jax_mx
from jax_mx._native import library

jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture(scope="module", params=["xla", "native"])
def implementation(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a module's tests on both implementations; another test fails where the native one ought to be and is not."""
    loaded = library.load()
    if request.param == "native" and isinstance(loaded, library.Unavailable):
        pytest.skip(loaded.reason)
    with jax_mx.config.use_implementation(request.param):
        yield request.param
