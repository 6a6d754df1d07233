"""The interface of native products to the routes: ``refuses``, ``multiply`` and ``explain``."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.lowering.refusal import Refusal

from ..acceleration import Setting, refused
from ..decoded_product import decoded_product
from ..product import Product, Ran
from . import block_scaled, run
from .matching import assumed_type, holds_numbers_of, native_type, rounded_type
from .types import NativeType

__all__ = ["explain", "multiply", "refuses"]


def _type_of(product: Product, setting: Setting) -> NativeType | Refusal:
    """Return the type that the spec names for operands as they were before their casts.

    Operands without a cast may all be numbers of a type's format. If no type fits otherwise, the result is that type.
    """
    a, b, named, mode = product.a, product.b, product.named, setting.fast_mode
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return native_type(product.spec, torch.float32, torch.float32, mode)
    found = native_type(named, a.dtype, b.dtype, mode)
    if isinstance(found, Refusal):
        assumed = assumed_type(named, a.dtype, b.dtype, mode)
        found = found if assumed is None else assumed[0]
    return found


def refuses(product: Product, setting: Setting) -> Refusal | None:
    """Return why no library computes ``product``, or ``None``, as far as that is known without reading the operands."""
    found, a, b = _type_of(product, setting), product.a, product.b
    if not isinstance(found, NativeType):
        return found
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return run.refuses(found, a, b, product.out)
    return block_scaled.refuses(found, a, b, product.out.shape)


def multiply(product: Product, setting: Setting) -> Ran | Refusal:
    """Write ``product`` to its ``out``, or return why its operands do not allow that. Call ``refuses`` first.

    Raises:
        CublasError: if cuBLAS refuses the call.
    """
    a, b, spec, named = product.a, product.b, product.spec, product.named
    native = _type_of(product, setting)
    assert isinstance(native, NativeType)
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return block_scaled.gemm_coded(a, b, spec, product.out, product.seed, native)
    note = None
    if isinstance(native_type(named, a.dtype, b.dtype, setting.fast_mode), Refusal):
        if setting.rounds_operands and rounded_type(named, a.dtype, b.dtype, setting.fast_mode) is not None:
            note = "operands rounded to fp16 by mptorch's rule"  # ``run.gemm`` rounds every operand to the type's dtype
        else:
            reason = _not_held(product, setting)
            if reason is not None:
                return Refusal(reason, refused())
            note = f"operands are numbers of {str(native.a).removeprefix('torch.')}"
    found = run.gemm(a, b, spec, product.out, product.seed, native)
    return found if note is None else found.noted(note)


def _not_held(product: Product, setting: Setting) -> str | None:
    """Return why the operands are not numbers of the type's format, or ``None``. The function reads the operands."""
    a, b, named = product.a, product.b, product.named
    assert isinstance(a, Tensor) and isinstance(b, Tensor)
    if a.is_cuda and torch.cuda.is_current_stream_capturing():
        return "operands in a wider dtype cannot be read while a graph is captured: give them in the type's dtype"
    assumed = assumed_type(named, a.dtype, b.dtype, setting.fast_mode)
    assert assumed is not None
    for name, operand, fmt in zip("ab", (a, b), assumed[1], strict=True):
        if fmt is not None and not holds_numbers_of(operand, fmt):
            plain = native_type(named, a.dtype, b.dtype, setting.fast_mode)
            return f"{plain}, and {name} holds numbers that {fmt} does not have; a cast in the spec rounds them"
    return None


def explain(spec: GemmSpec) -> str:
    """Return the line that says which native type ``spec`` names for operands in float32, or why it names none.

    Example:
        >>> from gemmsim.backends import cublas
        >>> cublas.explain(gs.GemmSpec.parse("bf16 : fp32"))
        'cublas: native type bf16/fp32, only under gemmsim.cublas_acceleration (operands in float32)'
    """
    found = native_type(spec, torch.float32, torch.float32)
    decoded = _decoded_type(spec)
    if isinstance(found, NativeType):
        other = "" if decoded is None else f"; where a GPU is older than a Blackwell, {decoded}"
        return f"cublas: native type {found}, only under gemmsim.cublas_acceleration{other} (operands in float32)"
    if decoded is not None:
        return f"cublas: {decoded}, only under gemmsim.cublas_acceleration; codes and scales themselves: no, {found}"
    return f"cublas: no, {found} (operands in float32)"


def _decoded_type(spec: GemmSpec) -> str | None:
    """Return the native type of operands that are decoded from block formats, in words, or ``None``."""
    decoded = decoded_product(spec)
    if decoded is None:
        return None
    plain, dtype = decoded
    found = native_type(plain, dtype, dtype)
    if not isinstance(found, NativeType):
        return None
    return f"native type {found} of the operands' values, if {str(dtype)[6:]} holds them"
