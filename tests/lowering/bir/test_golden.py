"""The committed BIR programs are what the lowering makes, and give the bytes of the JAX primitive."""

import ml_dtypes
import numpy as np
import pytest

import jax_mx
from hlo_fixtures.bir.generate import CALLS, DIRECTORY
from lowering.bir import from_json, lower_calls, simulate, to_json, verify
from lowering.bir.adversarial import adversarial_bits

NUMPY = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def test_every_file_has_its_call() -> None:
    assert {path.stem for path in DIRECTORY.glob("*.json")} == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_the_lowering_writes_these_bytes(name: str) -> None:
    call, options = CALLS[name]
    text = (DIRECTORY / f"{name}.json").read_bytes()
    assert to_json(lower_calls([call], options)).encode() == text
    assert to_json(from_json(text)).encode() == text


@pytest.mark.parametrize("name", CALLS)
def test_the_files_quantize_exactly(name: str) -> None:
    call, _ = CALLS[name]
    module = from_json((DIRECTORY / f"{name}.json").read_bytes())
    assert verify(module) == []
    bits = adversarial_bits(call.shape, call.element_type, seed=11)
    found = simulate(module, {"x": bits})
    want = jax_mx.quantize_mx(bits.view(NUMPY[call.element_type]), call.dtype, axis=call.axis)
    for key, value in zip(("data", "scale"), want, strict=True):
        np.testing.assert_array_equal(found[key], np.asarray(value), err_msg=key)
