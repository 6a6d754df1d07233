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
    """Fixed point of ``wl`` bits, ``fl`` of them binary places; ``AssertionError`` for fl < 1."""

    wl: int
    fl: int
    clamp: bool = True
    symmetric: bool = False

    def __post_init__(self) -> None:
        _check("FixedPoint", "wl", self.wl, 1)
        _check("FixedPoint", "fl", self.fl, 1)


@dataclass(frozen=True)
class FloatingPoint:
    """Floats of ``exp`` exponent bits, 1 to 8, and ``man`` trailing significand bits, 1 to 23."""

    exp: int
    man: int

    def __post_init__(self) -> None:
        _check("FloatingPoint", "exp", self.exp, 1, 8)
        _check("FloatingPoint", "man", self.man, 1, 23)


@dataclass(frozen=True)
class BlockFloatingPoint:
    """Integers of ``wl`` bits with an exponent for each index of ``dim``; -1: one for the tensor."""

    wl: int
    dim: int = -1

    def __post_init__(self) -> None:
        _check("BlockFloatingPoint", "wl", self.wl, 1)
        _check("BlockFloatingPoint", "dim", self.dim, -1)


Number: TypeAlias = FixedPoint | FloatingPoint | BlockFloatingPoint
