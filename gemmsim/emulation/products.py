"""Lowerings of the products of two tensors: linear, matmul and their kin."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.product.matmul import affine
from gemmsim.ops.sharding import prepare

from .table import Site, lowers, packets

__all__ = ["FLOATS", "autocast", "linear", "multiplies", "product"]

_F = torch.nn.functional
#: Dtypes whose products are emulated; integer products are exact, complex ones PyTorch's.
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def autocast(*tensors: Tensor | None) -> tuple[Any, ...]:
    """Operands as PyTorch's autocast hands them to a product: floating ones in its dtype, float64 as they are."""
    device = next((t.device.type for t in tensors if t is not None), "cpu")
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(_cast(t, dtype) for t in tensors)


def _cast(t: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return t if t is None or not t.is_floating_point() or t.dtype == torch.float64 else t.to(dtype)


def product(
    at: Site,
    a: Tensor,
    b: Tensor,
    addend: Tensor | None = None,
    *,
    linear: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """``torch.matmul(a, b)`` as the site says, plus a vector; ``linear``: b is (N, K). Operands as autocast left them.

    The result's dtype is the operands', or ``dtype``. A site without a plan is PyTorch's own product, and PyTorch
    refuses what does not multiply, in its own words.
    """
    plan = at.plan
    if plan is None or not multiplies(a, b, addend, linear):
        out = torch.matmul(a, b.mT if linear else b)
        out = out if dtype is None else out.to(dtype)
        return out if addend is None else (out + addend).to(out.dtype)
    if type(a).__name__ == "DTensor" or type(b).__name__ == "DTensor":
        prepare()
        if addend is not None:  # processes that hold parts of the sum add it after all parts
            return product(at, a, b, linear=linear, dtype=dtype) + addend
        at = at._replace(name=at.name or f"|{at.kind}")
    to = a.dtype if dtype is None else dtype
    left = a.unsqueeze(0) if a.dim() == 1 else a
    right = b.unsqueeze(1) if b.dim() == 1 else b
    more = (None, 0, at.counter, at.name)
    if linear and left.dim() > 2:
        rows = left.reshape(left.shape[:-1].numel(), left.shape[-1])
        out = affine(rows, right, addend, plan, at.seed, True, to, *more)
        out = out.reshape(*left.shape[:-1], right.shape[0])
    else:
        out = affine(left, right, addend, plan, at.seed, linear, to, *more)
    if b.dim() == 1:
        out = out.squeeze(-1)
    return out.squeeze(-2 if b.dim() > 1 else -1) if a.dim() == 1 else out


def multiplies(a: Tensor, b: Tensor, addend: Tensor | None = None, linear: bool = False) -> bool:
    """Whether PyTorch multiplies these operands: one dtype and device, ranks and inner sizes that fit."""
    if a.dim() == 0 or b.dim() == 0 or a.dtype not in FLOATS or a.dtype != b.dtype or a.device != b.device:
        return False
    inner = b.shape[-1] if linear or b.dim() == 1 else b.shape[-2]
    if a.shape[-1] != inner:
        return False
    if addend is not None:
        return addend.dtype == a.dtype and addend.device == a.device and addend.shape[-1] in (1, b.shape[-2])
    return True


@lowers("linear", _F.linear, *packets("linear"), names=("input", "weight", "bias"))
def linear(at: Site, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    x, weight, bias = autocast(x, weight, bias)
    if at.plan is None:
        return _F.linear(x, weight, bias)
    if weight.dim() == 1:
        out = product(at, x, weight)
        return out if bias is None else out + bias
    if bias is not None and (bias.dim() != 1 or bias.shape[0] != weight.shape[0]):
        return product(at, x, weight, linear=True) + bias
    return product(at, x, weight, bias, linear=True)


_TWO = ("input|self|tensor1", "other|mat2|vec|tensor|tensor2|vec2")


@lowers(
    "matmul",
    *(torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.linalg.matmul, torch.mm, Tensor.mm),
    *(*packets("matmul"), *packets("mm", "default"), *packets("linalg_matmul", "default")),
    names=_TWO,
)
def _matmul(at: Site, a: Tensor, b: Tensor) -> Tensor:
    return product(at, *autocast(a, b))


@lowers("matmul", Tensor.__rmatmul__, names=("self", "other"))
def _rmatmul(at: Site, b: Tensor, a: Tensor) -> Tensor:
    return product(at, *autocast(a, b))


@lowers("bmm", torch.bmm, Tensor.bmm, *packets("bmm", "default"), names=_TWO)
def _bmm(at: Site, a: Tensor, b: Tensor) -> Tensor:
    return product(at, *autocast(a, b))
