"""The native CPU kernels: C++ behind two XLA FFI handlers, and `library`, which loads them.

`kernels.h` says what is computed and how work is split, `numerics.h` how one element is, `simd.h` what a vector is.
`quantize.cc` and `dequantize.cc` are the loops, compiled once per instruction set; `dispatch.h` chooses one of them and
`parallel.h` spreads it over threads; `handlers.cc` is what XLA calls.
"""
