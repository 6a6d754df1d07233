"""What the processes of a distributed training run share of delayed scales."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gemmsim.ops.product.amax_history import NAME

from .conversion import arithmetic_of
from .steps import all_histories

__all__ = ["reduce_amax"]


def reduce_amax(model: nn.Module | None = None, group: Any = None) -> None:
    """Makes the largest magnitudes that this step noted those of all processes, so that their delayed scales agree.

    Call it after ``backward``, in every process, once a step: one ``all_reduce`` of three numbers for each product. In
    one process, and without ``torch.distributed``, it changes nothing.

    Args:
        model: its layers with delayed scales (``gemmsim.nn.QLinear``), and its converted modules; None: what
            ``gemmsim.emulate`` keeps in this process.
        group: of processes, as ``torch.distributed.all_reduce`` takes it; None: all.

    NaN and infinities do not count for the largest magnitude, as everywhere.

    Example:
        >>> layer = gs.nn.QLinear(4, 4, spec="hopper_fp8_delayed(16)")
        >>> layer(torch.ones(2, 4)).sum().backward()
        >>> gs.emulation.reduce_amax(layer)  # in every process
    """
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return
    histories = _of(model) if model is not None else all_histories()
    if not histories:
        return
    noted = torch.stack([history[:, 0] for history in histories])
    torch.distributed.all_reduce(noted, torch.distributed.ReduceOp.MAX, group=group)
    for history, found in zip(histories, noted, strict=True):
        history[:, 0].copy_(found)


def _of(model: nn.Module) -> list[Tensor]:
    found = [module._buffers[NAME] for _, module in model.named_modules() if module._buffers.get(NAME) is not None]
    arithmetic = arithmetic_of(model)
    if arithmetic is not None:
        found += [history for _, history in sorted(arithmetic.steps.histories.items())]
    return found
