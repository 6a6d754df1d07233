"""Dispatches products of every kind to the functions of the CUDA backend."""

from __future__ import annotations

from typing import Final

from ..encoded_operand import Coded
from ..product import Product, Ran
from .simt.encoded import count_coded_overflows, gemm_coded
from .simt.gemm import count_overflows, gemm
from .simt.implicit_im2col import gathered_gemm
from .simt.lookup import count_lookup_overflows, lookup_gemm

__all__ = ["ON_GPU", "multiply"]

#: Where this backend computes what it supports, in words.
ON_GPU: Final = "for tensors on an NVIDIA GPU; kernels are compiled when first used (gemmsim[cuda])"


def multiply(product: Product) -> Ran:
    """Write ``product`` to its ``out``, and return what ran. ``finish`` must be an epilogue for which ``finishes`` is
    true.

    For an accumulator that looks products up, the operands are codes of its table.

    Raises:
        UnsupportedSpec, SpecError, ValueError, CudaError: as the function for products of this kind.
    """
    a, b, spec, out, seed = product.a, product.b, product.spec, product.out, product.seed
    if isinstance(a, Coded) or isinstance(b, Coded):
        if product.count:
            return count_coded_overflows(a, b, spec, out, seed)
        return gemm_coded(a, b, spec, out, seed, product.finish, product.row)
    if product.windows is not None:
        return gathered_gemm(a, b, spec, out, product.windows, seed, product.c, product.finish)
    if spec.accumulator.is_lookup:
        if product.count:
            return count_lookup_overflows(a, b, spec, out, seed)
        return lookup_gemm(a, b, spec, out, seed, product.row)
    if product.count:
        return count_overflows(a, b, spec, out, seed)
    return gemm(a, b, spec, out, seed, product.c, product.select, product.finish, product.row)
