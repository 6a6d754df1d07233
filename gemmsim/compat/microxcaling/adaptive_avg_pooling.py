"""microxcaling's ``mx.adaptive_avg_pooling``: sums and quotients rounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .module import Specified
from .specs import MxSpecs, apply_mx_specs, get_backwards_mx_specs, mx_assert_test
from .vector_ops import Vector

__all__ = ["AdaptiveAvgPool2d", "adaptive_avg_pool2d"]

_plain = functional.adaptive_avg_pool2d


def _windows(size: int, count: int) -> list[slice]:
    """``count`` windows over ``size`` elements, PyTorch's."""
    return [slice(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


class _Pool(torch.autograd.Function):
    """Means of windows of the last two dimensions."""

    @staticmethod
    def _each(shape: torch.Size, counts: list[int]) -> Iterator[tuple[int, int, slice, slice]]:
        columns = _windows(shape[-1], counts[1])
        for i, rows in enumerate(_windows(shape[-2], counts[0])):
            for j, window in enumerate(columns):
                yield i, j, rows, window

    @staticmethod
    def forward(ctx: Any, x: Tensor, counts: list[int], specs: MxSpecs) -> Tensor:
        """The rounded sum of each window over its size, rounded; the input is taken as it is."""
        v = Vector(specs)
        ctx.specs, ctx.shape, ctx.counts = get_backwards_mx_specs(specs), x.shape, counts
        out = x.new_empty([*x.shape[:-2], *counts])
        for i, j, rows, columns in _Pool._each(x.shape, counts):
            out[..., i, j] = v.mean(x[..., rows, columns], [-2, -1], keepdim=False)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Each window's share, added in the order of the results, every sum rounded."""
        v = Vector(ctx.specs)
        total = grads[0].new_zeros(ctx.shape)
        for i, j, rows, columns in _Pool._each(ctx.shape, ctx.counts):
            share = grads[0][..., i, j] / (rows.stop - rows.start) / (columns.stop - columns.start)
            total[..., rows, columns] = v.add(total[..., rows, columns], share[..., None, None])
        return total, None, None


def adaptive_avg_pool2d(input: Tensor, output_size: Any, mx_specs: Any = None, name: str | None = None) -> Tensor:
    """The means of ``output_size`` windows: a number, a pair, or None for the input's size.

    With ``mx_specs`` None it is PyTorch's.

    Raises:
        KeyError: for an unknown key in ``mx_specs``.
        ValueError: for other sizes and inputs not of 4 dimensions; for settings that mean nothing; with
            ``MX_ASSERT=True`` in the environment for ``mx_specs`` None.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.adaptive_avg_pool2d(torch.tensor([[[[1.0, 1.3]]]]), 1, mx_specs={"bfloat": 12})
        tensor([[[[1.1250]]]])
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return _plain(input, output_size)
    if input.dim() != 4:
        raise ValueError(f"adaptive_avg_pool2d: input of {input.dim()} dimensions; allowed: 4. Use input[None].")
    sizes = [output_size] * 2 if output_size is None or isinstance(output_size, int) else list(output_size)
    if len(sizes) != 2:
        raise ValueError(f"adaptive_avg_pool2d: output_size={output_size!r}; allowed: one or two sizes.")
    counts = [given or size for given, size in zip(sizes, input.shape[-2:], strict=True)]
    result: Tensor = _Pool.apply(input, counts, apply_mx_specs(mx_specs))
    return result


class AdaptiveAvgPool2d(Specified, torch.nn.AdaptiveAvgPool2d):
    """``torch.nn.AdaptiveAvgPool2d`` through ``adaptive_avg_pool2d``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.AdaptiveAvgPool2d(1, mx_specs={"bfloat": 12})(torch.tensor([[[[1.0, 1.3]]]]))
        tensor([[[[1.1250]]]])
    """

    def __init__(self, output_size: Any, mx_specs: Any = None, name: str | None = None) -> None:
        super().__init__(output_size)
        self._specify(mx_specs, name)

    def forward(self, inputs: Tensor) -> Tensor:
        """Means of windows of ``inputs``."""
        return adaptive_avg_pool2d(inputs, self.output_size, None if self.mx_none else self.mx_specs)
