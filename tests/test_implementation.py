"""The choice between native kernels and XLA: who makes it, where it holds, and that nothing else changes."""

import logging
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import jax_mx
from jax_mx import _implementation
from jax_mx._native import library
from tests.arrays import assert_same

FMT = "float8_e4m3fn"
X = jax.random.normal(jax.random.key(0), (256, 256), jnp.bfloat16)
needs_library = pytest.mark.skipif(isinstance(library.load(), library.Unavailable), reason="no native kernels")


def quantize(x: jax.Array) -> Any:
    return jax_mx.quantize_mx(x, FMT)


def round_trip(x: jax.Array) -> jax.Array:
    return jax_mx.dequantize_mx(*jax_mx.quantize_mx(x, FMT), FMT)


def native_calls(f: Any, *args: Any) -> int:
    """How many native kernels a function's compiled module calls."""
    text = jax.jit(f).lower(*args).compile().as_text()
    return text.count('custom_call_target="jax_mx_')


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """As if the package had been installed without a compiler."""
    monkeypatch.setattr(library, "load", lambda: library.Unavailable("there was no compiler"))
    _implementation._say_once.cache_clear()
    jax.clear_caches()
    yield "there was no compiler"
    jax.clear_caches()


def in_a_new_process(variable: str | None, code: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "JAX_MX_IMPLEMENTATION"}
    if variable is not None:
        environment["JAX_MX_IMPLEMENTATION"] = variable
    environment["JAX_PLATFORMS"] = "cpu"
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


@needs_library
def test_automatic_is_native_on_one_cpu_device() -> None:
    assert jax_mx.implementation().name == "native"
    assert "kernels, the default on the CPU" in str(jax_mx.implementation())
    assert native_calls(quantize, X) == 1
    assert native_calls(round_trip, X) == 2
    assert native_calls(jax.vmap(quantize), X.reshape(4, 64, 256)) == 1


@needs_library
def test_the_choice_is_part_of_the_cache_key() -> None:
    assert native_calls(quantize, X) == 1
    with jax_mx.config.use_implementation("xla"):
        assert str(jax_mx.implementation()) == "xla: chosen by jax_mx.config or JAX_MX_IMPLEMENTATION"
        assert native_calls(quantize, X) == 0
        with jax_mx.config.use_implementation("native"):
            assert native_calls(quantize, X) == 1
    jax_mx.config.set_implementation("xla")
    try:
        assert native_calls(quantize, X) == 0
    finally:
        jax_mx.config.set_implementation("auto")
    assert native_calls(quantize, X) == 1


@needs_library
@pytest.mark.parametrize("mode", ["inline", "custom_call"])
def test_other_lowering_modes_call_no_kernel(mode: Any) -> None:
    with jax_mx.lowering_mode(mode):
        assert "jax_mx_" not in jax.jit(round_trip).lower(X).as_text()


@pytest.mark.parametrize("choice", ["XLA", "", None, "c++"])
def test_a_wrong_choice_is_named(choice: Any) -> None:
    for choose in (jax_mx.config.set_implementation, jax_mx.config.use_implementation):
        with pytest.raises(
            ValueError, match=f"choice: got {choice!r}, want one of 'auto', 'xla', 'native'".replace("+", r"\+")
        ):
            choose(choice)


def test_without_the_library_xla_runs_and_says_so_once(no_library: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="jax_mx"):
        assert native_calls(round_trip, X) == 0
        assert native_calls(quantize, X) == 0
    assert [record.message for record in caplog.records] == [
        f"jax_mx runs what XLA compiles on the CPU, which is slower: {no_library}"
    ]
    assert jax_mx.implementation() == jax_mx.Implementation("xla", no_library)


def test_without_the_library_native_is_refused(no_library: str) -> None:
    with pytest.raises(RuntimeError, match=f"choice: got 'native', but {no_library}"):
        jax_mx.config.set_implementation("native")


def test_a_library_for_a_newer_ffi_is_left_alone(tmp_path: pathlib.Path) -> None:
    """XLA would refuse it while it starts, and jax would have no CPU at all."""
    missing = library.find(tmp_path, (0, 3))
    assert isinstance(missing, library.Unavailable) and "were not built" in missing.reason
    for name in ("kernels_ffi_0_10.abi3.so", "kernels_ffi_0_5.abi3.so", "kernels_ffi_1_0.abi3.so"):
        (tmp_path / name).touch()
    assert library.find(tmp_path, (0, 5)) == tmp_path / "kernels_ffi_0_5.abi3.so"
    assert library.find(tmp_path, (0, 9)) == tmp_path / "kernels_ffi_0_5.abi3.so"
    assert library.find(tmp_path, (0, 11)) == tmp_path / "kernels_ffi_0_10.abi3.so"
    refused = library.find(tmp_path, (0, 3))
    assert isinstance(refused, library.Unavailable)
    assert refused.reason == (
        "the native kernels were built for version 0.10, 0.5, 1.0 of XLA's FFI and this jaxlib has 0.3: "
        "install jax-mx again"
    )


def test_the_environment_variable() -> None:
    show = "import jax_mx; print(jax_mx.implementation())"
    assert in_a_new_process("xla", show).stdout.startswith("xla: chosen by")
    wrong = in_a_new_process("fast", show)
    assert wrong.returncode != 0
    assert "ValueError: JAX_MX_IMPLEMENTATION: got 'fast', want one of auto, xla, native" in wrong.stderr


