"""Modules with MX calls, made from JAX programs, and what they become."""
