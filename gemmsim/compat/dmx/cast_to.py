"""d-Matrix's cast module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gemmsim.nn import Emulated

from .single import Format

__all__ = ["CastTo"]


class _Straight(torch.autograd.Function):
    """A cast with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, fmt: Format, block_dim: int) -> Tensor:
        """``x`` in ``fmt``, in its dtype."""
        found: Tensor = fmt.cast(x, block_dim)
        return found.to(x.dtype).view_as(x) if found is x else found.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """The gradient itself."""
        return grad, None, None


class CastTo(Emulated, nn.Module):
    """Casts its input to ``format`` in the input's dtype; the gradient passes straight through.

    Args:
        format: a ``Format`` or its shorthand.
        block_dim: the dimension that blocks lie along.

    Raises:
        TypeError: for another kind of format. ValueError: for text that is no shorthand.
    """

    def __init__(self, format: str | Format = "SAME", block_dim: int = -1) -> None:
        super().__init__()
        self.format = Format.from_shorthand(format) if isinstance(format, str) else format
        if not isinstance(self.format, Format):
            kind = type(format).__name__
            raise TypeError(
                f"CastTo: format is a {kind}; allowed: a Format, or its shorthand.\n  Try 'BFP[8|8]{{64}}(SN)'."
            )
        self.block_dim = block_dim

    def forward(self, x: Tensor) -> Tensor:
        """``x`` in the format."""
        found: Tensor = _Straight.apply(x, self.format, self.block_dim)
        return found

    def extra_repr(self) -> str:
        """Format and dimension."""
        return f"format={self.format!r}, block_dim={self.block_dim}"
