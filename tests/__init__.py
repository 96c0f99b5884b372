"""Tests; `tests.reference` is the contract they hold everything to."""
