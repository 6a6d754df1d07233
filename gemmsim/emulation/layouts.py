"""How results lie in memory: as PyTorch lays those of the same calls, of which models take views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from gemmsim.ops.strides import like_operand

__all__ = ["gradient_laid", "in_columns", "in_rows", "like_images", "like_operand"]


def like_images(out: Any, x: Tensor) -> Any:
    """``out`` with its channels last where those of images ``x`` lie so, as norms have it."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if last is None or not isinstance(out, Tensor) or suggest_memory_format(x) is not last:
        return out
    return out.contiguous(memory_format=last)


def in_rows(out: Any) -> Any:
    """``out`` contiguous, as softmax over any dimension has it."""
    return out.contiguous() if isinstance(out, Tensor) else out


def in_columns(out: Tensor) -> Tensor:
    """Matrices that lie column after column."""
    return out.mT.contiguous().mT


class _GradientLaid(torch.autograd.Function):
    """An operand as it is, whose gradient is laid anew."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, lay: Callable[[Tensor], Tensor]) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.lay = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.lay(grad), None


def gradient_laid(x: Tensor, lay: Callable[[Tensor], Tensor]) -> Tensor:
    """``x``, whose gradient lies as ``lay`` lays it. Compiled code lays its tensors itself."""
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and x.requires_grad):
        return x
    found: Tensor = _GradientLaid.apply(x, lay)
    return found
