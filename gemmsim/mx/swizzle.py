"""The order in which block-scaled tensor core instructions read scales: tiles of 128 rows and 4 columns."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim.backends.scale_layout import TILE, blocked
from gemmsim.ops.arrays import takes_arrays
from gemmsim.ops.checks import check_ints, check_tensor
from gemmsim.ops.errors import ShapeError, message

__all__ = ["from_blocked", "to_blocked"]

_ROWS, _COLUMNS = TILE


@takes_arrays
def to_blocked(scales: Tensor) -> Tensor:
    """Return the R x C ``scales`` as a flat tensor in the layout of cuBLAS, padded with zeros to whole 128 x 4 tiles.

    Tiles are in row-major order. In a tile, element (r, c) is at (r % 32) * 16 + (r // 32) * 4 + c. ``scales`` may
    have any dtype of one byte, including float8.
    Source: cuBLAS documentation, "1D block scaling factors layout".

    Raises:
        DTypeError: unless ``scales`` is a tensor.
        ShapeError: unless ``scales`` has two dimensions.

    Example:
        >>> flat = gs.mx.to_blocked(torch.arange(128, dtype=torch.uint8)[:, None].expand(128, 4))  # each row its number
        >>> flat[:20].tolist()
        [0, 0, 0, 0, 32, 32, 32, 32, 64, 64, 64, 64, 96, 96, 96, 96, 1, 1, 1, 1]
    """
    check_tensor("mx.to_blocked", "scales", scales)
    if scales.dim() != 2:
        asked = f"mx.to_blocked: scales have shape {tuple(scales.shape)}"
        raise ShapeError(message(asked, "two dimensions, rows and blocks", "Use scales.flatten(0, -2)."))
    return blocked(scales.view(torch.uint8)).view(scales.dtype)


@takes_arrays
def from_blocked(flat: Tensor, rows: int, columns: int) -> Tensor:
    """Return the rows x columns tensor whose ``to_blocked`` is ``flat``, without the padding.

    Raises:
        DTypeError: unless ``flat`` is a tensor and the sizes are integers.
        ShapeError: unless ``flat`` has as many elements as the padded tiles.

    Example:
        >>> scales = torch.arange(15, dtype=torch.uint8).reshape(3, 5)
        >>> torch.equal(gs.mx.from_blocked(gs.mx.to_blocked(scales), 3, 5), scales)
        True
    """
    check_tensor("mx.from_blocked", "flat", flat)
    check_ints("mx.from_blocked", rows=rows, columns=columns)
    down, across = -(-rows // _ROWS), -(-columns // _COLUMNS)
    if flat.numel() != down * across * _ROWS * _COLUMNS:
        asked = f"mx.from_blocked: {flat.numel()} elements for {rows} x {columns} scales"
        raise ShapeError(message(asked, f"{down * across * _ROWS * _COLUMNS}, whole tiles", "Check rows and columns."))
    tiles = flat.contiguous().view(torch.uint8).view(down, across, 32, 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(down * _ROWS, across * _COLUMNS)[:rows, :columns].contiguous().view(flat.dtype)
