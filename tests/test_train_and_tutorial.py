"""The training example, shortened, and the tutorial, whole, as a reader runs them."""

import pathlib
import re
import subprocess
import sys

import numpy as np

from examples import train_mx

ROOT = pathlib.Path(__file__).parent.parent


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_task_is_what_it_says() -> None:
    """Three successors a pair, chances that sum to one, and an entropy that counting confirms."""
    settings = train_mx.Settings(vocabulary=4, length=2000, batch=8)
    chain = train_mx.MarkovChain(settings, seed=0)
    assert chain.next.shape == (16, 3) and all(len(set(row)) == 3 for row in chain.next.tolist())
    np.testing.assert_allclose(chain.chance.sum(axis=1), 1)
    tokens = next(chain.batches(seed=1))
    pair = tokens[:, :-2] * 4 + tokens[:, 1:-1]
    for p in range(16):
        counts = np.bincount(tokens[:, 2:][pair == p], minlength=4)
        assert set(np.flatnonzero(counts)) <= set(chain.next[p].tolist())
        if counts.sum() > 500:
            np.testing.assert_allclose(counts[chain.next[p]] / counts.sum(), chain.chance[p], atol=0.08)
    weights = np.bincount(pair.ravel(), minlength=16) / pair.size
    entropy = -(weights[:, None] * chain.chance * np.log(chain.chance)).sum()
    assert abs(chain.entropy(tokens) - entropy) < 0.02


def test_a_short_training_run_learns_in_both_formats(tmp_path: pathlib.Path) -> None:
    settings = train_mx.Settings(vocabulary=4, successors=2, width=64, layers=1, length=24, batch=16, steps=50)
    runs, best = train_mx.compare(settings)
    for trained in runs:
        assert trained.curve[0] > 1.2
        assert trained.final < trained.curve[0] - 0.4
        assert trained.final > best - 0.02
    assert not np.array_equal(runs[0].curve, runs[1].curve)
    assert abs(runs[1].final - runs[0].final) < 0.1
    train_mx.draw(runs, best, tmp_path / "out" / "curve.png")
    assert (tmp_path / "out" / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_bad_flags_of_the_training_example() -> None:
    done = run("examples/train_mx.py", "--steps=3")
    assert done.returncode != 0 and "--steps=3" in done.stderr and "Traceback" not in done.stderr


def test_tutorial() -> None:
    done = run("examples/tutorial.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert "x bfloat16(4, 64) -> data uint32(4, 16), scale uint8(4, 2)" in done.stdout
    assert (
        "MXArray(float8_e4m3fn[64, 32], axis=0, rule=EMAX, dtype=bfloat16) - 2112 bytes instead of 4096" in done.stdout
    )
    assert done.stdout.count("stablehlo.custom_call @QuantizeMX(") == 2
    assert done.stdout.count("stablehlo.custom_call @__op$block_scaled_dot(") == 1
    assert done.stdout.count('custom_call_target="QuantizeMX_bf16_e4m3fn"') == 2
    assert done.stdout.count('custom_call_target="S') == 1
    assert 2 < float(re.findall(r"relative error of the layer in MXFP8: ([\d.]+)%", done.stdout)[0]) < 8
    assert float(re.findall(r"cosine between the gradients of the weights: ([\d.]+)", done.stdout)[0]) > 0.98
    assert "the legalized module computes the layer's bits: True" in done.stdout
