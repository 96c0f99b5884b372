"""The README's Python runs as printed."""

import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_mx

README = (pathlib.Path(__file__).parent.parent / "README.md").read_text()


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_python_of_the_readme_runs(capsys: Any) -> None:
    names: dict[str, Any] = {
        "x": jax.random.normal(jax.random.key(0), (8, 64), jnp.bfloat16),
        "w": jax.random.normal(jax.random.key(1), (64, 32), jnp.bfloat16),
        "src": jax.random.normal(jax.random.key(2), (128, 16), jnp.bfloat16),
    }
    blocks = python_blocks()
    assert len(blocks) == 6
    for block in blocks:
        exec(block, names)
    assert names["layer"](names["x"], names["w"]).shape == (8, 32)
    for output, result in zip(names["outputs"].values(), jax_mx.quantize_mx(names["x"]), strict=True):
        np.testing.assert_array_equal(output, result)
    assert len(names["words"].words) == 64  # one instruction
    assert names["physical"].shape == (128, 4)
    assert names["y"].shape == names["z"].shape == (8, 32)
    assert capsys.readouterr().out.count("QuantizeMX") == 4  # two calls, printed in two forms
