"""Products of native types as the order of routes asks for them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..product import Product, Ran
from ..refusal import Refusal
from .coded import coded_refusal, gemm_coded
from .matching import native_type
from .run import gemm, refusal
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
        return refusal(found, a, b, product.out)
    return coded_refusal(found, a, b, product.out.shape)


def multiply(product: Product, fast_mode: str | None) -> Ran:
    """Write ``product`` to its ``out``. Ask ``refuses`` first.

    Raises:
        CublasError: if cuBLAS refuses the call.
    """
    native, a, b = _type_of(product, fast_mode), product.a, product.b
    assert isinstance(native, NativeType)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return gemm(a, b, product.spec, product.out, product.seed, native)
    return gemm_coded(a, b, product.spec, product.out, product.seed, native)
