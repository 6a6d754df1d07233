"""Overrides of products that are scaled and added to a tensor: addmm, addmv, baddbmm and addbmm."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.product.autograd import work_dtype

from ..autocast import autocast, autocast_on_accelerators
from .library_sites import settled
from .matmul import multiplies, nth, product
from .table import Site, overrides, packets

__all__ = ["added", "in_order"]


class _Scaled(torch.autograd.Function):
    """The identity, whose gradient is multiplied by a number.

    PyTorch scales the gradients of operands after their products.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(t: Tensor, factor: float) -> Tensor:
        return t.view_as(t)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.factor, None


class _Sum(torch.autograd.Function):
    """``alpha * p + beta * c`` in p's dtype, rounded to ``dtype``. The gradient of p is the sum's, without alpha."""

    generate_vmap_rule = True

    @staticmethod
    def forward(p: Tensor, c: Tensor, beta: float, alpha: float, dtype: torch.dtype) -> Tensor:
        scaled = p if alpha == 1 else p * alpha
        if beta == 0:
            return scaled.to(dtype, copy=True)
        wide = c.to(p.dtype)
        return (scaled + (wide if beta == 1 else wide * beta)).to(dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.beta, ctx.dtypes = inputs[2], (inputs[0].dtype, inputs[1].dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_c = grad if ctx.beta == 1 else grad * ctx.beta
        return grad.to(ctx.dtypes[0]), grad_c.to(ctx.dtypes[1]), None, None, None


def added(
    at: Site, c: Tensor, a: Tensor, b: Tensor, beta: float = 1, alpha: float = 1, dtype: torch.dtype | None = None
) -> Tensor:
    """``beta * c + alpha * (a @ b)``: the product in float32 (float64 if it needs that), and one rounding at the end.

    c broadcasts to the result. It has the operands' dtype, and so has the result unless ``dtype`` is given. For beta =
    0 c is not read. The gradients of a and b are products with the result's gradient, rounded, then times alpha. The
    gradient of c is PyTorch's sum.
    """
    to = a.dtype if dtype is None else dtype
    if beta == 1 and alpha == 1 and a.dim() == b.dim() == 2 and c.dim() == 1 and c.shape[0] == b.shape[1]:
        return product(at, a, b, c, dtype=to)
    if alpha != 1:
        a, b = _Scaled.apply(a, alpha), _Scaled.apply(b, alpha)
    at = settled(at, a, b, to, register=True)
    work = to if at.plan is None else work_dtype(at.plan.fprop, to, True)
    p = product(at, a, b, dtype=work)
    found: Tensor = _Sum.apply(p, c.expand(p.shape), beta, alpha, to)
    return found


def in_order(given: tuple[Any, ...], beta: Any, alpha: Any) -> tuple[list[Any], Any, Any]:
    """Tensors and factors of a call. In PyTorch's older order the factors, beta first, are among the tensors."""
    numbers = [g for g in given if isinstance(g, (int, float))]
    tensors = [g for g in given if isinstance(g, Tensor)]
    if numbers:
        beta = numbers[0]
        alpha = numbers[1] if len(numbers) > 1 else alpha
    return tensors, beta, alpha


def _fit(c: Tensor, a: Tensor, b: Tensor, ranks: tuple[int, int], inplace: bool) -> bool:
    """Whether PyTorch adds the product of operands of these ranks to c."""
    if not multiplies(a, b) or (a.dim(), b.dim()) != ranks or c.dtype != a.dtype or c.device != a.device:
        return False
    if ranks == (3, 3) and a.shape[0] != b.shape[0]:
        return False
    shape = (*a.shape[:-1], b.shape[-1]) if b.dim() > 1 else a.shape[:-1]
    if inplace:
        return c.shape == shape
    missing = len(shape) - c.dim()
    return missing >= 0 and all(n in (1, m) for n, m in zip(c.shape, shape[missing:], strict=True))


def _addition(at: Site, given: tuple[Any, ...], ranks: tuple[int, int], how: dict[str, Any], inplace: bool) -> Any:
    """Computes one of addmm, addmv and baddbmm from its arguments as given."""
    tensors, beta, alpha = in_order(given, how.get("beta", 1), how.get("alpha", 1))
    dtype = how.get("out_dtype")
    if len(tensors) != 3:
        return NotImplemented
    if ranks == (2, 1):
        c, a, b = autocast_on_accelerators(*tensors)
    else:
        c, a, b = autocast(*tensors)
    if not _fit(c, a, b, ranks, inplace) or dtype not in (None, a.dtype, torch.float32):
        return NotImplemented
    if b.dim() == 1:  # as a matrix of one column
        return added(at, c.unsqueeze(-1), a, b.unsqueeze(-1), beta, alpha).squeeze(-1)
    return added(at, c, a, b, beta, alpha, dtype)


_MM = ("input|self", "mat1", "mat2", "out_dtype")
_MV = ("input|self", "mat", "vec")
_BMM = ("input|self", "batch1", "batch2", "out_dtype")


def _split(given: tuple[Any, ...], how: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Moves the result's dtype, the fourth argument of some overloads, to the keywords."""
    if len(given) > 3 and isinstance(given[3], torch.dtype):
        return given[:3], {**how, "out_dtype": given[3]}
    return given, how


def _adds(ranks: tuple[int, int], names: tuple[str, ...], inplace: bool) -> Any:
    def run(at: Site, *given: Any, **how: Any) -> Any:
        if "out_dtype" in names and not inplace:
            given, how = _split(given, how)
        return _addition(at, given, ranks, how, inplace)

    return run


for _kind, _ranks, _names, _inplace, _calls in (
    ("addmm", (2, 2), _MM, False, (torch.addmm, Tensor.addmm, *packets("addmm", "default", "dtype"))),
    ("addmm", (2, 2), _MM, True, (Tensor.addmm_, *packets("addmm_", "default"))),
    ("addmv", (2, 1), _MV, False, (torch.addmv, Tensor.addmv, *packets("addmv", "default"))),
    ("addmv", (2, 1), _MV, True, (torch.addmv_, Tensor.addmv_, *packets("addmv_", "default"))),
    ("baddbmm", (3, 3), _BMM, False, (torch.baddbmm, Tensor.baddbmm, *packets("baddbmm", "default", "dtype"))),
    ("baddbmm", (3, 3), _BMM, True, (Tensor.baddbmm_, *packets("baddbmm_", "default"))),
):
    overrides(_kind, *_calls, names=_names, inplace=_inplace)(_adds(_ranks, _names, _inplace))


@overrides("addbmm", torch.addbmm, Tensor.addbmm, *packets("addbmm", "default"), names=_BMM)
def _addbmm(at: Site, *given: Any, **how: Any) -> Any:
    return _examples_added(at, given, how, False)


@overrides("addbmm", Tensor.addbmm_, *packets("addbmm_", "default"), names=_BMM, inplace=True)
def _addbmm_(at: Site, *given: Any, **how: Any) -> Any:
    return _examples_added(at, given, how, True)


def _examples_added(at: Site, given: tuple[Any, ...], how: dict[str, Any], inplace: bool) -> Any:
    """One product per example, each added to the sum so far, which is rounded each time as in PyTorch."""
    tensors, beta, alpha = in_order(given, how.get("beta", 1), how.get("alpha", 1))
    if len(tensors) != 3:
        return NotImplemented
    out, batch1, batch2 = autocast(*tensors)
    if batch1.dim() != 3 or batch2.dim() != 3 or batch1.shape[0] != batch2.shape[0] or not len(batch1):
        return NotImplemented
    for n, (a, b) in enumerate(zip(batch1.unbind(), batch2.unbind(), strict=True)):
        if not _fit(out, a, b, (2, 2), inplace):
            return NotImplemented
        out = added(nth(at, n), out, a, b, 1 if n else beta, alpha)
    return out


@overrides("addmm", getattr(torch, "_addmm_activation", None), *packets("_addmm_activation", "default"), names=_MM[:3])
def _addmm_activation(at: Site, *given: Any, use_gelu: bool = False, **how: Any) -> Any:
    out = _addition(at, given, (2, 2), how, False)
    if out is NotImplemented:
        return out
    if not use_gelu:
        return torch.relu(out)
    return torch.nn.functional.gelu(out, approximate="none" if out.device.type == "cpu" else "tanh")
