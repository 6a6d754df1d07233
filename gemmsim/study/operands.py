"""What a cell multiplies: random or given operands, brought into a format, with the true product beside them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import gemmsim as gs

from .distributions import draw
from .errors import StudyError

__all__ = ["Operands", "Placement", "drawn", "of_tensors", "placed", "placement"]

_SCALED_BY = ("row", "tensor", "none")
#: Of |a| |b|: a thousandth of what float32, the widest register whose errors are usually asked for, loses at a time.
_WITHIN = 2.0**-34


@dataclass(frozen=True)
class Operands:
    """a (M, K) and b (K, N) as the product gets them; ``truth`` = a b and ``size`` = |a| |b|, both float64 (M, N).

    ``method`` says how the truth was computed, see ``gemmsim.truth``.
    """

    a: Tensor
    b: Tensor
    truth: Tensor
    size: Tensor
    method: str

    @property
    def macs(self) -> int:
        """Multiply-adds of the product."""
        return self.a.shape[0] * self.a.shape[1] * self.b.shape[1]


@dataclass(frozen=True)
class Placement:
    """How operands come into a format: as they are where ``format`` is "", else scaled and rounded to nearest even.

    ``scaled`` by "row": the largest magnitude of each row of a and each column of b becomes the format's largest value;
    by "tensor": that of the whole operand; "none": not scaled.
    """

    format: str = ""
    scaled: str = "row"

    def __str__(self) -> str:
        return f"{self.format}/{self.scaled}" if self.format else ""

    def __call__(self, x: Tensor, dim: int) -> Tensor:
        """``x`` in the format, in float32; ``dim`` is the one that is summed over."""
        if not self.format:
            return x
        if self.scaled != "none" and x.numel():
            largest = x.abs().amax(dim=dim, keepdim=True) if self.scaled == "row" else x.abs().amax()
            top = float(gs.formats.parse_scalar(self.format).max)
            x = x * torch.where(largest > 0, top / largest, torch.ones(()))
        return gs.quantize(x, self.format)


def placement(given: object, name: str) -> Placement:
    """``e4m3``, ``e4m3/row``, ``e4m3/tensor``, ``e4m3/none``, or "" for operands as they are.

    Raises:
        StudyError: another word after the slash.
        FormatError: no such format.
    """
    if isinstance(given, Placement):
        return given
    if not isinstance(given, str):
        raise StudyError(f"{name} = {given!r}; allowed: a format such as e4m3/row, e4m3/tensor or e4m3/none.")
    fmt, slash, scaled = given.strip().rpartition("/")
    if not slash:
        fmt, scaled = given.strip(), "row"
    if not fmt:
        return Placement()
    if scaled not in _SCALED_BY:
        raise StudyError(f"{name} = {given!r}; after the slash: {', '.join(_SCALED_BY)}.")
    gs.formats.parse_scalar(fmt)
    return Placement(fmt, scaled)


def drawn(dist: str, m: int, k: int, n: int, seed: int, place: Placement, scale: float = 1.0) -> Operands:
    """Operands of a distribution, times ``scale``, placed in a format."""
    return of_tensors(*placed(dist, (m, k, n), seed, place, scale))


def placed(dist: str, shape: tuple[int, int, int], seed: int, place: Placement, scale: float) -> tuple[Tensor, Tensor]:
    """The tensors of ``drawn``, of ``shape`` (M, K, N), without their true product."""
    a, b = draw(dist, *shape, seed)
    if scale != 1:
        a, b = a * scale, b * scale
    return place(a, 1), place(b, 0)


def of_tensors(a: Tensor, b: Tensor) -> Operands:
    """``a`` and ``b`` with their true product and its size."""
    found = gs.truth(a, b, within=_WITHIN)
    return Operands(a, b, found.value, found.size, found.method)
