"""The order in which block-scaled instructions, and cuBLAS, read scales: tiles of 128 rows and 4 columns."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["TILE", "blocked"]

#: Rows and columns of a tile.
TILE = (128, 4)


def blocked(scales: Tensor) -> Tensor:
    """Return the R x C bytes ``scales``, padded with zeros to whole tiles, as a flat tensor.

    Tiles follow in row-major order. Element (r, c) of a tile is at (r % 32) * 16 + (r // 32) * 4 + c.

    Source: cuBLAS documentation, "1D block scaling factors layout".
    """
    rows, columns = scales.shape
    down, across = -(-rows // TILE[0]), -(-columns // TILE[1])
    padded = torch.zeros(down * TILE[0], across * TILE[1], dtype=torch.uint8, device=scales.device)
    padded[:rows, :columns] = scales
    return padded.view(down, 4, 32, across, 4).permute(0, 3, 2, 1, 4).reshape(-1)
