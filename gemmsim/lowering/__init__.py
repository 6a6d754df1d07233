"""Lowering: translates a spec into the plain numbers that kernels read.

The CPU backend packs these numbers for its C library; the CUDA backend prints them into kernel texts. The modules are
imported by name. ``abi_constants`` has the dtypes, streams of random bits and enumerations of the kernels. ``casts``
lowers casts, and ``accumulators`` lowers accumulators. ``supported`` says which specs have a lowering. ``carriers``
proves in which arithmetic a kernel may compute. ``blocks`` and ``tensor_formats`` lower formats whose elements share a
scale. ``rowwise_ids`` and ``scaled_cast_ids`` number row operations and the value sets of scaled casts.
"""
