"""What tests of mptorch's documentation share: its formats, PyTorch's own casts to them, sums and products step by step."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gemmsim.compat.mptorch import number

F16 = number.FloatingPoint(5, 10, True, False)
BF16 = number.FloatingPoint(8, 7, True, False)
E5M2 = number.FloatingPoint(5, 2, True, False)
F32 = number.FloatingPoint(8, 23, True, False)


def q16(x: Tensor) -> Tensor:
    return x.half().float()


def q8(x: Tensor) -> Tensor:
    return x.to(torch.float8_e5m2).float()


def h(value: float) -> float:
    """A double rounded once to float16."""
    return float(np.float16(value))


def randn(*shape: int, seed: int = 0) -> Tensor:
    return q8(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)))


def gradients(y: Tensor, *leaves: Tensor) -> tuple[Tensor, list[Tensor]]:
    """An incoming gradient and what it becomes."""
    g = q8(torch.randn(y.shape, generator=torch.Generator().manual_seed(9)))
    return g, list(torch.autograd.grad(y, leaves, g))


def leaf(x: Tensor) -> Tensor:
    return x.detach().clone().requires_grad_()


def same(got: Tensor, want: Tensor) -> None:
    assert got.shape == want.shape and torch.equal(got, want), (got - want).abs().max()


def slow_product(a: Tensor, b: Tensor, fused: bool) -> Tensor:
    """Sums in float16, one term after the other; products rounded to bfloat16 unless fused. Operands have 3 bits."""
    out = torch.zeros(a.shape[0], b.shape[1])
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = 0.0
            for x, y in zip(a[i].tolist(), b[:, j].tolist(), strict=True):
                term = x * y if fused else torch.tensor(x * y).bfloat16().item()
                total = h(total + term)
            out[i, j] = total
    return out


def slow_sum(x: Tensor, dim: int, q) -> Tensor:
    total = torch.zeros_like(x.select(dim, 0))
    for k in range(x.shape[dim]):
        total = q(total + x.select(dim, k))
    return total
