"""The index tables of implicit im2col: where products read their first operand and write their result."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Gathered"]


@dataclass(frozen=True)
class Gathered:
    """Locations of the operands and the result of ``groups`` products; all strides are in elements.

    Row m of a group is ``(outer, inner) = divmod(m, len(rows))``. Element (m, k) of the first operand of group g is at
    ``g * a_group + outer * a_outer + rows[inner] + cols[k]``. Element (m, n) of the result is at ``g * c_group + outer
    * c_outer + inner * c_row + n * c_col``. Random bits belong to (m, g * N + n).
    """

    rows: Tensor
    cols: Tensor
    outer: int
    a_group: int
    a_outer: int
    c_group: int
    c_outer: int
    c_row: int
    c_col: int
