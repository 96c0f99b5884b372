"""`compare_rules`: its numbers by hand, torchao's modes to the bit, the table, the picture and `mx-opt rules`."""

# ruff: noqa: E501 - a table reads best a row a line

import json
import math
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jax_mx
from jax_mx import plot
from jax_mx._formats import as_format
from jax_mx._other_rules import OTHER_RULES, OtherRule
from tests import reference
from tests.arrays import assert_same
from tests.lowering.tools import mx_opt

NAMES = ["EMAX", "EMAX_ALT", "NKI", "OCP_FLOOR", "torchao FLOOR", "torchao RCEIL", "torchao CEIL", "torchao EVEN"]
VECTORS = pathlib.Path(__file__).parent / "checkpoints" / "torchao_rules.npz"


@pytest.mark.parametrize("fmt", reference.FORMATS)
@pytest.mark.parametrize("rule", OTHER_RULES, ids=lambda rule: rule.name.split()[1])
def test_other_rules_are_torchaos_to_the_bit(rule: OtherRule, fmt: str) -> None:
    """510 blocks of every exponent, zero among them, with peaks just below and above where the modes differ."""
    mode = rule.name.split()[1]
    with np.load(VECTORS) as file:
        bits = file["bits"]
        codes, scale = file[f"{mode}/{fmt}/codes"], file[f"{mode}/{fmt}/scale"]
    elements, got_scale = rule.quantize(bits.view(ml_dtypes.bfloat16).astype(np.float64), as_format(fmt))
    assert_same(got_scale[:, 0].astype(np.uint8), scale.reshape(-1), "scales")
    got_codes = elements.astype(as_format(fmt).dtype).view(np.uint8)
    assert_same(got_codes, codes, "codes")


def test_the_modes_differ_on_those_blocks() -> None:
    with np.load(VECTORS) as file:
        scales = {mode: file[f"{mode}/float8_e4m3fn/scale"] for mode in ("FLOOR", "RCEIL", "CEIL", "EVEN")}
    for one in scales:
        for other in scales:
            assert one == other or not np.array_equal(scales[one], scales[other])


def rows(x: Any, fmt: str = "float8_e4m3fn", axis: int = -1) -> dict[str, jax_mx.RuleError]:
    return {row.rule: row for row in jax_mx.compare_rules(x, fmt, axis=axis).rows}


def test_numbers_by_hand() -> None:
    """One block of e4m3fn: 480 saturates to 448 without headroom; 1 and 0.001 survive or vanish by the scale."""
    x = np.zeros((1, 32), np.float32)
    x[0, :3] = [480.0, 1.0, 0.00098419189453125]  # the last is exact in bfloat16, between half a quantum and a quantum
    made = rows(x)
    assert list(made) == NAMES
    emax = made["EMAX"]  # scale 2**0: 480 -> 448, 1 -> 1, 0.00098 -> 2**-9, being more than half of it
    lost = 2**-9 - 0.00098419189453125
    assert emax.max_error == 32.0
    assert emax.saturated == 1 / 32 and emax.underflow == 0
    assert emax.snr_db == pytest.approx(10 * math.log10((x.astype(float) ** 2).sum() / (32.0**2 + lost**2)))
    alternative = made["EMAX_ALT"]  # scale 2**1: 480 -> 480, 0.00098 is below half a quantum of 2**-8
    assert alternative.max_error == pytest.approx(0.00098419189453125)
    assert alternative.saturated == 0 and alternative.underflow == 1 / 32
    assert made["OCP_FLOOR"].max_error == made["torchao FLOOR"].max_error == 32.0
    assert made["NKI"].max_error == made["torchao CEIL"].max_error == made["torchao RCEIL"].max_error
    assert made["torchao EVEN"].saturated == 1 / 32  # 480 is 1.875 * 256, which three mantissa bits hold
    x[0, 0] = 500.0  # 1.953 * 256 rounds up to 512 in three mantissa bits, so EVEN takes the larger scale
    assert rows(x)["torchao EVEN"].saturated == 0 and rows(x)["torchao FLOOR"].saturated == 1 / 32


def test_nothing_is_lost_on_representable_values() -> None:
    x = jnp.tile(jnp.array([1.0, -2.0, 0.5, 0.0], jnp.bfloat16), (4, 16))
    for row in rows(x, "float4_e2m1fn").values():
        assert (row.snr_db, row.max_error, row.saturated, row.underflow) == (math.inf, 0.0, 0.0, 0.0)
    assert jax_mx.compare_rules(x).as_dict()["rows"][0]["snr_db"] is None


@pytest.mark.parametrize("fmt", reference.FORMATS)
@pytest.mark.parametrize("axis", [0, 1])
def test_our_rules_are_measured_on_what_quantize_mx_gives(fmt: str, axis: int) -> None:
    x = jax.random.t(jax.random.key(0), 3.0, (96, 64)).astype(jnp.bfloat16)
    made = rows(x, fmt, axis)
    for rule in (jax_mx.EMAX, jax_mx.EMAX_ALT, jax_mx.NKI, jax_mx.OCP_FLOOR):
        back = np.float64(jax_mx.dequantize_mx(*jax_mx.quantize_mx(x, fmt, axis=axis, rule=rule), fmt, axis=axis))
        error = np.abs(back - np.float64(x))
        assert made[rule.name].max_error == error.max()
        assert made[rule.name].underflow == np.mean((back == 0) & (np.float64(x) != 0))
        ratio = (np.float64(x) ** 2).sum() / (error**2).sum()
        assert made[rule.name].snr_db == pytest.approx(10 * math.log10(ratio))


