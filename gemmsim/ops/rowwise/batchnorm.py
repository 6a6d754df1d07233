"""Batch normalisation, step by step in two formats."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim._keywords import says_keywords

from ..checks import check_device, check_flags, check_float, check_numbers
from ..errors import ShapeError, message
from ..fx import traceable
from ..product.affine_formats import QuantLike
from ..seeds import Bits
from .elementwise import StepChain, count_for

__all__ = ["batchnorm", "qbatchnorm"]


def _check(x: Tensor, training: bool, momentum: float, eps: float, tensors: dict[str, Tensor | None]) -> None:
    check_float("qbatchnorm", "x", x)
    check_flags("qbatchnorm", training=training)
    check_numbers("qbatchnorm", momentum=momentum, eps=eps)
    if x.dim() < 2:
        raise ShapeError(message(f"qbatchnorm: x has shape {tuple(x.shape)}", "(N, C, ...)", "Add a dimension."))
    for name, t in tensors.items():
        if t is not None:
            check_float("qbatchnorm", name, t)
            check_device("qbatchnorm", x, t, names=f"x {name}")
            if tuple(t.shape) != (x.shape[1],):
                asked = f"qbatchnorm: {name} has shape {tuple(t.shape)}"
                raise ShapeError(message(asked, f"shape ({x.shape[1]},)", f"Give one {name} for each channel."))
    check_device("qbatchnorm", x, names="x")
    if training and x.numel() == x.shape[1]:
        asked = f"qbatchnorm: training with x of shape {tuple(x.shape)}"
        raise ShapeError(message(asked, "more than one value per channel", "Give a larger batch, or training=False."))
    if training and not eps > 0:
        raise ShapeError(message(f"qbatchnorm: training with eps={eps}", "eps above 0", "Give such an eps."))
    if training and (tensors["running_mean"] is None) != (tensors["running_var"] is None):
        asked = "qbatchnorm: one of running_mean and running_var"
        raise ShapeError(message(asked, "both or neither", "Give the other one too."))
    if not training and (tensors["running_mean"] is None or tensors["running_var"] is None):
        asked = "qbatchnorm: training=False without running_mean and running_var"
        raise ShapeError(message(asked, "both of them", "Give them, or training=True."))


@traceable
@says_keywords("fwd_quant")
def qbatchnorm(
    x: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
    fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None, *, order: str = "sequential",
    seed: int | None = None,
) -> Tensor:  # fmt: skip
    """``torch.nn.functional.batch_norm`` with each step rounded by ``fwd_quant``, its gradient's by ``bwd_quant``.

    ``x``: (N, C, ...) with n values per channel. In training ``mean = qmean(x)`` over all but C, ``c = qadd(x,
    -mean)``, ``s = qsum(qpow(c, 2))``, ``var = qdiv(s, n)``; otherwise the running statistics. ``y = qadd(qmul(qdiv(c,
    qsqrt(qadd(var, eps))), w), b)``. Training updates the running statistics in place as ``Q(Q((1 - momentum) running)
    + Q(Q(momentum) new))``, where the new variance is the unbiased one, ``qdiv(s, n - 1)``, as PyTorch's is. With both
    quantisers None this is PyTorch's own operation. Steps, gradients and ``order`` as in ``qadd`` and ``qmean``; each
    step takes its own random bits from ``seed``.

    Raises:
        DTypeError, DeviceError, ShapeError: for tensors that do not fit; in training for one value per channel, only
            one of the two running statistics, and eps not above 0.

    Example:
        >>> gs.qbatchnorm(torch.tensor([[1.0], [2.0], [6.0]]), training=True, fwd_quant="e4m3").flatten()
        tensor([-1.0000, -0.5000,  1.5000])
    """
    tensors, numbers = (running_mean, running_var, weight, bias), (training, momentum, eps)
    return batchnorm(x, tensors, numbers, (fwd_quant, bwd_quant), order, Bits(seed))


def batchnorm(
    x: Tensor, tensors: tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None],
    numbers: tuple[bool, float, float], quants: tuple[QuantLike | None, QuantLike | None], order: str, bits: Bits,
) -> Tensor:  # fmt: skip
    """``qbatchnorm``, its errors too (``ShapeError``, ...), with random bits that a counter may move on. ``tensors``:
    running mean and variance, weight, bias; ``numbers``: training, momentum, eps."""
    (running_mean, running_var, weight, bias), (training, momentum, eps) = tensors, numbers
    stats = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    _check(x, training, momentum, eps, stats)
    if quants[0] is None and quants[1] is None:
        return torch.nn.functional.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)
    steps = StepChain("qbatchnorm", *quants, order, bits)
    shape = [1, -1] + [1] * (x.dim() - 2)
    if training:
        dims = [0, *range(2, x.dim())]
        mean = steps.mean(x, dims)
        c = steps.add(x, -mean)
        total, n = steps.sum(steps.square(c), dims), x.numel() // x.shape[1]
        var = steps.div(total, count_for(total, n)).to(total.dtype)
        _update(running_mean, mean, momentum, steps)
        if running_var is not None:
            _update(running_var, steps.div(total.detach(), count_for(total, n - 1)), momentum, steps)
    else:
        assert running_mean is not None and running_var is not None
        mean, var = running_mean.reshape(shape), running_var.reshape(shape)
        c = steps.add(x, -mean)
    std = steps.sqrt(steps.add(var, torch.full_like(var, eps)))
    y = steps.div(c, std)
    if weight is not None:
        y = steps.mul(y, weight.reshape(shape))
    if bias is not None:
        y = steps.add(y, bias.reshape(shape))
    return y.to(x.dtype)


def _update(running: Tensor | None, new: Tensor, momentum: float, steps: StepChain) -> None:
    if running is None:
        return
    with torch.no_grad():
        fresh = new.detach().reshape(-1).to(running.dtype)
        zero = torch.zeros((), dtype=running.dtype, device=running.device)
        share = steps.add(torch.full_like(zero, momentum), zero)
        kept = steps.mul(running, torch.full_like(zero, 1 - momentum))
        running.copy_(steps.add(kept, steps.mul(fresh, share)))
