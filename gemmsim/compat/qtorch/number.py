"""QPyTorch's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["BlockFloatingPoint", "FixedPoint", "FloatingPoint", "Number"]


def _check(owner: str, name: str, value: int, low: int, high: int | None = None) -> None:
    if not isinstance(value, int) or value < low or (high is not None and value > high):
        bounds = f"{low} to {high}" if high is not None else f"{low} or more"
        raise AssertionError(f"{owner}: {name}={value!r}; allowed: {bounds}.\n  Change {name}.")


@dataclass(frozen=True)
class FixedPoint:
    """Fixed point of ``wl`` bits, ``fl`` of them binary places.

    Raises:
        AssertionError: for ``fl`` below 1.

    Example:
        >>> from gemmsim.compat import qtorch
        >>> qtorch.quantizer(qtorch.FixedPoint(8, 4), forward_rounding="nearest")(torch.tensor([0.3, 100.0]))
        tensor([0.3125, 7.9375])
    """

    wl: int
    fl: int
    clamp: bool = True
    symmetric: bool = False

    def __post_init__(self) -> None:
        _check("FixedPoint", "wl", self.wl, 1)
        _check("FixedPoint", "fl", self.fl, 1)


@dataclass(frozen=True)
class FloatingPoint:
    """Floats of ``exp`` exponent bits, 1 to 8, and ``man`` trailing significand bits, 1 to 23.

    Example:
        >>> from gemmsim.compat import qtorch
        >>> qtorch.quantizer(qtorch.FloatingPoint(4, 3), forward_rounding="nearest")(torch.tensor([0.7, 1000.0]))
        tensor([  0.6875, 480.0000])
    """

    exp: int
    man: int

    def __post_init__(self) -> None:
        _check("FloatingPoint", "exp", self.exp, 1, 8)
        _check("FloatingPoint", "man", self.man, 1, 23)


@dataclass(frozen=True)
class BlockFloatingPoint:
    """Integers of ``wl`` bits with an exponent for each index of ``dim``; -1: one for the tensor.

    Example:
        >>> from gemmsim.compat import qtorch
        >>> round_ = qtorch.quantizer(qtorch.BlockFloatingPoint(wl=4, dim=0), forward_rounding="nearest")
        >>> round_(torch.tensor([[1.0, 0.3], [8.0, 0.3]]))
        tensor([[1.0000, 0.2500],
                [8.0000, 0.0000]])
    """

    wl: int
    dim: int = -1

    def __post_init__(self) -> None:
        _check("BlockFloatingPoint", "wl", self.wl, 1)
        _check("BlockFloatingPoint", "dim", self.dim, -1)


Number: TypeAlias = FixedPoint | FloatingPoint | BlockFloatingPoint
