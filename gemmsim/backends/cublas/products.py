"""Products of native types as the order of routes asks for them."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim.lowering.refusal import Refusal

from ..product import Product, Ran
from . import coded, run
from .matching import native_type
from .types import NativeType

__all__ = ["multiply", "refuses"]


def _type_of(product: Product, fast_mode: str | None) -> NativeType | Refusal:
    """The type that the spec names, of operands as they were before their casts."""
    a, b = product.a, product.b
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return native_type(product.named, a.dtype, b.dtype, fast_mode)
    return native_type(product.spec, torch.float32, torch.float32, fast_mode)


def refuses(product: Product, fast_mode: str | None) -> Refusal | None:
    """Why no library computes ``product``, or ``None``."""
    found, a, b = _type_of(product, fast_mode), product.a, product.b
    if not isinstance(found, NativeType):
        return found
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return run.refuses(found, a, b, product.out)
    return coded.refuses(found, a, b, product.out.shape)


def multiply(product: Product, fast_mode: str | None) -> Ran:
    """Write ``product`` to its ``out``. Ask ``refuses`` first.

    Raises:
        CublasError: if cuBLAS refuses the call.
    """
    native, a, b = _type_of(product, fast_mode), product.a, product.b
    assert isinstance(native, NativeType)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return run.gemm(a, b, product.spec, product.out, product.seed, native)
    return coded.gemm_coded(a, b, product.spec, product.out, product.seed, native)
