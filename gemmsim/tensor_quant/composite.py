"""Scaled casts made of PyTorch's own operators: what ``torch.onnx.export(..., dynamo=True)`` finds in a program.

Each of these operators has the bits of the operator without ``_composite`` in its name. PyTorch's exporter takes them
apart into operators that it has nodes for, unless a translation is given for them (``onnx_translations``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.registration import LIBRARY

from . import torch_fallback
from .grids import ElementGrid, Grid, IntegerGrid, grid_of

__all__ = ["affine_composite", "fake_composite", "in_onnx_program", "integers_composite"]


def in_onnx_program() -> bool:
    """Whether a program is being recorded for ONNX."""
    return torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export()


def _round_to(t: Tensor, grid: Grid) -> Tensor:
    """``eager.round_to`` without a look at bits, for which ONNX has no nodes."""
    if isinstance(grid, IntegerGrid):
        return t.clamp(grid.low, grid.high).round()
    t = t.clamp(-grid.maximum, grid.maximum)
    quantum = _quantum(t.abs(), grid)
    steps = t / quantum  # exact: a power of two
    return _nearest(steps, grid.ties) * quantum


def _quantum(magnitude: Tensor, grid: ElementGrid) -> Tensor | float:
    """The distance of ``grid``'s values around each magnitude; the least one at NaN."""
    quantum: Tensor | float = 2.0 ** (grid.emin - grid.trailing)
    for exponent in range(grid.emin + 1, math.frexp(grid.maximum)[1]):
        quantum = torch.where(magnitude >= 2.0**exponent, 2.0 ** (exponent - grid.trailing), quantum)
    return quantum


def _nearest(steps: Tensor, ties: str) -> Tensor:
    """The nearest integer; the sign of zero and NaN stay."""
    if ties == "even":
        return steps.round()
    magnitude = steps.abs()
    below = magnitude.floor()
    left = magnitude - below
    found = torch.where(left >= 0.5 if ties == "away" else left > 0.5, below + 1, below)
    return found * torch.where(1 / steps < 0, -1.0, 1.0)  # onnxruntime's Where has no -0


def _fake(x: Tensor, amax: Tensor | None, grid: str, bias: Tensor | None = None, propagate: bool = False) -> Tensor:
    return torch_fallback.fake_quantize(x, amax, grid_of(grid), bias, _round_to)


def _integers(x: Tensor, amax: Tensor, grid: str, propagate: bool = False) -> tuple[Tensor, Tensor]:
    meaning = grid_of(grid)
    assert isinstance(meaning, IntegerGrid)
    _, scale = torch_fallback.scales(amax.to(torch.float32), meaning)
    return torch_fallback.quantize_integers(x, amax, meaning), scale.to(x.dtype)


def _affine(x: Tensor, min_range: Tensor, max_range: Tensor, num_bits: int) -> Tensor:
    return torch_fallback.affine(x, min_range, max_range, num_bits)


def _define(schema: str, kernel: Callable[..., Any]) -> Any:
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, kernel, "CompositeImplicitAutograd")
    return getattr(torch.ops.gemmsim, name).default


fake_composite = _define(
    "tq_fake_quantize_composite(Tensor x, Tensor? amax, str grid, Tensor? bias=None, bool propagate=False) -> Tensor",
    _fake,
)
integers_composite = _define(
    "tq_integers_composite(Tensor x, Tensor amax, str grid, bool propagate=False) -> (Tensor, Tensor)", _integers
)
affine_composite = _define(
    "tq_affine_composite(Tensor x, Tensor min_range, Tensor max_range, int num_bits) -> Tensor", _affine
)
