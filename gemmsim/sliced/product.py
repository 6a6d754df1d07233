"""Computing a sliced product: slices, partial products by their specs, the sum."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.ops.product.int8_fp8_operands import NARROW

from ..ops.errors import GradError, ShapeError, message
from ..ops.product.matmul import check_operands, qmatmul
from ..ops.product.shapes import matmul_shape
from .powers import scale
from .slices import FloatSlices, IntegerSlices

__all__ = ["Scheme", "sliced_product"]

_DTYPES = {"fp32": torch.float32, "fp64": torch.float64}


class Scheme(Protocol):
    """What ``Sliced`` tells of itself here."""

    @property
    def slicing(self) -> FloatSlices | IntegerSlices: ...
    @property
    def terms(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def specs(self) -> tuple[GemmSpec, ...]: ...
    @property
    def joined(self) -> bool: ...
    @property
    def total(self) -> str: ...
    @property
    def out(self) -> str: ...


def sliced_product(a: Tensor, b: Tensor, scheme: Scheme) -> Tensor:
    """``gemmsim.sliced.matmul``, which says what it takes.

    Raises:
        GradError, ShapeError, UnsupportedSpec, DTypeError, DeviceError: as there.
    """
    a, b = (t.to(torch.float32) if isinstance(t, Tensor) and t.dtype in NARROW else t for t in (a, b))
    check_operands("sliced.matmul", a, b, None, None)
    if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
        asked = "sliced.matmul of a tensor that requires grad"
        do = "Use .detach(), and in an autograd function of your own the schemes that you want backward."
        raise GradError(message(asked, "tensors without grad, or a call under torch.no_grad()", do))
    left, right = a.unsqueeze(0) if a.dim() == 1 else a, b.unsqueeze(1) if b.dim() == 1 else b
    matmul_shape("sliced.matmul", left, right)
    _check_register(scheme, left.shape[-1])
    if isinstance(scheme.slicing, FloatSlices):
        left, right = left.to(torch.float32), right.to(torch.float32)
    found = _finite(_zeroed(left), _zeroed(right), scheme)
    if not (bool(left.isfinite().all()) and bool(right.isfinite().all())):
        special = qmatmul(_marked(left), _marked(right), ":exact(fp64)").to(found.dtype)
        found = torch.where(special.isfinite(), found, special)
    if b.dim() == 1:
        found = found.squeeze(-1)
    return found.squeeze(-2 if b.dim() > 1 else -1) if a.dim() == 1 else found


def _finite(a: Tensor, b: Tensor, scheme: Scheme) -> Tensor:
    """The product of finite matrices."""
    lefts, rows = scheme.slicing.of(a, -1)
    rights, columns = scheme.slicing.of(b, -2)
    out = _DTYPES[scheme.out]
    pairs = [(lefts[i - 1], rights[j - 1]) for i, j in scheme.terms]
    if scheme.joined:
        joined = torch.cat([left for left, _ in pairs], -1), torch.cat([right for _, right in pairs], -2)
        return qmatmul(*joined, scheme.specs[0], out_dtype=out)
    dtype = _DTYPES[scheme.total]
    total: Tensor | None = None
    for (left, right), spec, term in zip(pairs, scheme.specs, scheme.terms, strict=True):
        shift = torch.tensor(scheme.slicing.shift(term), device=a.device)
        part = scale(qmatmul(left, right, spec, out_dtype=dtype), shift)
        total = part if total is None else (total + part).to(dtype).to(torch.float64)
    assert total is not None
    total = total.to(dtype).to(torch.float64)
    if rows is not None and columns is not None:
        total = scale(total, rows + columns)
    return total.to(out)


def _zeroed(t: Tensor) -> Tensor:
    return torch.where(t.isfinite(), t, 0.0)


def _marked(t: Tensor) -> Tensor:
    """The signs of numbers, with NaN and infinities: of its product only what is not finite is of use."""
    return torch.where(t.isfinite(), t.sign(), t).to(torch.float64)


def _check_register(scheme: Scheme, k: int) -> None:
    """``ShapeError`` where sums of K products of integer slices could leave int32."""
    if not isinstance(scheme.slicing, IntegerSlices):
        return
    widths = [spec.accumulator.P for spec in scheme.specs if hasattr(spec.accumulator, "P")]
    largest = (2**scheme.slicing.bits - 1) ** 2
    if widths and k * largest >= 2 ** (min(widths) - 1):
        most = (2 ** (min(widths) - 1) - 1) // largest
        asked = f"sliced.matmul: K = {k} in an accumulator of {min(widths)} bits"
        raise ShapeError(message(asked, f"K up to {most}", "Split K and add the products, or use narrower slices."))
