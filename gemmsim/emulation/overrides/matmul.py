"""Overrides of products of two tensors: linear, matmul, mm, bmm, mv, dot and similar calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.product.autograd import work_dtype
from gemmsim.ops.product.matmul import affine
from gemmsim.ops.product.sharding import prepare

from ..amax_histories import delayed_scales
from ..autocast import autocast, autocast_on_accelerators, promoted
from .layouts import gradient_laid, in_columns, in_rows
from .library_sites import by_library, folded, settled
from .table import Site, overrides, packets

__all__ = ["FLOATS", "apart", "autocast", "linear", "multiplies", "nth", "product"]

_F = torch.nn.functional
#: Dtypes whose products are emulated. Integer products are exact, and complex products are native.
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_MASK = (1 << 62) - 1
#: An odd number far from those that steps and streams add to a seed.
_NEXT = 0x2545F4914F6CDD1D


def nth(at: Site, n: int) -> Site:
    """The call site of product n of a call with several products.

    It is the same site with random bits of its own.
    """
    return at if n == 0 or at.seed is None else at._replace(seed=(at.seed + n * _NEXT) & _MASK)


def apart(a: Tensor, b: Tensor) -> Tensor:
    """``b``, or a view of it if it is ``a``: tracers refuse one tensor as two arguments of an autograd function."""
    return b.view_as(b) if b is a else b


def product(
    at: Site,
    a: Tensor,
    b: Tensor,
    addend: Tensor | None = None,
    *,
    linear: bool = False,
    dtype: torch.dtype | None = None,
    fits: bool = False,
) -> Tensor:
    """``torch.matmul(a, b)`` as the call site says, plus the vector ``addend``; with ``linear``, b is (N, K).

    The operands already have autocast's dtypes. The result has the operands' dtype, or ``dtype``. A site without a plan
    gives PyTorch's own product. Operands that do not multiply go to PyTorch, too, which raises its own error. ``fits``:
    whether the caller has already checked ``multiplies``.
    """
    plan = at.plan
    if plan is None or not (fits or multiplies(a, b, addend, linear)):
        out = torch.matmul(a, b.mT if linear else b)
        out = out if dtype is None else out.to(dtype)
        return out if addend is None else (out + addend).to(out.dtype)
    if type(a).__name__ == "DTensor" or type(b).__name__ == "DTensor":
        prepare()
        if addend is not None:  # the addend is added once, after the parts of all processes
            return product(at, a, b, linear=linear, dtype=dtype) + addend
        at = at._replace(name=at.name or f"|{at.kind}")
    to = a.dtype if dtype is None else dtype
    if by_library(at):
        if folded(a, b) and not linear:
            rows = a.reshape(-1, a.shape[-1])
            out = product(at, rows, b, addend, dtype=dtype, fits=True)
            return out.reshape(*a.shape[:-1], *out.shape[1:])
        at = settled(at, a, b, to, linear=linear, register=addend is not None)
        plan = at.plan
        assert plan is not None
    left = a.unsqueeze(0) if a.dim() == 1 else a
    right = b.unsqueeze(1) if b.dim() == 1 else apart(a, b)
    more: tuple[Any, ...] = (None, 0, at.counter, at.name)
    if at.delayed is not None:
        more = (*more, *delayed_scales(at.delayed, left, right))
    out = affine(left, right, addend, plan, at.seed, linear, to, *more)
    if b.dim() == 1:
        out = out.squeeze(-1)
    return out.squeeze(-2 if b.dim() > 1 else -1) if a.dim() == 1 else out


def multiplies(a: Any, b: Any, addend: Tensor | None = None, linear: bool = False) -> bool:
    """Whether the emulation multiplies these operands, and PyTorch would, too.

    They have one dtype and device, and ranks and sizes that fit.
    """
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or a.dtype not in FLOATS or a.dtype != b.dtype:
        return False
    if a.dim() == 0 or b.dim() == 0 or a.device != b.device:
        return False
    inner = b.shape[-1] if linear or b.dim() == 1 else b.shape[-2]
    if a.shape[-1] != inner or not _broadcast(a.shape[:-2], b.shape[:-2]):
        return False
    if addend is not None:
        columns = b.shape[-2] if linear else b.shape[-1]
        return addend.dtype == a.dtype and addend.device == a.device and addend.shape[-1] in (1, columns)
    return True


def _broadcast(x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    """Whether batch dimensions broadcast."""
    for m, n in zip(reversed(x), reversed(y), strict=False):
        if m != n and m != 1 and n != 1:
            return False
    return True


@overrides("linear", _F.linear, *packets("linear"), names=("input", "weight", "bias"))
def linear(at: Site, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    x, weight, bias = autocast(x, weight, bias)
    if weight.dim() not in (1, 2) or not multiplies(x, weight, None, True):
        return NotImplemented
    if bias is not None and bias.dtype != x.dtype:
        return NotImplemented
    fused = x.dim() == 2 or x.is_contiguous()  # otherwise PyTorch adds the bias to the rounded product
    if weight.dim() == 1:
        if bias is None:
            return product(at, x, weight)
        return NotImplemented if fused else product(at, x, weight) + bias
    if bias is None:
        return product(at, x, weight, linear=True, fits=True)
    if fused and bias.dim() == 1 and bias.shape[0] == weight.shape[0]:
        return product(at, x, weight, bias, linear=True)
    shape = (*x.shape[:-1], weight.shape[0])
    pairs = zip(reversed(bias.shape), reversed(shape), strict=False)
    if bias.dim() > len(shape) or any(n not in (1, m) for n, m in pairs):
        return NotImplemented
    if not fused or at.plan is None:
        return product(at, x, weight, linear=True) + bias
    at = settled(at, x, weight, x.dtype, linear=True, register=True)
    assert at.plan is not None
    wide = product(at, x, weight, linear=True, dtype=work_dtype(at.plan.fprop, x.dtype, True))
    return (wide + bias.to(wide.dtype)).to(x.dtype)


_TWO = ("input|self|tensor1", "other|mat2|vec|tensor|tensor2|vec2")


@overrides(
    "matmul",
    *(torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.linalg.matmul),
    *(*packets("matmul"), *packets("linalg_matmul", "default")),
    names=_TWO,
)
def _matmul(at: Site, a: Tensor, b: Tensor) -> Any:
    a, b = autocast(a, b)
    if not multiplies(a, b):
        return NotImplemented
    if at.plan is not None and a.dim() != b.dim():
        a, b = _folded(a, b)
    return product(at, a, b, fits=True)


def _folded(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Operands of unequal ranks, with gradients laid out as PyTorch's.

    PyTorch multiplies two matrices in this case, one of them folded from a batch. The fold of one matrix copies
    nothing, so its gradient keeps the order of its dimensions.
    """
    one = min(a.dim(), b.dim()) == 2 and max(a, b, key=Tensor.dim).shape[:-2].numel() == 1
    if a.dim() == 2 < b.dim() and a.requires_grad:
        if not (one and b.is_contiguous()):
            b = gradient_laid(b, in_columns)
        a = a if a.is_contiguous() else gradient_laid(a, in_columns)
    elif b.dim() == 2 < a.dim():
        b = gradient_laid(b, in_columns) if b.stride() == (1, b.shape[0]) else b
        a = gradient_laid(a, in_columns) if one and a.mT.is_contiguous() and not a.is_contiguous() else a
    elif b.dim() == 1:
        a = gradient_laid(a, in_rows)
    elif a.dim() == 1 and b.dim() > 2:
        b = gradient_laid(b, in_columns)
    return a, b


