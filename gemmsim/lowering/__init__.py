"""What a spec means to a kernel: plain values that the CPU backend packs for its library and the CUDA backend prints.

Modules are imported by their names: ``numbers`` (dtypes, sites of random bits, enumerations of the kernels), ``casts``,
``accumulators``, ``supported`` (which specs have one), ``carriers`` (in what arithmetic a kernel may compute),
``blocks`` and ``tensor_formats`` (formats of several numbers), ``rows``, ``scaled``.
"""
