"""The package as a module: its version, and the parts that are imported when they are asked for."""

import pathlib
import subprocess
import sys
import tomllib

import pytest

import jax_mx

ROOT = pathlib.Path(__file__).parents[1]

LAZY = """
import sys
import jax_mx
assert not {"jax_mx.checkpoint", "jax_mx.equinox", "jax_mx.plot"} & set(sys.modules)
assert not {"equinox", "matplotlib", "safetensors"} & set(sys.modules)
assert {"checkpoint", "equinox", "plot", "quantize_mx"} <= set(dir(jax_mx))
assert "jax_mx.checkpoint" not in sys.modules, "dir imports nothing"
print(jax_mx.checkpoint.load.__name__, jax_mx.equinox.swap_linear.__name__, jax_mx.plot.plot_rules.__name__)
"""


def test_there_is_one_version() -> None:
    assert (ROOT / "CHANGELOG.md").read_text().splitlines()[2].startswith(f"## {jax_mx.__version__}")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "jax_mx.__version__"}


def test_parts_are_imported_when_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", LAZY], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("load swap_linear plot_rules\n", "")


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match=r"^module 'jax_mx' has no attribute 'quantise'$"):
        _ = jax_mx.quantise  # type: ignore[attr-defined]
    assert not hasattr(jax_mx, "_nothing")