@overrides("matmul", Tensor.__rmatmul__, names=("self", "other"))
def _rmatmul(at: Site, b: Tensor, a: Tensor) -> Any:
    return _matmul(at, a, b)


def _of_ranks(ranks: tuple[int, int], at: Site, a: Any, b: Any, dtype: torch.dtype | None = None) -> Any:
    """The product of operands of these ranks and of equal batch sizes, as PyTorch's narrower functions require."""
    if not multiplies(a, b) or (a.dim(), b.dim()) != ranks or (ranks == (3, 3) and a.shape[0] != b.shape[0]):
        return NotImplemented
    if dtype not in (None, a.dtype, torch.float32):
        return NotImplemented
    return product(at, a, b, dtype=dtype)


@overrides("matmul", torch.mm, Tensor.mm, *packets("mm", "default", "dtype"), names=(*_TWO, "out_dtype"))
def _mm(at: Site, a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None) -> Any:
    a, b = autocast(a, b)
    return _of_ranks((2, 2), at, a, b, out_dtype)


@overrides("bmm", torch.bmm, Tensor.bmm, *packets("bmm", "default", "dtype"), names=(*_TWO, "out_dtype"))
def _bmm(at: Site, a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None) -> Any:
    a, b = autocast(a, b)
    return _of_ranks((3, 3), at, a, b, out_dtype)


@overrides("mv", torch.mv, Tensor.mv, *packets("mv", "default"), names=_TWO)
def _mv(at: Site, a: Tensor, b: Tensor) -> Any:
    a, b = autocast_on_accelerators(a, b)
    return _of_ranks((2, 1), at, a if at.plan is None else gradient_laid(a, in_rows), b)


@overrides(
    "dot",
    *(torch.dot, Tensor.dot, *packets("dot", "default"), torch.vdot, Tensor.vdot, *packets("vdot", "default")),
    names=_TWO,
)
def _dot(at: Site, a: Tensor, b: Tensor) -> Any:
    return _of_ranks((1, 1), at, *promoted(a, b))


@overrides("dot", torch.linalg.vecdot, *packets("linalg_vecdot", "default"), names=("x", "y"))
def _vecdot(at: Site, x: Tensor, y: Tensor, *, dim: int = -1) -> Any:
    """The dot product of two vectors.

    For other operands PyTorch multiplies and sums elements, which is no product of matrices.
    """
    if dim not in (0, -1):
        return NotImplemented
    return _of_ranks((1, 1), at, *autocast(x, y))


@overrides("linear", getattr(_F, "linear_cross_entropy", None), names=("input", "linear_weight", "target"))
def _linear_cross_entropy(
    at: Site,
    x: Tensor,
    w: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Any:
    """``linear``, then ``cross_entropy``; the options only save memory."""
    if x.dim() not in (1, 2) or w.dim() < 2 or x.shape[-1] != w.shape[-1] or (w.dim() > 2 and x.dim() == 1):
        return NotImplemented
    outer = w.shape[:-1]
    if linear_bias is not None and linear_bias.shape != outer:
        return NotImplemented
    shape = (*x.shape[:-1], *outer)
    if ignore_index is not None and target.shape == shape:
        return NotImplemented
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = linear(at, x, w.reshape(-1, w.shape[-1]), bias)
    if logits is NotImplemented:
        return NotImplemented
    ignored = -100 if ignore_index is None else ignore_index
    logits = logits.reshape(shape)
    return _F.cross_entropy(
        logits, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing
    )
