"""Expected diagnostics: a file says what must be reported, where, and nothing else may be."""

import pytest

from lowering.expected import Expectation, expectations
from tests.lowering.tools import hlo, mx_opt, stablehlo

FLAGS = ("--passes=legalize-quantize-mx", "--verify-diagnostics")
CODE = "{{[NCC_EVRF041]}}"


def with_comment(text: str, comment: str, before: str) -> str:
    """Puts a comment line before the line that contains `before`."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if before in line)
    return "\n".join([*lines[:at], f"  // {comment}", *lines[at:], ""])


def test_expectations_are_read_from_comments() -> None:
    text = "// expected-error {{a}}\nx // expected-warning@-1 {{b}} expected-error@+2 {{c}}\nexpected-error {{no}}\n"
    assert expectations(text) == [
        Expectation(severity="error", text="a", comment_line=1, line=None),
        Expectation(severity="warning", text="b", comment_line=2, line=1),
        Expectation(severity="error", text="c", comment_line=2, line=4),
    ]


def test_line_is_checked_in_stablehlo_and_in_hlo() -> None:
    for text, anchor in ((stablehlo(operand="4x64xf32"), "custom_call"), (hlo(operand="f32[4,64]"), "custom-call")):
        right = with_comment(text, f"expected-error@+1 {CODE}", anchor)
        assert mx_opt("-", *FLAGS, stdin=right.encode()).status == 0
        anywhere = with_comment(text, f"expected-error {CODE}", anchor)
        assert mx_opt("-", *FLAGS, stdin=anywhere.encode()).status == 0
        wrong = mx_opt("-", *FLAGS, stdin=with_comment(text, f"expected-error@+2 {CODE}", anchor).encode())
        assert wrong.status == 1
        assert "no error with '[NCC_EVRF041]' came" in wrong.stderr
        assert "unexpected error: [ERROR] [NCC_EVRF041]" in wrong.stderr


def test_missing_and_unexpected_diagnostics_fail() -> None:
    missing = mx_opt("-", *FLAGS, stdin=f"// expected-error {CODE}\n{stablehlo()}".encode())
    assert missing.status == 1
    assert missing.stderr.startswith("[ERROR] [MX008] <stdin>:1: no error with '[NCC_EVRF041]' came")
    unexpected = mx_opt("-", *FLAGS, stdin=stablehlo(operand="4x64xf32").encode())
    assert unexpected.status == 1
    assert "unexpected error: [ERROR] [NCC_EVRF041]" in unexpected.stderr
    twice = mx_opt("-", *FLAGS, stdin=f"// expected-error {CODE}\n// expected-error {CODE}\n{hlo('[]')}".encode())
    assert twice.status == 1


def test_unreadable_modules_and_warnings_can_be_expected() -> None:
    assert mx_opt("-", *FLAGS, stdin=b"// expected-error {{[MX001]}}\nmodule {").status == 0
    warned = "// expected-warning {{unknown keys: x}}\n" + stablehlo('{"x":1,"dim":1,"dtype":"float8_e5m2"}')
    assert mx_opt("-", *FLAGS, stdin=warned.encode()).status == 0


def test_an_expectation_that_names_a_line_chooses_first() -> None:
    one = stablehlo(operand="4x64xf32")
    call = next(line for line in one.splitlines() if "custom_call" in line)
    first, second = call.replace("%0", "%1"), call
    text = one.replace(call, f"// expected-error {CODE}\n// expected-error@+1 {CODE}\n{first}\n{second}")
    assert mx_opt("-", *FLAGS, stdin=text.encode()).status == 0
    longer = CODE.replace("}}", " the operand's}}")
    same = one.replace(call, f"// expected-error {CODE}\n// expected-error {longer}\n{first}\n{second}")
    assert mx_opt("-", *FLAGS, stdin=same.encode()).status == 0


@pytest.mark.parametrize(
    ("comment", "problem"),
    [
        ("expected-error@+1 {{EVRF038", "the text of 'expected-error' is not between {{ and }}"),
        ("expected-error@+1 EVRF038", "the text of 'expected-error' is not between {{ and }}"),
        ("expected-note {{EVRF038}}", "'expected-note' is no expectation"),
        ("expected-errors@+1 {{EVRF038}}", "'expected-errors' is no expectation"),
        ("expected-error@1 {{EVRF038}}", "'@1' is no place for 'expected-error'"),
        ("expected-warning here {{EVRF038}}", "'here' is no place for 'expected-warning'"),
    ],
)
def test_a_comment_that_is_almost_an_expectation_fails(comment: str, problem: str) -> None:
    result = mx_opt("-", *FLAGS, stdin=f"// {comment}\n{stablehlo()}".encode())
    assert result.status == 1
    assert result.stderr.startswith(f"[ERROR] [MX008] <stdin>:1: {problem} - ")
    assert len(result.stderr.splitlines()) == 1


def test_comments_about_expectations_are_none() -> None:
    text = f"// an expected-error comment is missing here; expected-notes are not\n{stablehlo()}"
    assert mx_opt("-", *FLAGS, stdin=text.encode()).status == 0
