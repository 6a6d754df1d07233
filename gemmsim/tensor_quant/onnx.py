"""Translations of the operators for ``torch.onnx.export(..., dynamo=True)``, which reads exported programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import operators  # noqa: F401  # registers the operators
from .errors import ExportError, message
from .grids import IntegerGrid, grid_of
from .torch_fallback import TINY_AMAX

__all__ = ["onnx_translations"]

_FLOAT8_OPSET = 19
#: Largest element and ONNX's number of the type, by grid.
_FLOAT8 = {"e4m3": (448.0, 17), "e5m2": (57344.0, 19)}


def onnx_translations(opset_version: int = 18) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return a ``custom_translation_table`` for ``torch.onnx.export``: int8 and affine casts as
    Quantize-/DequantizeLinear.

    Without it the exporter writes the casts' own arithmetic (Mul, Round, Clip, Div), with the functions' bits.

    Args:
        opset_version: the exporter's, 18 or later. From 19 on QuantizeLinear has float8: E4M3 and E5M2 casts use it.

    Scales, zero points, axes and refusals are those of the exporter with ``dynamo=False``, except that E4M3 has the
    standard's nodes instead of TensorRT's. Signed integers with narrow_range and ``tensor_quant`` become Mul, Round,
    Clip and Div, as there. Other elements and blocks, which have no node in the standard, raise ``ExportError``. The
    function needs the package onnxscript, as that exporter does.

    Example:
        >>> sorted(operator.name() for operator in gs.tensor_quant.onnx_translations())[:2]
        ['gemmsim::tq_affine', 'gemmsim::tq_affine_composite']
    """
    ops = torch.ops.gemmsim
    fake = _fake_quantize_float8 if opset_version >= _FLOAT8_OPSET else _fake_quantize
    return {
        ops.tq_fake_quantize.default: fake,
        ops.tq_fake_quantize_composite.default: fake,
        ops.tq_affine.default: _affine,
        ops.tq_affine_composite.default: _affine,
        ops.tq_integers.default: _integers,
        ops.tq_integers_composite.default: _integers,
        ops.tq_blocks.default: _refuse,
    }


def _refuse(x: Any, *args: Any, **kwargs: Any) -> Any:
    raise ExportError(
        message(
            "ONNX export of blocks with dynamo=True",
            "int8 and affine casts, from opset 19 on E4M3 and E5M2",
            "Use dynamo=False, which has TensorRT's nodes for E4M3, MXFP8 and NVFP4.",
        )
    )


def _axis(shape: Any) -> int | None:
    wide = [d for d, n in enumerate(shape) if n != 1]
    if len(wide) > 1:
        asked = f"ONNX export of an amax of shape {list(shape)}"
        raise ExportError(message(asked, "amax along one axis at most", "Quantise per axis."))
    return wide[0] if wide else None


def _flat(op: Any, t: Any, axis: int | None) -> Any:
    """A scalar, or one entry for each index of the axis, in float32."""
    shape = torch.tensor([-1] if axis is not None else [], dtype=torch.int64)
    return op.Cast(op.Reshape(t, op.Constant(value=_tensor(shape))), to=1)


def _tensor(t: torch.Tensor) -> Any:
    from onnxscript import ir

    return ir.tensor(t.numpy())


def _pair(op: Any, x: Any, scale: Any, zero: Any, axis: int | None) -> Any:
    where = {} if axis is None else {"axis": axis}
    return op.DequantizeLinear(op.QuantizeLinear(x, scale, zero, **where), scale, zero, **where)


def _steps(op: Any, x: Any, amax: Any, grid: IntegerGrid) -> tuple[Any, Any]:
    """The integers as floats, and the scale, 1 for an amax of no scale: the same operations as the function's."""
    amax = op.Cast(amax, to=1)
    scale = op.Div(op.Constant(value_float=grid.high), amax)
    tiny = op.LessOrEqual(amax, op.Constant(value_float=TINY_AMAX))
    before = op.Where(tiny, op.Constant(value_float=0.0), scale)
    ends = (op.Constant(value_float=end) for end in (grid.low, grid.high))
    q = op.Clip(op.Round(op.Mul(op.Cast(x, to=1), before)), *ends)
    return q, op.Where(tiny, op.Constant(value_float=1.0), scale)


