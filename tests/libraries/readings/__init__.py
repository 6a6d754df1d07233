"""Kernels of matrix libraries read thread by thread, in numpy's float32 scalars and Python's integers.

Each function gives one element of a product as the kernel's threads compute it. Nothing here knows gemmsim: that both give
the same bits is what the tests ask. Sources: facebookexperimental/triton (bitequiv/cublas_match), mmaemu,
NaciCankaya/hardware_rounding_error_predictor, as published measurements; no code of theirs.
"""