def test_partial_blocks_and_float32_and_blocks_with_nan() -> None:
    x = jax.random.normal(jax.random.key(1), (3, 36))
    assert rows(x) == rows(x.astype(jnp.bfloat16))
    damaged = x.at[0, 35].set(jnp.nan).at[1, 2].set(jnp.inf)
    comparison = jax_mx.compare_rules(damaged)
    assert comparison.skipped_blocks == 2
    assert "without 2 blocks that hold a NaN or Inf" in str(comparison)
    assert np.isfinite([row.snr_db for row in comparison.rows]).all()
    kept = jnp.zeros((3, 64)).at[:, :36].set(x).at[0, 32:].set(0).at[1, :32].set(0)
    for one, other in zip(comparison.rows, jax_mx.compare_rules(kept).rows, strict=True):
        assert one.snr_db == pytest.approx(other.snr_db) and one.max_error == other.max_error


def test_the_table_names_rules_and_who_uses_them() -> None:
    lines = str(jax_mx.compare_rules(jax.random.normal(jax.random.key(2), (8, 64)))).splitlines()
    assert lines[0] == "float8_e4m3fn[8, 64] along axis 1"
    assert lines[1].split() == ["rule", "SNR", "dB", "max", "error", "saturated", "underflow", "used", "by"]
    assert [line[:14].strip() for line in lines[2:]] == NAMES
    assert "Transformer Engine" in lines[7] and "NKI" in lines[4]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: jax_mx.compare_rules(jnp.ones((4, 30))), ValueError, "x: got length 30 along axis 1"),
        (lambda: jax_mx.compare_rules(jnp.ones((4, 32), int)), TypeError, "x: got dtype int32, want float32"),
        (lambda: jax_mx.compare_rules(jnp.full((1, 32), jnp.nan)), ValueError, "x: got a NaN or Inf in every one of the 1 blocks of 32, after rounding float32 to bfloat16, want a block of finite"),
        (lambda: jax_mx.compare_rules(jnp.full((2, 64), 3.4e38)), ValueError, "x: got a NaN or Inf in every one of the 4 blocks of 32, after rounding"),
        (lambda: jax_mx.compare_rules(jnp.full((1, 32), jnp.inf, jnp.float16)), ValueError, "x: got a NaN or Inf in every one of the 1 blocks of 32, want"),
        (lambda: jax_mx.compare_rules(jnp.ones((0, 32))), ValueError, "x: got shape (0, 32), want one or more elements"),
        (lambda: jax_mx.compare_rules(jnp.ones((4, 0))), ValueError, "x: got shape (4, 0), want one or more elements"),
        (lambda: jax.jit(jax_mx.compare_rules)(jnp.ones((4, 32))), TypeError, "x: got a traced array, want one with values"),
        (lambda: jax_mx.compare_rules(jnp.ones((4, 32)), "float8"), TypeError, "dtype: got 'float8'"),
        (lambda: jax_mx.compare_rules(jnp.ones((4, 32)), axis=2), ValueError, "axis: got 2"),
    ],
)  # fmt: skip
def test_errors(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(text)


def test_the_picture(tmp_path: pathlib.Path) -> None:
    comparison = jax_mx.compare_rules(jax.random.normal(jax.random.key(3), (8, 64)))
    plot.plot_rules(comparison, tmp_path / "rules.svg")
    drawn = (tmp_path / "rules.svg").read_text()
    assert all(f"<!-- {name} -->" in drawn for name in NAMES)
    plot.plot_rules(comparison, tmp_path / "rules.png")
    assert (tmp_path / "rules.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="foo"):
        plot.plot_rules(comparison, tmp_path / "rules.foo")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_the_command_reads_every_float(tmp_path: pathlib.Path, dtype: Any) -> None:
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    result = mx_opt("rules", tmp_path / "x.npy", "--dtype=float8_e5m2", "--axis=0")
    assert (result.status, result.stderr) == (0, "")
    want = x.astype(np.float32) if dtype == np.float64 else x
    assert result.text == f"{jax_mx.compare_rules(want, 'float8_e5m2', axis=0)}\n"


def test_the_command_as_json_and_as_a_picture(tmp_path: pathlib.Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32))
    made = json.loads(mx_opt("rules", tmp_path / "x.npy", "--form=json").text)
    assert [row["rule"] for row in made["rows"]] == NAMES and made["shape"] == [8, 64]
    result = mx_opt("rules", tmp_path / "x.npy", f"--plot={tmp_path / 'rules.png'}")
    assert result.text.endswith(f"wrote {tmp_path / 'rules.png'}\n")
    assert (tmp_path / "rules.png").stat().st_size > 10_000


def test_the_command_explains_itself(tmp_path: pathlib.Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 30), np.float32))
    np.savez(tmp_path / "x.npz", a=np.ones(3))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    np.save(tmp_path / "good.npy", np.ones((4, 32), np.float32))
    for arguments, text in (
        (["x.npy"], "x.npy: x: got length 30 along axis 1"),
        (["none.npy"], "cannot read"),
        (["x.npz"], "holds several arrays"),
        (["objects.npy"], "is no .npy file of numbers"),
        ([], "expected one FILE, got 0"),
        (["good.npy", "--dtype=float8"], "--dtype=float8"),
        (["good.npy", f"--plot={tmp_path}/none/x.png"], "cannot write"),
        (["good.npy", f"--plot={tmp_path}/x.foo"], "cannot draw"),
    ):
        files = [str(tmp_path / a) if a.endswith((".npy", ".npz")) else a for a in arguments]
        result = mx_opt("rules", *files)
        assert result.status == 2 and text in result.stderr and "Traceback" not in result.stderr
