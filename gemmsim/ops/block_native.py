"""Products of operands in block formats under ``cublas_acceleration``: cuBLAS takes codes and scales themselves."""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cublas
from gemmsim.backends.convert import cast_into
from gemmsim.backends.cublas import NativeType

from .acceleration import Setting
from .block_operands import BlockOperand
from .seeds import Site

__all__ = ["product", "refusal"]

Operand: TypeAlias = Tensor | BlockOperand


def refusal(a: Operand, b: Operand, spec: GemmSpec, shape: tuple[int, ...], setting: Setting) -> str | NativeType:
    """The native type of the product of encoded operands, or the reason why there is none here."""
    found = cublas.native_type(spec, torch.float32, torch.float32, setting.fast_mode)
    if not isinstance(found, NativeType):
        return found.reason
    if not isinstance(a, BlockOperand) or not isinstance(b, BlockOperand):
        return "one operand in a block format and one without: the library takes two with scales"
    device = b.codes.device
    reason = cublas.cpu_reason(found) if device.type == "cpu" else cublas.device_reason(found, device)
    if reason is None and math.prod(b.shape[:-2]) != 1:
        reason = f"native type {found.name} takes two matrices, not batches of both operands"
    if reason is None and {a.packing, b.packing} != {"bytes"}:
        reason = f"codes in packing {a.packing} and {b.packing}; it takes one a byte"
    return reason or cublas.shape_reason(found, math.prod(shape[:-1]), shape[-1], a.size) or found


def product(
    a: Operand, b: Operand, spec: GemmSpec, seed: int, dtype: torch.dtype, shape: tuple[int, ...], native: NativeType
) -> tuple[Tensor, object]:
    """The product in ``dtype`` and of ``shape``, and its record. Ask ``refusal`` first.

    Sums as the library makes them, tensors' own scales on them, the output cast of ``spec``.
    """
    assert isinstance(a, BlockOperand) and isinstance(b, BlockOperand)
    left = [x.expand(*shape[:-2], *x.shape[-2:]).reshape(-1, x.shape[-1]) for x in (a.codes, a.scales)]
    right = [x.reshape(x.shape[-2:]).mT for x in (b.codes, b.scales)]
    sums, how = cublas.block_scaled_mm(left[0], left[1], right[0], right[1], native, torch.float32)
    for operand in (a, b):
        if operand.format.tensor_scale:
            sums = sums.double() * operand.tensor_scale
    out = torch.empty(shape, dtype=dtype, device=sums.device)
    cast_into(sums.view(shape), spec.out, out, seed, Site.OUTPUT)
    return out, cublas.CublasRun("cublas", native, how)
