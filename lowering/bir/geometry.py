"""The memories of a NeuronCore as data: sizes, quadrants and addresses.

SBUF and PSUM are both 128 partitions wide. SBUF is addressed as partition and byte; PSUM as partition, bank and
byte. On the wire both become one flat 32-bit address.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CORE_V4", "Geometry"]


@dataclass(frozen=True)
class Geometry:
    """Sizes of one core generation.

    Attributes:
        arch: Its name in BIR JSON.
        partitions: Rows of SBUF and of PSUM.
        quadrant: Partitions of one quadrant.
        sbuf_bytes: Bytes of SBUF in one partition.
        sbuf_reserved: Bytes at the top of each partition that programs may not use.
        psum_banks: Banks of PSUM.
        psum_bank_bytes: Bytes of one bank in one partition.
        sbuf_partition_shift: log2 of the distance of two partitions in the flat SBUF address.
        psum_base: First flat address of PSUM.
        psum_partition_shift: log2 of the distance of two partitions in the flat PSUM address.
        psum_bank_shift: log2 of the distance of two banks in the flat PSUM address.
    """

    arch: str
    partitions: int
    quadrant: int
    sbuf_bytes: int
    sbuf_reserved: int
    psum_banks: int
    psum_bank_bytes: int
    sbuf_partition_shift: int
    psum_base: int
    psum_partition_shift: int
    psum_bank_shift: int

    @property
    def sbuf_usable(self) -> int:
        """Bytes of SBUF in one partition that a program may use."""
        return self.sbuf_bytes - self.sbuf_reserved

    def sbuf_address(self, partition: int, byte: int) -> int:
        """Flat address of `byte` of `partition` in SBUF."""
        return (partition << self.sbuf_partition_shift) + byte

    def psum_address(self, partition: int, bank: int, offset: int) -> int:
        """Flat address of `offset` in `bank` of `partition` in PSUM."""
        return self.psum_base + (partition << self.psum_partition_shift) + (bank << self.psum_bank_shift) + offset


CORE_V4 = Geometry(
    arch="core_v4",
    partitions=128,
    quadrant=32,
    sbuf_bytes=256 * 1024,
    sbuf_reserved=0x4008,
    psum_banks=8,
    psum_bank_bytes=2 * 1024,
    sbuf_partition_shift=18,
    psum_base=0x2000000,
    psum_partition_shift=15,
    psum_bank_shift=11,
)
