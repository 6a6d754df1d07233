"""Operands in block formats: codes and scales with blocks along the contraction dimension."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gemmsim.formats import BlockFormat

__all__ = ["Coded"]


@dataclass(frozen=True)
class Coded:
    """``size`` elements along ``dim`` (-1 or -2), as codes in the bytes of ``packing``, with a scale for each block.

    ``tensor_scale`` is the second scale of formats that have one, else 1. ``gemmsim.backends.encoding`` computes the
    values that a ``Coded`` stands for. ``cpu.block_scaled`` and ``cuda.simt.encoded`` convert it to what kernels read.
    """

    codes: Tensor
    scales: Tensor
    format: BlockFormat
    dim: int
    size: int
    packing: str = "bytes"
    tensor_scale: float | Tensor = 1.0  # a tensor on the GPU for GPU operands, so that nothing waits

    @property
    def shape(self) -> torch.Size:
        """Shape of the tensor that it stands for."""
        shape = list(self.codes.shape)
        shape[self.dim] = self.size
        return torch.Size(shape)

    @property
    def transposed(self) -> Coded:
        """The same bytes with the last two dimensions exchanged."""
        return replace(self, codes=self.codes.mT, scales=self.scales.mT, dim=-3 - self.dim)

    @property
    def device(self) -> torch.device:
        """Device of its codes and scales."""
        return self.codes.device
