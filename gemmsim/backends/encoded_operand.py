"""Operands in block formats: codes and scales with blocks along the contraction dimension."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gemmsim.formats import BlockFormat

__all__ = ["Coded"]


@dataclass(frozen=True)
class Coded:
    """``size`` elements along ``dim`` (-1 or -2), in the bytes of ``packing``, with a scale for each block of them.

    ``tensor_scale``: of formats with a second scale, else 1. What it stands for: ``gemmsim.backends.encoding``; as a
    backend's kernels read it: ``cpu.coded`` and ``cuda.coded``.
    """

    codes: Tensor
    scales: Tensor
    format: BlockFormat
    dim: int
    size: int
    packing: str = "bytes"
    tensor_scale: float | Tensor = 1.0  # on a GPU a tensor there, so that nothing waits

    @property
    def shape(self) -> torch.Size:
        """Of the tensor it stands for."""
        shape = list(self.codes.shape)
        shape[self.dim] = self.size
        return torch.Size(shape)

    @property
    def transposed(self) -> Coded:
        """With its last two dimensions exchanged, the same bytes."""
        return replace(self, codes=self.codes.mT, scales=self.scales.mT, dim=-3 - self.dim)

    @property
    def device(self) -> torch.device:
        """Where its codes and scales are."""
        return self.codes.device
