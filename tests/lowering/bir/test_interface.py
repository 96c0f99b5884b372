"""What `lowering.bir` offers to callers: one route from a module to words, functions by name, rules as objects."""

import importlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import jax_mx
import lowering
from lowering import bir
from tests.lowering.tools import mx_opt, stablehlo

CALL = bir.LegalizedCall((4, 32), "bfloat16", "float8_e4m3fn")
X = np.random.default_rng(1).standard_normal((4, 32)).astype(ml_dtypes.bfloat16)
PROGRAM = bir.lower_calls([CALL, CALL])
RULES = [jax_mx.EMAX, jax_mx.EMAX_ALT, jax_mx.NKI, jax_mx.OCP_FLOOR]


def test_from_a_module_to_words() -> None:
    module = lowering.read_module(stablehlo())
    lowering.run_passes(module, [lowering.LegalizeQuantizeMx()])
    (call,) = bir.legalized_calls(module)
    program = bir.lower_calls([call])
    assert program == bir.LowerToBir().lower(module) == lowering.LowerToBir().lower(module)
    x = np.random.default_rng(2).standard_normal((4, 64)).astype(ml_dtypes.bfloat16)
    found = bir.simulate(program, {call.operand: x})
    data, scale = jax_mx.quantize_mx(x)
    np.testing.assert_array_equal(found[call.data], np.asarray(data))
    np.testing.assert_array_equal(found[call.scale], np.asarray(scale))
    encoded = bir.encode_module(program)
    assert isinstance(encoded, bir.EncodedProgram)
    assert isinstance(bir.decode(encoded.words[:64]), bir.QuantizeMxWord)


@pytest.mark.parametrize("package", [lowering, bir])
def test_every_type_that_a_public_function_gives_or_takes_is_public(package: Any) -> None:
    """The names in the annotations of what the package exports are exported as well."""
    public = {n for n in vars(package) if not n.startswith("_")} | {n for n in vars(lowering) if not n.startswith("_")}
    for name, value in vars(package).items():
        if name.startswith("_") or not callable(value):
            continue
        for annotation in getattr(value, "__annotations__", {}).values():
            for found in _types(annotation, importlib.import_module(value.__module__)):
                if found.__module__.startswith("lowering"):
                    assert found.__name__ in public, (name, found)


def _types(annotation: Any, module: Any) -> list[type]:
    if isinstance(annotation, str):
        annotation = eval(annotation, vars(module))
    arguments = getattr(annotation, "__args__", ())
    inner = [t for a in arguments if not isinstance(a, str) for t in _types(a, module)]
    return inner + ([annotation] if isinstance(annotation, type) else [])


def test_a_function_may_be_given_by_name_or_itself() -> None:
    first, second = PROGRAM.functions
    by_name = bir.encode_module(PROGRAM, "sg0001")
    assert by_name == bir.encode_module(PROGRAM, second)
    assert len(by_name.words) == 64
    named, given = (bir.simulate(PROGRAM, {"x": X}, function=f) for f in ("sg0000", first))
    np.testing.assert_array_equal(named["data"], given["data"])
    assert bir.encode_module(bir.lower_calls([CALL])).words == by_name.words


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("main", "the module has no function main; it has sg0000, sg0001"),
        (None, "the module has the functions sg0000, sg0001; say which one"),
        (bir.Function("other", (), ()), "the function other is not one of the module's; it has sg0000, sg0001"),
        (3, "the module has no function 3; it has sg0000, sg0001"),
    ],
)
def test_other_functions_are_refused(function: Any, message: str) -> None:
    with pytest.raises(bir.EncodeError) as encoding:
        bir.encode_module(PROGRAM, function)
    with pytest.raises(bir.SimulationError) as simulating:
        bir.simulate(PROGRAM, {"x": X}, function=function)
    assert str(encoding.value) == str(simulating.value) == message


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_scale_rule_may_be_the_object_or_its_name(rule: jax_mx.ScaleRule) -> None:
    x = np.concatenate([X, [[np.nan, 0, 1e-40, 449.0] * 8]]).astype(ml_dtypes.bfloat16)
    call = bir.LegalizedCall((5, 32), "bfloat16", "float8_e4m3fn", scale_rule=rule)
    program = bir.lower_calls([call])
    assert program == bir.lower_calls([bir.LegalizedCall((5, 32), "bfloat16", "float8_e4m3fn", scale_rule=rule.name)])
    data, scale = jax_mx.quantize_mx(x, rule=rule)
    plain = bir.lower_calls([bir.LegalizedCall((5, 32), "bfloat16", "float8_e4m3fn")])
    for found in (bir.simulate(program, {"x": x}), bir.simulate(plain, {"x": x}, scale_rule=rule)):
        np.testing.assert_array_equal(found["data"], np.asarray(data))
        np.testing.assert_array_equal(found["scale"], np.asarray(scale))


