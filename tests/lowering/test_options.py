"""Options and arguments of a few words: their texts will do, and what they cannot be is a ValueError that says so."""

from typing import Any

import numpy as np
import pytest

from lowering import (
    Format,
    LegalizeQuantizeMx,
    LegalizeScaledMatmul,
    LoweringError,
    Target,
    inspect_module,
    print_hlo_proto,
    read_module,
    run_passes,
    write_module,
)
from lowering.bir.lower_to_bir import LowerToBir
from lowering.explaining import explain_module
from lowering.options import OptionError
from tests.lowering.tools import mx_opt, stablehlo


@pytest.mark.parametrize("fmt", list(Format))
def test_a_format_may_be_text(fmt: Format) -> None:
    by_text, by_member = (write_module(read_module(stablehlo()), f) for f in (str(fmt), fmt))
    if fmt is Format.HLO_PROTO:  # jaxlib numbers every proto anew
        assert print_hlo_proto(by_text) == print_hlo_proto(by_member)
    else:
        assert by_text == by_member


@pytest.mark.parametrize("fmt", ["hlo_text", "mlir", "HLO", "", None, 0, Target.TRN3, ["hlo"]])
def test_other_formats_are_refused(fmt: Any) -> None:
    with pytest.raises(ValueError, match=r"fmt is .* give one of 'hlo', 'hlo-proto', 'stablehlo', 'bytecode'"):
        write_module(read_module(stablehlo()), fmt)


def test_a_target_may_be_text() -> None:
    module = read_module(stablehlo())
    for target in Target:
        assert inspect_module(module, target=str(target)) == inspect_module(module, target=target)
        assert explain_module(module, target=str(target)) == explain_module(module, target=target)
        for cls in (LegalizeQuantizeMx, LowerToBir):
            made: Any = cls(target=str(target))  # type: ignore[arg-type]
            assert made == cls(target=target)
            assert made.target is target
    assert inspect_module(module)[0].verdict == "legal"
    assert "NCC_EVRF051" in inspect_module(module, target="trn2")[0].verdict
    (warnings, _) = run_passes(module, [LegalizeQuantizeMx(target="trn3")])  # type: ignore[arg-type]
    assert warnings == []


@pytest.mark.parametrize("target", ["trn4", "core_v4", "TRN3", "", None, 3, Format.HLO_TEXT])
def test_other_targets_are_refused(target: Any) -> None:
    module = read_module(stablehlo())
    for use in (
        lambda: LegalizeQuantizeMx(target=target),
        lambda: LowerToBir(target=target),
        lambda: inspect_module(module, target=target, allow_fp4=False),
        lambda: explain_module(module, target=target, allow_fp4=False),
    ):
        with pytest.raises(ValueError, match=r"target is .* - give one of 'trn2', 'trn3'"):
            use()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sbuf_budget": -1}, "sbuf_budget is -1 - give a whole number from 1 to 245752"),
        ({"sbuf_budget": 0}, "sbuf_budget is 0 - give"),
        ({"sbuf_budget": 245753}, "sbuf_budget is 245753 - give"),
        ({"sbuf_budget": "1024"}, "sbuf_budget is '1024' - give a whole number"),
        ({"sbuf_budget": 1024.0}, "sbuf_budget is 1024.0 - give"),
        ({"sbuf_budget": True}, "sbuf_budget is True - give"),
        ({"sbuf_budget": None}, "sbuf_budget is None - give"),
        ({"tile_columns": -4}, "tile_columns is -4 - give a whole number from 0 to 16383"),
        ({"tile_columns": 16384}, "tile_columns is 16384 - give"),
        ({"tile_columns": None}, "tile_columns is None - give"),
        ({"allow_fp4": "no"}, "allow_fp4 is 'no' - give True or False"),
        ({"pack_scales": 0}, "pack_scales is 0 - give True or False"),
    ],
)
def test_options_of_lower_to_bir_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        LowerToBir(**options)
    assert message in str(caught.value)
    assert isinstance(caught.value, OptionError)
    assert caught.value.diagnostics[0].code == "MX017"


def test_good_options_pass() -> None:
    made: Any = LowerToBir(sbuf_budget=np.int64(4096), tile_columns=8)  # type: ignore[arg-type]
    assert (made.sbuf_budget, type(made.sbuf_budget), made.tile_columns) == (4096, int, 8)
    with pytest.raises(ValueError, match="validate is 'off' - give True or False"):
        LegalizeScaledMatmul(validate="off")  # type: ignore[arg-type]


@pytest.mark.parametrize("flag", ["--sbuf-budget=-1", "--tile-columns=-1", "--tile-columns=99999"])
def test_the_command_line_names_the_flag(flag: str) -> None:
    passes = "--passes=legalize-quantize-mx,lower-to-bir"
    result = mx_opt("-", passes, "--emit=bir-json", flag, stdin=stablehlo().encode())
    assert (result.status, result.stdout) == (2, b"")
    assert result.stderr.startswith(f"mx-opt: flag {flag}: ")


def test_text_that_is_no_proto_is_refused() -> None:
    proto = write_module(read_module(stablehlo()), Format.HLO_PROTO)
    assert print_hlo_proto(proto) == write_module(read_module(stablehlo()), "hlo").decode()
    with pytest.raises(LoweringError, match=r"MX001.* proto is no HloModuleProto"):
        print_hlo_proto(b"HloModule m")
