"""The protocol buffer editor: what it does not touch it returns byte for byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering import Format, read_module, write_module
from lowering.hlo_proto import BYTES, FIXED32, FIXED64, VARINT, Message, ModuleEdit, ProtoError
from tests.lowering.tools import FIXTURES, hlo

FIELDS = st.one_of(
    st.tuples(st.integers(1, 2**20), st.just(VARINT), st.integers(0, 2**64 - 1)),
    st.tuples(st.integers(1, 2**20), st.just(BYTES), st.binary(max_size=300)),
    st.tuples(st.integers(1, 2**20), st.just(FIXED32), st.binary(min_size=4, max_size=4)),
    st.tuples(st.integers(1, 2**20), st.just(FIXED64), st.binary(min_size=8, max_size=8)),
)


@given(st.lists(FIELDS))
def test_messages_round_trip(fields: list[tuple[int, int, int | bytes]]) -> None:
    assert Message.parse(Message(fields).serialize()) == Message(fields)


@given(st.binary(max_size=60))
def test_any_bytes_parse_or_are_refused(data: bytes) -> None:
    try:
        message = Message.parse(data)
    except ProtoError:
        return
    assert Message.parse(message.serialize()) == message


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"\x80", "truncated or overlong integer"),
        (b"\x08" + b"\xff" * 11, "truncated or overlong integer"),
        (b"\x0a\x05ab", "field 1 runs past the end"),
        (b"\x0d\x00", "field 1 runs past the end"),
        (b"\x0b", "wire type 3"),
    ],
)
def test_damage_is_named(data: bytes, cause: str) -> None:
    with pytest.raises(ProtoError, match=cause):
        Message.parse(data)


def test_accessors() -> None:
    message = Message()
    message.set(1, 5)
    message.set(1, 6)
    message.add(2, b"a")
    message.add(2, b"b")
    message.set_ints(3, [1, 300, 2**40])
    assert (message.get_int(1), message.get_bytes(2), message.all_bytes(2)) == (6, b"b", [b"a", b"b"])
    assert message.get_ints(3) == [1, 300, 2**40]
    assert (message.get_int(9), message.get_bytes(9), message.get_ints(9)) == (0, b"", [])
    message.remove(2)
    assert message.all_bytes(2) == []
    assert Message([(4, VARINT, 7), (4, VARINT, 8)]).get_ints(4) == [7, 8]


def test_a_module_that_is_not_edited_is_the_same_bytes() -> None:
    for text in (hlo(), (FIXTURES / "valid" / "conditional_cache.hlo").read_text()):
        proto = write_module(read_module(text), Format.HLO_PROTO)
        assert ModuleEdit(Message.parse(proto), ()).serialize() == proto