def test_other_scale_rules_are_refused() -> None:
    own = jax_mx.ScaleRule("MINE", headroom_8bit=0, headroom_4bit=1, min_scale=0)
    false = jax_mx.ScaleRule("NKI", headroom_8bit=0, headroom_4bit=1, min_scale=0)
    program = bir.lower_calls([CALL])
    for rule, message in (
        (own, "the scale rule is MINE; wanted EMAX, EMAX_ALT, NKI, OCP_FLOOR or jax_mx's rule of that name"),
        (false, "the scale rule is NKI, with other numbers than the rule of that name; wanted EMAX"),
        (7, "the scale rule is 7; wanted EMAX"),
    ):
        wrong: Any = rule
        with pytest.raises(bir.BirLoweringError, match=message):
            bir.lower_calls([bir.LegalizedCall((4, 32), "bfloat16", "float8_e4m3fn", scale_rule=wrong)])
        with pytest.raises(bir.SimulationError, match=message):
            bir.simulate(program, {"x": X}, scale_rule=wrong)


def test_options_of_the_wrong_type_are_refused() -> None:
    wrong: Any = "1024"
    with pytest.raises(bir.BirLoweringError, match="sbuf_budget is '1024', wanted a whole number"):
        bir.lower_calls([CALL], bir.LowerOptions(sbuf_budget=wrong))
    with pytest.raises(bir.BirLoweringError, match="columns_per_tile is '1024', wanted a whole number"):
        bir.lower_calls([CALL], bir.LowerOptions(columns_per_tile=wrong))
    assert bir.lower_calls([CALL], bir.LowerOptions(target=lowering.Target.TRN3)) == bir.lower_calls([CALL])


def test_draw_function() -> None:
    picture = bir.draw_function(PROGRAM.functions[0], ".svg")
    assert b"<svg" in picture[:500]
    wrong: Any = "sg0000"
    for arguments, message in (
        ((wrong, ".svg"), "function is a str, wanted a Function, such as module.functions"),
        ((PROGRAM.functions[0], ".gif"), "the picture's suffix is .gif, wanted .svg or .png"),
    ):
        with pytest.raises(bir.BirError, match=message):
            bir.draw_function(*arguments)
    with pytest.raises(bir.BirError, match="limit is 0, wanted a whole number from 1"):
        bir.draw_function(PROGRAM.functions[0], ".svg", limit=0)


def test_draw_function_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError("No module named 'matplotlib'")

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(bir.BirError, match=r"pictures need matplotlib.*install jax-mx\[draw\]"):
        bir.draw_function(PROGRAM.functions[0], ".svg")


@pytest.mark.parametrize("passes", ["lower-to-bir", "legalize-quantize-mx,lower-to-bir"])
def test_a_module_without_calls_gives_a_warning(passes: str) -> None:
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    result = mx_opt("-", f"--passes={passes}", "--emit=bir-json", stdin=text.encode())
    assert result.status == 0
    assert bir.from_json(result.text).functions == ()
    assert result.stderr.startswith("[WARNING] [MX018] <stdin> has no QuantizeMX call, so the program is empty - ")
    other = mx_opt("-", "--passes=legalize-quantize-mx,lower-to-bir", "--emit=bir-json", stdin=stablehlo().encode())
    assert (other.status, other.stderr) == (0, "")
