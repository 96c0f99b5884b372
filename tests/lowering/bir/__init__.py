"""Tests of the BIR layer."""
