"""The data tables, against the numbers of the formats and the core."""

import pytest

from lowering.bir.dtypes import DTYPES, dtype_named
from lowering.bir.geometry import CORE_V4
from lowering.bir.program import DVE, PE, EdgeKind

# ordinal, name, wire tag, bytes
ROWS = """
0 uint8 3 1
1 int8 2 1
2 float4_e2m1fn_x4 0x10 2
3 float8e3 0x0D 1
4 float8e4 0x0E 1
5 float8_e4m3fn 0x0E 1
6 float8_e8m0fnu 3 1
7 float8e5 0x0F 1
8 float8_e4m3fn_x4 0x0E 4
9 float8_e5m2_x4 0x0F 4
10 uint16 5 2
11 int16 4 2
12 bfloat16 6 2
13 float16 7 2
14 uint32 9 4
15 int32 8 4
16 float32 0x0A 4
17 float32r 0x0B 4
18 uint64 1 8
19 int64 0x0C 8
"""


@pytest.mark.parametrize("row", ROWS.split("\n")[1:-1])
def test_dtype(row: str) -> None:
    ordinal, name, tag, size = row.split()
    dtype = dtype_named(name)
    assert (dtype.ordinal, dtype.wire_tag, dtype.bytes) == (int(ordinal), int(tag, 0), int(size))
    assert DTYPES[int(ordinal)] is dtype


def test_the_x4_dtypes() -> None:
    assert [dtype.ordinal for dtype in DTYPES if dtype.is_x4] == [2, 8, 9]
    assert {dtype.elements for dtype in DTYPES if dtype.is_x4} == {4}
    assert len(DTYPES) == 20


def test_core_v4() -> None:
    assert CORE_V4.partitions == 128
    assert CORE_V4.partitions // CORE_V4.quadrant == 4
    assert CORE_V4.sbuf_usable == 262144 - 16392
    assert CORE_V4.psum_banks * CORE_V4.psum_bank_bytes == 16384


def test_engines_and_edges() -> None:
    assert (DVE.number, PE.number) == (5, 3)
    assert {kind.name: int(kind) for kind in EdgeKind} == {"ORDERED": 1, "ANTI": 2, "OUTPUT": 3, "FLOW": 4}
