"""Expected diagnostics: a file says what must be reported, where, and nothing else may be."""

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
        Expectation(severity="error", text="c", comment_line=2, line=4),
        Expectation(severity="warning", text="b", comment_line=2, line=1),
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
