"""Products of operands in block formats by cuBLAS, which reads codes and scales as they are stored (Blackwell)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.formats import BlockFormat
from gemmsim.lowering.abi_constants import Site
from gemmsim.lowering.refusal import Refusal

from ..convert import cast_into
from ..encoded_operand import Coded
from ..product import Ran
from ..scale_layout import blocked
from .run import cpu_refuses, device_refuses, ran
from .types import NativeType

__all__ = ["block_scaled_mm", "gemm_coded", "narrowed", "refuses", "refuses_shape"]

#: The library requires that K is a multiple of the first number, and N of the second.
_TERMS, _COLUMNS = 32, 16


def refuses_shape(native: NativeType, rows: int, n: int, k: int) -> Refusal | None:
    """Return why the library does not accept a product of this size, or ``None``.

    Example:
        >>> from gemmsim.backends import cublas
        >>> native = cublas.TYPES["fp16/fp32"]
        >>> cublas.refuses_shape(native, 3, 3, 3).reason
        'native type fp16/fp32 takes multiples of 16 for N and of 32 for K, not (3, 3)'
    """
    if rows == 0 or k == 0:
        return Refusal("there is nothing to multiply")
    if k % _TERMS or n % _COLUMNS:
        return Refusal(
            f"native type {native.name} takes multiples of {_COLUMNS} for N and of {_TERMS} for K, not {(n, k)}"
        )
    return None


def block_scaled_mm(
    a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor, native: NativeType, out_dtype: torch.dtype
) -> tuple[Tensor, str]:
    """Return the product in ``out_dtype``, and the name of the call that computed it.

    The operands are lines ``a`` (M, K) and ``b`` (N, K), uint8 with one code per byte, with scale codes (M, blocks) and
    (N, blocks).
    """
    left, right = (_stored(x, dtype) for x, dtype in ((a, native.a), (b, native.b)))
    kind = torch.float8_e4m3fn if native.name == "nvfp4" else torch.float8_e8m0fnu
    one, two = (blocked(x).view(kind) for x in (scale_a, scale_b))
    product: Tensor = torch._scaled_mm(left, right.t(), scale_a=one, scale_b=two, out_dtype=out_dtype)
    return product, "torch._scaled_mm with scales of blocks"


def _stored(codes: Tensor, dtype: torch.dtype) -> Tensor:
    """Return codes in the library's dtype. Codes of 4 bits are packed two per byte, the first in the low half."""
    if dtype == torch.uint8:
        return (codes[:, ::2] & 15 | codes[:, 1::2] << 4).contiguous().view(torch.float4_e2m1fn_x2)
    return codes.contiguous().view(dtype)


def refuses(native: NativeType, a: Tensor | Coded, b: Tensor | Coded, shape: torch.Size) -> Refusal | None:
    """Return why this type cannot compute the product of encoded operands, or ``None``."""
    if not isinstance(a, Coded) or not isinstance(b, Coded):
        return Refusal("one operand in a block format and one without: the library takes two with scales")
    refusal = cpu_refuses(native) if b.device.type == "cpu" else device_refuses(native, b.device)
    if refusal is not None:
        return refusal
    if math.prod(b.shape[:-2]) != 1:
        return Refusal(f"native type {native.name} takes two matrices, not batches of both operands")
    if {a.packing, b.packing} != {"bytes"}:
        return Refusal(f"codes in packing {a.packing} and {b.packing}; it takes one per byte")
    return refuses_shape(native, math.prod(shape[:-1]), shape[-1], a.size)


def gemm_coded(a: Tensor | Coded, b: Tensor | Coded, spec: GemmSpec, out: Tensor, seed: int, native: NativeType) -> Ran:
    """Write the product to ``out`` and return its record. Call ``refuses`` first.

    The library computes the sums. The tensors' own scales and the output cast of ``spec`` are then applied to them.
    """
    assert isinstance(a, Coded) and isinstance(b, Coded)
    shape = out.shape
    left = [x.expand(*shape[:-2], *x.shape[-2:]).reshape(-1, x.shape[-1]) for x in (a.codes, a.scales)]
    right = [x.reshape(x.shape[-2:]).mT for x in (b.codes, b.scales)]
    sums, how = block_scaled_mm(left[0], left[1], right[0], right[1], native, torch.float32)
    for operand in (a, b):
        if operand.format.tensor_scale:
            sums = sums.double() * operand.tensor_scale
    cast_into(sums.view(shape), spec.out, out, seed, Site.OUTPUT)
    return ran("cublas", native, how)


def narrowed(x: Tensor, y: Tensor, spec: GemmSpec) -> tuple[Tensor, Tensor]:
    """Return both operands' values in bfloat16 if both are in block formats and bfloat16 represents the values.

    The check waits for the GPU.
    """
    if not (isinstance(spec.a, BlockFormat) and isinstance(spec.b, BlockFormat)):
        return x, y
    small = x.bfloat16(), y.bfloat16()
    same = [((n.to(w.dtype) == w) | w.isnan()).all() for n, w in zip(small, (x, y), strict=True)]
    return small if bool(same[0] & same[1]) else (x, y)
