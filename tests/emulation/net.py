"""The net: PyTorch's own decompositions and gradients, in which only the leaf products are replaced.

Leaves are replaced where PyTorch keeps the CPU's kernels, below autograd, autocast and everything composed, so that no
call goes around them. Each is one product by ``qmatmul`` (which has oracles of its own), written out plainly. A leaf
does not know whose gradient it computes: one spec without operand casts serves for all roles.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from support import conv
from torch import Tensor

import gemmsim as gs

__all__ = ["net"]


@contextmanager
def net(spec: str) -> Iterator[_Leaves]:
    """PyTorch with its leaf products on the CPU computed as ``spec`` says, forward and backward."""
    leaves = _Leaves(spec)
    library = torch.library.Library("aten", "IMPL", "CPU")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a kernel is registered over PyTorch's: that is the purpose
        for name in ("mm", "bmm", "dot", "vdot"):
            _register(library, name, leaves.product, "vdot" not in name and "dot" not in name)
        for name in ("addmm", "addmv", "baddbmm"):
            _register(library, name, leaves.addition, True, True)
        library.impl("convolution", leaves.convolution)
        library.impl("convolution_backward", leaves.convolution_backward)
    try:
        yield leaves
    finally:
        library._destroy()


def _register(library, name, run, has_out, in_place=False) -> None:
    library.impl(name, run)
    if has_out:
        library.impl(f"{name}.out", lambda *args, out, **kwargs: _written(out, run(*args, **kwargs)))
    if in_place:
        library.impl(f"{name}_", lambda c, *args, **kwargs: c.copy_(run(c, *args, **kwargs)))


def _written(out: Tensor, result: Tensor) -> Tensor:
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)


class _Leaves:
    """The leaf products in one spec."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self.calls = 0

    def wide(self, a: Tensor, b: Tensor) -> Tensor:
        """The product before it is rounded to the operands' dtype."""
        self.calls += 1
        return gs.qmatmul(a, b, self.spec, out_dtype=torch.promote_types(a.dtype, torch.float32))

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        return self.wide(a, b).to(a.dtype)

    def addition(self, c: Tensor, a: Tensor, b: Tensor, *, beta=1, alpha=1) -> Tensor:
        out = self.wide(a, b)
        if alpha != 1:
            out = out * alpha
        if beta != 0:
            out = out + (c.to(out.dtype) * beta)
        return out.to(a.dtype)

    def convolution(self, x, weight, bias, stride, padding, dilation, transposed, extra, groups) -> Tensor:
        kernel, n = weight.shape[2:], x.dim() - 2
        stride, padding, dilation, extra = (v * n if len(v) == 1 else v for v in (stride, padding, dilation, extra))
        wide = torch.promote_types(x.dtype, torch.float32)
        images, filters = x.to(wide), weight.to(wide)
        sizes = []
        for n, k, s, p, d, e in zip(x.shape[2:], kernel, stride, padding, dilation, extra, strict=True):
            span = d * (k - 1) + 1
            sizes.append((n - 1) * s - 2 * p + span + e if transposed else (n + 2 * p - span) // s + 1)
        how = (self.spec, tuple(sizes), stride, padding, dilation, groups)
        out = (conv.transposed if transposed else conv.conv)(images, filters, *how)
        if bias is not None:
            out = out + bias.to(out.dtype).reshape(-1, *(1 for _ in kernel))
        return out.to(x.dtype)

    def convolution_backward(
        self, grad, x, weight, bias_sizes, stride, padding, dilation, transposed, extra, groups, mask
    ) -> tuple[Tensor | None, ...]:
        wide = torch.promote_types(x.dtype, torch.float32)
        g, images, filters = grad.to(wide), x.to(wide), weight.to(wide)
        n = x.dim() - 2
        stride, padding, dilation = (v * n if len(v) == 1 else v for v in (stride, padding, dilation))
        kernel, how = tuple(weight.shape[2:]), (stride, padding, dilation, groups)
        grad_x = grad_w = grad_b = None
        if mask[0]:
            back = conv.conv if transposed else conv.transposed
            grad_x = back(g, filters, self.spec, tuple(x.shape[2:]), *how).to(x.dtype)
        if mask[1]:
            large, small = (g, images) if transposed else (images, g)
            grad_w = conv.weight_gradient(large, small, self.spec, kernel, *how).to(x.dtype)
        if mask[2]:
            grad_b = grad.transpose(0, 1).flatten(1).sum(1)
        return grad_x, grad_w, grad_b
