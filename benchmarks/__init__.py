"""Benchmarks: medians of interleaved runs, and ratios within one process. Never part of the tests."""
