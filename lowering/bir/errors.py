"""The errors of the BIR layer; each message says where, what was found and what is wanted."""

from __future__ import annotations

__all__ = ["BirError", "BirFormatError", "BirLoweringError", "EncodeError", "SimulationError", "VerificationError"]


class BirError(ValueError):
    """Base of every error this package raises on bad input."""


class BirFormatError(BirError):
    """A BIR JSON text is malformed; the message starts with the JSON path."""


class BirLoweringError(BirError):
    """A call cannot be lowered as asked (shape, dtype, budget or target)."""


class SimulationError(BirError):
    """A program did something the machine may not do; names the instruction and the address."""


class EncodeError(BirError):
    """An instruction or a word has no 64-byte encoding."""


class VerificationError(BirError):
    """A program breaks verifier rules; the message lists every violation."""