@needs_library
def test_the_environment_variable_takes_native() -> None:
    show = "import jax_mx; print(jax_mx.implementation())"
    assert in_a_new_process(None, show).stdout.endswith("kernels, the default on the CPU\n")
    assert in_a_new_process("native", show).stdout.startswith("native: ")


def test_exported_modules_are_plain() -> None:
    exported = jax.export.export(jax.jit(round_trip), platforms=("cpu",))(X)
    assert "custom_call" not in exported.mlir_module()
    got = jax.export.deserialize(exported.serialize()).call(X)
    assert_same(np.asarray(got).view(np.uint32), np.asarray(round_trip(X)).view(np.uint32), "values")


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("spec", [("d", None), (None, "d")])
def test_partitioned_modules_are_plain_and_gather_nothing(axis: int, spec: tuple[str | None, ...]) -> None:
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    x = jax.device_put(X, NamedSharding(mesh, PartitionSpec(*spec)))

    def f(x: jax.Array) -> Any:
        data, scale = jax_mx.quantize_mx(x, FMT, axis=axis)
        return data, scale, jax_mx.dequantize_mx(data, scale, FMT, axis=axis)

    text = jax.jit(f).lower(x).compile().as_text()
    assert "jax_mx_" not in text
    assert "all-gather" not in text
    for got, want in zip(jax.jit(f)(x), f(X), strict=True):
        assert_same(np.asarray(got).view(np.uint8), np.asarray(want).view(np.uint8), "result")


@needs_library
def test_the_body_of_a_shard_map_takes_native() -> None:
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = PartitionSpec("d", None)
    mapped = jax.shard_map(round_trip, mesh=mesh, in_specs=spec, out_specs=spec)
    assert native_calls(mapped, X) == 2
    assert_same(np.asarray(jax.jit(mapped)(X)).view(np.uint32), np.asarray(round_trip(X)).view(np.uint32), "values")


@needs_library
def test_a_shard_map_over_some_axes_is_partitioned_by_xla() -> None:
    auto = jax.sharding.AxisType.Auto
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(auto, auto))
    spec = PartitionSpec("a", None)
    mapped = jax.shard_map(round_trip, mesh=mesh, in_specs=spec, out_specs=spec, axis_names={"a"})
    assert native_calls(mapped, X) == 0
    assert_same(np.asarray(jax.jit(mapped)(X)).view(np.uint32), np.asarray(round_trip(X)).view(np.uint32), "values")


def test_dequantize_inside_a_shard_map_with_scales_that_do_not_vary() -> None:
    """Data differs from device to device and the scales are the same everywhere."""
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    data, _ = jax_mx.quantize_mx(X, FMT)
    scale = jnp.full((32, 8), 120, jnp.uint8)
    mapped = jax.shard_map(
        lambda data, scale: jax_mx.dequantize_mx(data, scale, FMT),
        mesh=mesh,
        in_specs=(PartitionSpec("d", None), PartitionSpec()),
        out_specs=PartitionSpec("d", None),
    )
    want = jax_mx.dequantize_mx(data, jnp.full((256, 8), 120, jnp.uint8), FMT)
    assert_same(np.asarray(jax.jit(mapped)(data, scale)), np.asarray(want), "values")


@pytest.mark.parametrize("in_axes", [(0, 0), (1, 0), (None, 0), (0, None), (2, 2)])
def test_dequantize_under_vmap(in_axes: tuple[int | None, int | None]) -> None:
    data, scale = jax_mx.quantize_mx(X.reshape(4, 64, 256), FMT)
    full = (jnp.broadcast_to(data, (4, 64, 64)), jnp.broadcast_to(scale, (4, 64, 8)))
    args = tuple(a[0] if dim is None else jnp.moveaxis(a, 0, dim) for a, dim in zip(full, in_axes, strict=True))
    got = jax.vmap(lambda d, s: jax_mx.dequantize_mx(d, s, FMT), in_axes=in_axes)(*args)
    for index in range(4):
        one = (a[0] if dim is None else a[index] for a, dim in zip(full, in_axes, strict=True))
        assert_same(np.asarray(got[index]), np.asarray(jax_mx.dequantize_mx(*one, FMT)), f"element {index}")


def test_dequantize_is_constant_to_derivatives() -> None:
    data, scale = jax_mx.quantize_mx(X, FMT)
    gradient = jax.grad(lambda w: jnp.sum(w * jax_mx.dequantize_mx(data, scale, FMT)))(jnp.ones((256, 256)))
    assert_same(np.asarray(gradient), np.asarray(jax_mx.dequantize_mx(data, scale, FMT)), "gradient")

    def through_float_codes(x: jax.Array) -> jax.Array:
        return jnp.sum(jax_mx.dequantize_mx(jax.lax.bitcast_convert_type(x, jnp.uint32), scale, FMT))

    assert not np.any(jax.grad(through_float_codes)(jnp.ones((256, 64), jnp.float32)))

    none = (np.zeros(data.shape, jax.dtypes.float0), np.zeros(scale.shape, jax.dtypes.float0))
    _, tangent = jax.jvp(lambda d, s: jax_mx.dequantize_mx(d, s, FMT), (data, scale), none)
    assert not np.any(tangent)
