"""``torch.ops.gemmsim.tq_*``: scaled casts as operators with fake kernels, for ``torch.compile`` and ``torch.export``.

Grids cross as strings (see ``grids``). The operators have no gradient: the public functions have.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from gemmsim.backends import cpu
from gemmsim.backends.backend import backend_name, backend_of
from gemmsim.ops import last_run
from gemmsim.ops.checks import check_float
from gemmsim.ops.registration import define

from . import batching, composite, torch_fallback
from .checks import check_amax, check_range, check_scale_fits, check_sign, negative_inputs
from .grids import Grid, IntegerGrid, grid_of

__all__ = ["affine_op", "blocks_op", "blocks_out_op", "checked_op", "fake_op", "fake_out_op", "integers_op"]


def _fake_into(x: Tensor, amax: Tensor | None, grid: str, bias: Tensor | None, propagate: bool, out: Tensor) -> None:
    meaning = grid_of(grid)
    if amax is not None:
        check_amax("fake quantisation", amax, propagate)
    unsigned = isinstance(meaning, IntegerGrid) and meaning.unsigned
    if unsigned and x.data_ptr() == out.data_ptr():  # before the inputs are overwritten
        check_sign("fake quantisation", x if bias is None else x - bias)
    if out.numel() and backend_of(x).scaled_cast(x, meaning.numbers, out, amax=amax, bias=bias):
        raise negative_inputs("fake quantisation")
    _record("tq_fake_quantize", grid, x)


def _fake(x: Tensor, amax: Tensor | None, grid: str, bias: Tensor | None = None, propagate: bool = False) -> Tensor:
    out = torch.empty_like(x)
    _fake_into(x, amax, grid, bias, propagate, out)
    return out


def _integers(x: Tensor, amax: Tensor, grid: str, propagate: bool = False) -> tuple[Tensor, Tensor]:
    meaning = grid_of(grid)
    assert isinstance(meaning, IntegerGrid)
    check_amax("tensor_quant", amax, propagate)
    _, scale = torch_fallback.scales(amax.to(torch.float32), meaning)
    if x.dtype is torch.float16:
        check_scale_fits("tensor_quant", scale)
    q = torch.empty_like(x)
    if q.numel() and backend_of(x).scaled_cast(x, meaning.numbers, q, amax=amax, integers=True):
        raise negative_inputs("tensor_quant")
    _record("tq_integers", grid, x)
    return q, scale.to(x.dtype)


def _affine(x: Tensor, min_range: Tensor, max_range: Tensor, num_bits: int) -> Tensor:
    check_range("fake_affine_tensor_quant", min_range, max_range, num_bits)
    out = torch.empty_like(x)
    if out.numel():
        backend_of(x).affine_cast(x, min_range, max_range, num_bits, out)
    _record("tq_affine", f"affine int{num_bits}", x)
    return out


def _blocks_into(
    x: Tensor, grid: str, size: int, scale: str, amax: Tensor | None, propagate: bool, out: Tensor
) -> None:
    meaning = grid_of(grid)
    if scale == "e4m3":
        amax = x.abs().amax().to(torch.float32) if amax is None and x.numel() else amax
        if amax is not None:
            check_amax("dynamic_block_quant", amax, propagate)
    unsigned = isinstance(meaning, IntegerGrid) and meaning.unsigned
    if unsigned and x.data_ptr() == out.data_ptr():
        check_sign("dynamic_block_quant", x)
    if out.numel():
        status = _block_pass(x, meaning, size, scale, amax, propagate, out)
        if status & cpu.NEGATIVE_INPUT:
            raise negative_inputs("dynamic_block_quant")
        if status & cpu.AMAX_NOT_FINITE and not propagate:
            check_amax("dynamic_block_quant", x.abs().amax(), False)
    _record("tq_blocks", f"{grid}, blocks of {size}, {scale} scales", x)


def _blocks(x: Tensor, grid: str, size: int, scale: str, amax: Tensor | None = None, propagate: bool = False) -> Tensor:
    out = torch.empty_like(x)
    _blocks_into(x, grid, size, scale, amax, propagate, out)
    return out


def _block_pass(x: Tensor, grid: Grid, size: int, scale: str, amax: Tensor | None, propagate: bool, out: Tensor) -> int:
    """Run the kernel; the sum of its status bits."""
    backend: Any = backend_of(x)  # the tensors' second scale stays on the GPU
    if backend is cpu:
        second = torch_fallback.second_scale(amax, grid) if amax is not None and scale == "e4m3" else 0.0
        return cpu.scaled_blocks(x, grid.numbers, size, scale, second, out)
    unsigned = isinstance(grid, IntegerGrid) and grid.unsigned
    check = unsigned or (scale != "e8m0" and not propagate)  # what may have to raise waits for the GPU
    status: int = backend.scaled_blocks(
        x, grid.numbers, size, scale, amax if scale == "e4m3" else None, out, check=check
    )
    return status


def _checked(amax: Tensor, owner: str, propagate: bool = False) -> Tensor:
    """A copy of ``amax``, when it is one; an operator, so that compiled code checks too."""
    check_amax(owner, amax, propagate)
    return amax.clone()


def _checked_fake(amax: Tensor, owner: str, propagate: bool = False) -> Tensor:
    return torch.empty_like(amax)


def _record(operator: str, key: str, x: Tensor) -> None:
    last_run.record(operator, backend_name(x), key, f"{x.numel()} elements {x.dtype}, one pass")


def _fake_fake(
    x: Tensor, amax: Tensor | None, grid: str, bias: Tensor | None = None, propagate: bool = False
) -> Tensor:
    check_float("tensor_quant", "inputs", x)
    return torch.empty_like(x)


def _integers_fake(x: Tensor, amax: Tensor, grid: str, propagate: bool = False) -> tuple[Tensor, Tensor]:
    check_float("tensor_quant", "inputs", x)
    return torch.empty_like(x), torch.empty_like(amax, dtype=x.dtype)


def _affine_fake(x: Tensor, min_range: Tensor, max_range: Tensor, num_bits: int) -> Tensor:
    check_float("fake_affine_tensor_quant", "inputs", x)
    return torch.empty_like(x)


def _blocks_fake(
    x: Tensor, grid: str, size: int, scale: str, amax: Tensor | None = None, propagate: bool = False
) -> Tensor:
    check_float("dynamic_block_quant", "inputs", x)
    return torch.empty_like(x)


_define = partial(define, tags=(torch.Tag.needs_exact_strides,))
_fake_op = _define(
    "tq_fake_quantize(Tensor x, Tensor? amax, str grid, Tensor? bias=None, bool propagate=False) -> Tensor",
    _fake,
    _fake_fake,
    vmap=batching.fake_quantize,
)
fake_out_op = _define(
    "tq_fake_quantize_into(Tensor x, Tensor? amax, str grid, Tensor? bias, bool propagate, Tensor(a!) out) -> ()",
    _fake_into,
)
_integers_op = _define(
    "tq_integers(Tensor x, Tensor amax, str grid, bool propagate=False) -> (Tensor, Tensor)",
    _integers,
    _integers_fake,
    vmap=batching.integers,
)
_affine_op = _define(
    "tq_affine(Tensor x, Tensor min_range, Tensor max_range, int num_bits) -> Tensor",
    _affine,
    _affine_fake,
    vmap=batching.affine,
)
blocks_op = _define(
    "tq_blocks(Tensor x, str grid, SymInt size, str scale, Tensor? amax=None, bool propagate=False) -> Tensor",
    _blocks,
    _blocks_fake,
    vmap=batching.blocks,
)
blocks_out_op = _define(
    "tq_blocks_into(Tensor x, str grid, SymInt size, str scale, Tensor? amax, bool propagate, Tensor(a!) out) -> ()",
    _blocks_into,
)
checked_op = _define(
    "tq_checked(Tensor amax, str owner, bool propagate=False) -> Tensor",
    _checked,
    _checked_fake,
    vmap=batching.checked,
)


def fake_op(x: Tensor, amax: Tensor | None, grid: str, bias: Tensor | None = None, propagate: bool = False) -> Tensor:
    """``tq_fake_quantize``, in a program for ONNX the operator of the same bits that the exporter takes apart."""
    op = composite.fake_composite if composite.in_onnx_program() else _fake_op
    result: Tensor = op(x, amax, grid, bias, propagate)
    return result


def integers_op(x: Tensor, amax: Tensor, grid: str, propagate: bool = False) -> tuple[Tensor, Tensor]:
    """``tq_integers``, in a program for ONNX as ``fake_op``."""
    op = composite.integers_composite if composite.in_onnx_program() else _integers_op
    q, scale = op(x, amax, grid, propagate)
    return q, scale


def affine_op(x: Tensor, min_range: Tensor, max_range: Tensor, num_bits: int) -> Tensor:
    """``tq_affine``, in a program for ONNX as ``fake_op``."""
    op = composite.affine_composite if composite.in_onnx_program() else _affine_op
    result: Tensor = op(x, min_range, max_range, num_bits)
    return result
