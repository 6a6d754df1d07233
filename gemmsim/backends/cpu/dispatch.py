"""Dispatches products of every kind to the functions of the CPU backend."""

from __future__ import annotations

from gemmsim.arithmetic import GemmSpec
from gemmsim.lowering.refusal import Refusal

from ..encoded_operand import Coded
from ..product import Product, Ran
from .block_scaled import count_coded_overflows, gemm_coded
from .gemm import count_overflows, gemm
from .implicit_im2col import gathered_gemm
from .lookup import count_lookup_overflows, lookup_gemm

__all__ = ["instruction", "multiply", "names_instruction"]

_NONE = Refusal("no processor has another chip's instruction")


def names_instruction(spec: GemmSpec) -> bool:
    """False: the CPU has no matrix instruction of a GPU; its kernels compute the models of all instructions.

    Example:
        >>> from gemmsim.backends import cpu
        >>> cpu.names_instruction(gs.GemmSpec.parse("e4m3 : hw(hopper, wgmma, e4m3)"))
        False
    """
    return False


def instruction(product: Product) -> Ran | Refusal:
    """Return the reason why there is no instruction, as ``names_instruction`` says."""
    return _NONE


def multiply(product: Product) -> Ran:
    """Write ``product`` to its ``out``, and return what ran.

    ``finish`` must be None, because ``finishes`` returns False. For an accumulator that looks products up, the operands
    are codes of its table.

    Raises:
        UnsupportedSpec, SpecError, SelectError, ValueError, MemoryError: as the function for products of this kind.
    """
    a, b, spec, out, seed = product.a, product.b, product.spec, product.out, product.seed
    if isinstance(a, Coded) or isinstance(b, Coded):
        if product.count:
            return count_coded_overflows(a, b, spec, out, seed)
        return gemm_coded(a, b, spec, out, seed, row=product.row)
    if product.windows is not None:
        return gathered_gemm(a, b, spec, out, product.windows, seed, product.c)
    if spec.accumulator.is_lookup:
        if product.count:
            return count_lookup_overflows(a, b, spec, out, seed)
        return lookup_gemm(a, b, spec, out, seed, product.row)
    if product.count:
        return count_overflows(a, b, spec, out, seed)
    return gemm(a, b, spec, out, seed, product.c, product.select, row=product.row)
