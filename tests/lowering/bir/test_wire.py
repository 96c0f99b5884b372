"""Instruction words: golden bytes worked out by hand from the field table, round trips, and what has no encoding."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.bir import EncodeError, LegalizedCall, LowerOptions, lower_calls
from lowering.bir.access import locations_of
from lowering.bir.program import Module
from lowering.bir.wire import QuantizeMxWord, decode, encode, encode_module, word_of

from .programs import dtype, module_of, pattern, quantize_module, sbuf, with_instruction, with_location, with_operand

# bf16 to e4m3fn, 64 partitions from partition 0, 4 columns (16 elements, 4 containers, 4 scales), scale pack offset 8.
# Source at byte 0x40, data at 0x100, scale at 0x200 of every partition.
PLAIN_HEX = (
    "e3 10 00 00"  # 00 opcode, 0x10 dwords, saturation on
    "00 00 00 00 00 00 00 00"  # 04 no synchronisation
    "00 00 00 00"  # 0c
    "40 00 00 00"  # 10 source address: (0 << 18) + 0x40
    "01 00 01 00 01 00"  # 14 steps: 1, and 1 for the two unused dims
    "10 00 01 00 01 00"  # 1a nums: 16 elements, and 1 for the two unused dims
    "00 40 06 0e"  # 20 unused, 64 partitions, bf16, e4m3fn
    "00 00 00 00 00 00 00 00 00 00 00 00"  # 24
    "00 01 00 00"  # 30 data address: (0 << 18) + 0x100
    "00 02 00 00"  # 34 scale address: (8 << 18 = 0x200000) & 0xff800000 = 0, + 0x200
    "10 00 01 08"  # 38 4 containers * 4 = 16 elements, ascending, scale from partition 8 of its quadrant
    "00 00 00 00"  # 3c
)

# f16 to e5m2, 32 partitions from partition 96, saturation disabled, a source of three dims and descending data.
# Source location at byte 0x10, from element 16: 0x10 + 16 * 2 = 0x30. Pairs [32, 2], [-8, 3], [1, 4]: 24 elements.
# Data location at byte 0x1000, from container 5 down: 0x1000 + 5 * 4 = 0x1014. Scale at byte 0x1234, partition 100.
TURNED_HEX = (
    "e3 11 00 00"  # 00 opcode, 0x10 dwords with bit 0: saturation disabled
    "00 00 00 00 00 00 00 00"  # 04
    "00 00 00 00"  # 0c
    "30 00 80 01"  # 10 source address: (96 << 18 = 0x01800000) + 0x30
    "01 00 f8 ff 20 00"  # 14 steps innermost first: 1, -8 = 0xfff8, 32
    "04 00 03 00 02 00"  # 1a nums innermost first: 4, 3, 2
    "00 20 07 0f"  # 20 unused, 32 partitions, f16, e5m2
    "00 00 00 00 00 00 00 00 00 00 00 00"  # 24
    "14 10 80 01"  # 30 data address: 0x01800000 + 0x1014
    "34 12 80 01"  # 34 scale address: (100 << 18 = 0x01900000) & 0xff800000 = 0x01800000, + 0x1234
    "18 00 ff 04"  # 38 6 containers * 4 = 24 elements, descending, scale from 100 % 32 = 4
    "00 00 00 00"  # 3c
)

# bf16 to fp4, 128 partitions, the widest tile the counts allow: 16383 columns, 65532 = 0xfffc elements.
# Source at byte 0, data after 16383 * 8 = 0x1fff8 bytes, scale after 16383 * 2 more: 0x1fff8 + 0x7ffe = 0x27ff6.
WIDE_HEX = (
    "e3 10 00 00"
    "00 00 00 00 00 00 00 00"
    "00 00 00 00"
    "00 00 00 00"  # 10 source address
    "01 00 01 00 01 00"  # 14 steps
    "fc ff 01 00 01 00"  # 1a nums: 0xfffc elements
    "00 80 06 10"  # 20 unused, 128 partitions, bf16, e2m1fn
    "00 00 00 00 00 00 00 00 00 00 00 00"
    "f8 ff 01 00"  # 30 data address 0x1fff8
    "f6 7f 02 00"  # 34 scale address: pack offset 12 is not in it
    "fc ff 01 0c"  # 38 0xfffc elements, ascending, scale from partition 12
    "00 00 00 00"
)


def tile(
    partitions: int,
    base: int,
    source: tuple[str, int, int, tuple[tuple[int, int], ...]],
    data: tuple[str, int, int, tuple[tuple[int, int], ...]],
    scale: tuple[int, int, int, int],
) -> Module:
    """A QuantizeMx of locations that start at partition `base`.

    Args:
        partitions: Partitions of the source.
        base: First partition of the three locations.
        source: Dtype, byte address, offset and free pairs.
        data: The same.
        scale: Byte address, start partition above `base`, partitions and columns.
    """
    height = 128 - base
    source_units, data_units = 66000, 17000
    allocations = (
        sbuf("src", source[0], source_units, source[1], height),
        sbuf("data", data[0], data_units, data[1], height),
        sbuf("scale", "uint8", scale[3], scale[0], height),
    )
    module = module_of(
        allocations,
        (
            dataclasses.replace(
                next(quantize_module().functions[0].instructions()),
                ins=(pattern("src", source[0], ((source_units, partitions), *source[3]), source[2]),),
                outs=(
                    pattern("data", data[0], ((data_units, partitions), *data[3]), data[2]),
                    pattern("scale", "uint8", ((scale[3], scale[2]), (1, scale[3])), scale[1] * scale[3]),
                ),
            ),
        ),
    )
    for name in ("src", "data", "scale"):
        module = with_location(module, name, base=base)
    return module


PLAIN = tile(64, 0, ("bfloat16", 0x40, 0, ((1, 16),)), ("float8_e4m3fn_x4", 0x100, 0, ((1, 4),)), (0x200, 8, 56, 4))
TURNED = tile(
    32,
    96,
    ("float16", 0x10, 16, ((32, 2), (-8, 3), (1, 4))),
    ("float8_e5m2_x4", 0x1000, 5, ((-1, 6),)),
    (0x1234, 4, 4, 6),
)
WIDE = tile(
    128,
    0,
    ("bfloat16", 0, 0, ((1, 65532),)),
    ("float4_e2m1fn_x4", 0x1FFF8, 0, ((1, 16383),)),
    (0x27FF6, 12, 116, 16383),
)


def word(module: Module, **options: Any) -> QuantizeMxWord:
    function = module.functions[0]
    return word_of(next(function.instructions()), locations_of(function), **options)


@pytest.mark.parametrize(
    ("module", "text", "saturate"), [(PLAIN, PLAIN_HEX, True), (TURNED, TURNED_HEX, False), (WIDE, WIDE_HEX, True)]
)
def test_golden_words(module: Module, text: str, saturate: bool) -> None:
    assert encode(word(module, saturate=saturate)).hex(" ") == bytes.fromhex(text).hex(" ")


@pytest.mark.parametrize("text", [PLAIN_HEX, TURNED_HEX, WIDE_HEX])
def test_golden_words_read_back(text: str) -> None:
    data = bytes.fromhex(text)
    assert len(data) == 64
    assert encode(decode(data)) == data


def test_decoded_fields() -> None:
    assert decode(bytes.fromhex(TURNED_HEX)) == QuantizeMxWord(
        source_address=0x01800030,
        source_steps=(1, -8, 32),
        source_nums=(4, 3, 2),
        partitions=32,
        source_tag=7,
        data_tag=0x0F,
        data_address=0x01801014,
        scale_address=0x01801234,
        data_elements=24,
        data_step_sign=0xFF,
        scale_start=4,
        saturation_disabled=True,
    )


@given(
    st.builds(
        QuantizeMxWord,
        source_address=st.integers(0, (1 << 30) - 1).map(lambda word: word * 4),
        source_steps=st.tuples(*[st.integers(-(1 << 15), (1 << 15) - 1)] * 3),
        source_nums=st.tuples(*[st.integers(1, 65535)] * 3),
        partitions=st.sampled_from([32, 64, 96, 128]),
        source_tag=st.sampled_from([6, 7]),
        data_tag=st.sampled_from([0x0E, 0x0F, 0x10]),
        data_address=st.integers(0, (1 << 30) - 1).map(lambda word: word * 4),
        scale_address=st.integers(0, (1 << 32) - 1),
        data_elements=st.integers(1, 65535),
        data_step_sign=st.sampled_from([0x01, 0xFF]),
        scale_start=st.sampled_from([0, 4, 8, 12]),
        saturation_disabled=st.booleans(),
        wait_mode=st.integers(0, 255),
        wait_semaphore=st.integers(0, 255),
        update_mode=st.integers(0, 255),
        update_semaphore=st.integers(0, 255),
        sync_value=st.integers(0, (1 << 32) - 1),
    )
)
def test_every_word_reads_back_to_its_fields(fields: QuantizeMxWord) -> None:
    assert decode(encode(fields)) == fields


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0x00, 0x96, "the header is 0x96 0x10, wanted 0xe3 0x10 or 0x11"),
        (0x01, 0x12, "the header is 0xe3 0x12, wanted 0xe3 0x10 or 0x11"),
        (0x02, 1, "byte 0x02 is 0x01, wanted 0: it belongs to no field"),
        (0x20, 9, "byte 0x20 is 0x09, wanted 0: it belongs to no field"),
        (0x3C, 1, "byte 0x3c is 0x01, wanted 0: it belongs to no field"),
        (0x1C, 0, "source_nums is (16, 0, 1), wanted no 0"),
        (0x21, 48, "partitions is 48, wanted 32, 64, 96 or 128"),
        (0x22, 0x0A, "source_tag is 10, wanted 6 (bf16) or 7 (f16)"),
        (0x23, 0x09, "data_tag is 9, wanted 0x0e (e4m3fn), 0x0f (e5m2) or 0x10 (e2m1fn)"),
        (0x10, 0x42, "source_address is 66, wanted a multiple of 4"),
        (0x30, 0x02, "data_address is 258, wanted a multiple of the container's bytes"),
        (0x38, 0, "data_elements is 0, wanted at least 1"),
        (0x3A, 2, "data_step_sign is 2, wanted 0x01 or 0xff"),
        (0x3B, 5, "scale_start is 5, wanted 0, 4, 8 or 12"),
    ],
)
def test_words_that_are_no_quantize(offset: int, value: int, message: str) -> None:
    data = bytearray(bytes.fromhex(PLAIN_HEX))
    data[offset] = value
    with pytest.raises(EncodeError) as caught:
        decode(bytes(data))
    assert str(caught.value) == message


def test_a_word_has_64_bytes() -> None:
    with pytest.raises(EncodeError, match="a word has 63 bytes, wanted 64"):
        decode(bytes(63))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source_steps": (1, 40000, 1)}, "source_steps is (1, 40000, 1): "),
        ({"source_nums": (65536, 1, 1)}, "source_nums is (65536, 1, 1): "),
        ({"data_elements": 65536}, "data_elements is 65536: "),
        ({"scale_address": 1 << 32}, "scale_address is 4294967296: "),
    ],
)
def test_fields_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(dataclasses.replace(decode(bytes.fromhex(PLAIN_HEX)), **changes))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (with_instruction(PLAIN, opcode="Memset"), "QuantizeMX-0 is no QuantizeMx of one source, data and scale"),
        (with_location(PLAIN, "src", type="PSUM"), "QuantizeMX-0: src is not a location in SBUF"),
        (
            with_operand(PLAIN, "outs", 0, dtype=dtype("uint32")),
            "QuantizeMX-0: data is uint32, wanted an x4 dtype: one container holds four elements",
        ),
        (
            with_operand(PLAIN, "ins", 0, dtype=dtype("uint16")),
            "QuantizeMX-0: the source is uint16, wanted bfloat16 or float16",
        ),
        (
            with_operand(PLAIN, "ins", 0, ap=((66000, 64), (64, 2), (32, 2), (16, 2), (4, 2), (1, 4))),
            "QuantizeMX-0: the source has 5 free dims of num above 1; the word holds 3",
        ),
        (
            with_operand(PLAIN, "outs", 0, ap=((17000, 64), (2, 4))),
            "QuantizeMX-0: data has free pairs [[2, 4]], wanted one of step 1 or -1",
        ),
        (
            with_operand(PLAIN, "outs", 1, ap=((4, 56), (-1, 4)), offset=35),
            "QuantizeMX-0: scale has step -1, wanted 1: the word holds a step sign for data only",
        ),
        (with_operand(PLAIN, "ins", 0, offset=66000 * 128), "QuantizeMX-0: partition 191 is outside SB location src"),
    ],
)
def test_instructions_without_an_encoding(module: Module, message: str) -> None:
    with pytest.raises(EncodeError) as caught:
        word(module)
    assert str(caught.value).startswith(message)


def test_dims_of_num_1_are_dropped() -> None:
    spread = with_operand(PLAIN, "ins", 0, ap=((66000, 64), (7, 1), (16, 1), (9, 1), (1, 16)))
    assert word(spread) == word(PLAIN)


def test_the_words_of_an_engine() -> None:
    """Two padded tiles: two words; the two Memsets run on the same engine and are named as left out."""
    module = lower_calls([LegalizedCall((4, 36), "bfloat16", "float8_e4m3fn")], LowerOptions(columns_per_tile=2))
    program = encode_module(module, module.functions[0])
    assert program.names == ("QuantizeMX-0", "QuantizeMX-1")
    assert program.left_out == ("Memset-0", "Memset-1")
    first, second = (decode(program.words[start : start + 64]) for start in (0, 64))
    # Buffers of 2 columns: src 16 bytes each at 0 and 16, data 8 each at 32 and 40, one scale buffer at 48.
    assert (first.source_address, first.data_address, first.scale_address, first.scale_start) == (0, 32, 48, 0)
    assert (second.source_address, second.data_address, second.scale_address, second.scale_start) == (16, 40, 48, 4)