def _integers(x: Any, amax: Any, grid: str, propagate: bool = False) -> Any:
    from onnxscript import opset18 as op

    meaning = grid_of(grid)
    assert isinstance(meaning, IntegerGrid)
    if meaning.num_bits != 8:
        raise ExportError(message(f"ONNX export of {grid} with dynamo=True", "8 bits", "Quantise to 8 bits."))
    q, scale = _steps(op, x, amax, meaning)
    return op.CastLike(q, x), op.CastLike(scale, x)


def _fake_quantize(x: Any, amax: Any, grid: str, bias: Any = None, propagate: bool = False) -> Any:
    from onnxscript import opset18 as op

    if grid == "int8/narrow" and amax is not None and bias is None:
        q, scale = _steps(op, x, amax, IntegerGrid(8))
        return op.CastLike(op.Div(q, scale), x)
    if grid not in ("int8", "uint8") or amax is None or bias is not None:
        asked = f"ONNX export of {grid}{'' if bias is None else ' with bias'} with dynamo=True and onnx_translations()"
        allowed = "8 bits (int8, uint8) and an amax, no bias; onnx_translations(19): e4m3, e5m2"
        do = "Describe the quantiser so, or leave custom_translation_table out for the cast's own arithmetic."
        raise ExportError(message(asked, allowed, do))
    axis = _axis(amax.shape)
    scale = op.Div(_flat(op, amax, axis), op.Constant(value_float=255.0 if grid == "uint8" else 127.0))
    scale = op.Where(op.Equal(scale, op.Constant(value_float=0.0)), op.Constant(value_float=1.0), scale)
    size = [] if axis is None else [amax.shape[axis]]
    dtype = torch.uint8 if grid == "uint8" else torch.int8
    zero = op.Constant(value=_tensor(torch.zeros(size, dtype=dtype)))
    return op.CastLike(_pair(op, op.Cast(x, to=1), scale, zero, axis), x)


def _fake_quantize_float8(x: Any, amax: Any, grid: str, bias: Any = None, propagate: bool = False) -> Any:
    """``_fake_quantize``, and for float8 elements QuantizeLinear of opset 19, which saturates as they do."""
    from onnxscript import opset19 as op

    if grid not in _FLOAT8 or bias is not None:
        return _fake_quantize(x, amax, grid, bias, propagate)
    maximum, number = _FLOAT8[grid]
    axis = None if amax is None else _axis(amax.shape)
    scale: Any = op.Constant(value_float=1.0)
    if amax is not None:
        flat = _flat(op, amax, axis)
        tiny = op.LessOrEqual(flat, op.Constant(value_float=TINY_AMAX))
        scale = op.Div(op.Where(tiny, op.Constant(value_float=1.0), flat), op.Constant(value_float=maximum))
    zeros: Any = op.Constant(value=_tensor(torch.zeros([] if axis is None else [amax.shape[axis]])))
    zero: Any = op.Cast(zeros, to=number)
    pair = _pair(op, op.Cast(x, to=1), scale, zero, axis)
    return op.CastLike(pair, x)


def _affine(x: Any, min_range: Any, max_range: Any, num_bits: int) -> Any:
    from onnxscript import opset18 as op

    if num_bits != 8:
        raise ExportError(message(f"ONNX export of affine {num_bits} bits", "8 bits", "Quantise to 8 bits."))
    axis = _axis(min_range.shape)
    low, high = _flat(op, min_range, axis), _flat(op, max_range, axis)
    step = op.Div(op.Sub(high, low), op.Constant(value_float=255.0))
    zero = op.Sub(op.Constant(value_float=-128.0), op.Round(op.Div(low, step)))
    near = op.Max(op.Min(zero, op.Constant(value_float=127.0)), op.Constant(value_float=-128.0))
    point = op.Cast(near, to=3)
    if _holds_zero(min_range, max_range):
        return _pair(op, x, step, point, axis)
    shape: Any = op.Constant(value=_tensor(torch.tensor(list(min_range.shape), dtype=torch.int64)))
    shift = op.CastLike(op.Reshape(op.Mul(op.Sub(zero, near), step), shape), x)
    return op.Sub(_pair(op, op.Add(x, shift), step, point, axis), shift)


def _holds_zero(low: Any, high: Any) -> bool:
    """Whether ranges are known to hold zero, so that their zero point is one of the 256 integers."""
    ends: list[Any] = [getattr(end, "const_value", None) for end in (low, high)]
    if None in ends:
        return False
    return bool((ends[0].numpy() <= 0).all() and (ends[1].numpy() >= 0).all())
