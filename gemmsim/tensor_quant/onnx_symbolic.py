"""ONNX nodes of the quantisers, for ``torch.onnx.export(..., dynamo=False)``; opset 13 or later.

Integers become QuantizeLinear and DequantizeLinear of the standard; Mul, Round, Clip and Div where these two have other
integers. Floats and blocks become the nodes of TensorRT's domain ``trt``, in the order in which ModelOpt emits them.
``g`` is the exporter's graph, tensors are its values; ``amax`` of integers may also be a tensor or a number.
"""

from __future__ import annotations

from typing import Any

import torch

from .errors import BitsError, ExportError, message
from .grids import IntegerGrid
from .torch_fallback import TINY_AMAX

__all__ = [
    "OPSET",
    "check_no_bias",
    "export_affine",
    "export_dynamic_block",
    "export_fp8",
    "export_int4",
    "export_int8",
    "export_integers",
    "no_export",
]

#: Least opset: from it on QuantizeLinear has an axis.
OPSET = 13
_ONNX_TYPES = {"Float": 1, "Half": 10, "BFloat16": 16}
_NAMES = {"Float": "Float", "Double": "Double", "Half": "Half", "BFloat16": "BFloat16"}


def no_export(what: str, do: str) -> ExportError:
    """The error for what ONNX has no node for."""
    return ExportError(message(f"ONNX export of {what}", "int8, int4 blocks, E4M3, MXFP8, NVFP4", do))


def check_no_bias(bias: Any) -> None:
    """``ExportError`` for a bias: the nodes have none."""
    if bias is not None and not bias.node().mustBeNone():
        raise no_export("a quantiser with bias", "Take the bias off before, and add it after.")


def _check_opset(g: Any) -> None:
    if g.opset < OPSET:
        asked = f"ONNX export with opset_version={g.opset}"
        raise ExportError(message(asked, f"{OPSET} or later", f"Give torch.onnx.export opset_version={OPSET}."))


def _constant(g: Any, value: torch.Tensor) -> Any:
    return g.op("Constant", value_t=value)


def _cast(g: Any, x: Any, dtype: str) -> Any:
    return g.op("Cast", x, to_i=_ONNX_TYPES[dtype])


def _dtype_of(x: Any) -> str:
    kind = x.type().scalarType()
    return _NAMES.get(kind, "Float")


def _around(g: Any, inputs: Any, dtype: str | None) -> tuple[Any, str | None]:
    """The inputs in the dtype wanted around the nodes, and the dtype to return to (None: no change)."""
    own = _dtype_of(inputs)
    if dtype is None or dtype == own:
        return inputs, None
    if dtype not in _ONNX_TYPES:
        raise ExportError(message(f"trt_high_precision_dtype={dtype!r}", ", ".join(_ONNX_TYPES), "Give one of these."))
    return _cast(g, inputs, dtype), own


def _back(g: Any, out: Any, own: str | None) -> Any:
    return out if own is None else _cast(g, out, own)


def _value(g: Any, amax: Any) -> Any:
    """``amax`` as a value of the graph."""
    return amax if isinstance(amax, torch.Value) else _constant(g, torch.as_tensor(amax, dtype=torch.float32))


def _axis(amax: Any) -> int | None:
    """The one dimension of amax that is not of size one."""
    sizes = amax.type().sizes() or []
    wide = [d for d, n in enumerate(sizes) if n != 1]
    if len(wide) > 1:
        raise ExportError(
            message(f"ONNX export of an amax of shape {sizes}", "amax along one axis at most", "Quantise per axis.")
        )
    return wide[0] if wide else None


def _scale(g: Any, amax: Any, high: float, axis: int | None) -> Any:
    """amax / high, 1 where that is 0; a scalar, or one entry for each index of the axis."""
    shape = [-1] if axis is not None else []
    flat = g.op("Reshape", amax, _constant(g, torch.tensor(shape, dtype=torch.int64)))
    scale = g.op("Div", _cast(g, flat, "Float"), _constant(g, torch.tensor(high)))
    zero = g.op("Equal", scale, _constant(g, torch.tensor(0.0)))
    return g.op("Where", zero, _constant(g, torch.tensor(1.0)), scale)


def _pair(g: Any, inputs: Any, scale: Any, zero_point: Any, axis: int | None) -> Any:
    where = {} if axis is None else {"axis_i": axis}
    q = g.op("QuantizeLinear", inputs, scale, zero_point, **where)
    return g.op("DequantizeLinear", q, scale, zero_point, **where)


def _like(g: Any, inputs: Any, out: Any) -> Any:
    """``out`` declared of the type and shape of ``inputs``."""
    out.setType(inputs.type())
    return out


def _check_eight(num_bits: int, do: str) -> None:
    if num_bits != 8:
        raise BitsError(message(f"ONNX export of {num_bits} bits", "8 bits", do))


def _integers(g: Any, x: Any, amax: Any, grid: IntegerGrid) -> tuple[Any, Any]:
    """The integers as floats, and the scale, 1 for an amax of no scale: the same operations as the function's."""
    amax = _cast(g, _value(g, amax), "Float")
    scale = g.op("Div", _constant(g, torch.tensor(grid.high)), amax)
    tiny = g.op("LessOrEqual", amax, _constant(g, torch.tensor(TINY_AMAX)))
    before = g.op("Where", tiny, _constant(g, torch.tensor(0.0)), scale)
    ends = (_constant(g, torch.tensor(end)) for end in (grid.low, grid.high))
    q = g.op("Clip", g.op("Round", g.op("Mul", _cast(g, x, "Float"), before)), *ends)
    return q, g.op("Where", tiny, _constant(g, torch.tensor(1.0)), scale)


def export_integers(g: Any, inputs: Any, amax: Any, grid: IntegerGrid, dtype: str | None = None) -> tuple[Any, Any]:
    """Mul, Round and Clip: the integers as floats, and their scale, in the inputs' dtype.

    Raises:
        BitsError: unless the grid has 8 bits.
    """
    _check_opset(g)
    _check_eight(grid.num_bits, "Quantise to 8 bits.")
    x, _ = _around(g, inputs, dtype)
    q, scale = _integers(g, x, amax, grid)
    own = inputs.type().scalarType()
    return _like(g, inputs, _to(g, q, own)), _to(g, scale, own)


def _to(g: Any, x: Any, own: str | None) -> Any:
    """``x`` cast from float32 to the dtype of this name."""
    return x if own in (None, "Float") else g.op("Cast", x, to_i={**_ONNX_TYPES, "Double": 11}[own])


def export_int8(
    g: Any, inputs: Any, amax: Any, num_bits: int, unsigned: bool, narrow_range: bool, dtype: str | None
) -> Any:
    """QuantizeLinear and DequantizeLinear with scale amax / hi and zero points of 0.

    With ``narrow_range``, for which QuantizeLinear has no integers, Mul, Round, Clip and Div: the function's own bits.

    Raises:
        BitsError: unless ``num_bits`` is 8.
        ExportError: for an amax with several axes without ``narrow_range``.
    """
    _check_opset(g)
    _check_eight(num_bits, "Quantise to 8 bits, or int4 blocks.")
    if narrow_range and not unsigned:
        x, own = _around(g, inputs, dtype)
        q, scale = _integers(g, x, amax, IntegerGrid(8))
        y = g.op("Div", q, scale)
        return _like(g, inputs, _back(g, _to(g, y, dtype or inputs.type().scalarType()), own))
    amax = _value(g, amax)
    axis = _axis(amax)
    x, own = _around(g, inputs, dtype)
    scale = _scale(g, amax, 255.0 if unsigned else 127.0, axis)
    size = [amax.type().sizes()[axis]] if axis is not None else []
    zero = _constant(g, torch.zeros(size, dtype=torch.uint8 if unsigned else torch.int8))
    if dtype is None and _dtype_of(inputs) in ("Half", "BFloat16", "Double"):
        x, own = _cast(g, inputs, "Float"), _dtype_of(inputs)
    return _like(g, inputs, _back(g, _pair(g, x, scale, zero, axis), own if own != "Double" else None))


def export_affine(g: Any, inputs: Any, low: Any, high: Any, num_bits: int) -> Any:
    """QuantizeLinear and DequantizeLinear with the scale and zero point of a range.

    Raises:
        BitsError: for another number of bits than 8.
    """
    _check_opset(g)
    _check_eight(num_bits, "Quantise to 8 bits.")
    axis = _axis(low)
    shape = _constant(g, torch.tensor([-1] if axis is not None else [], dtype=torch.int64))
    lower, upper = (_cast(g, g.op("Reshape", t, shape), "Float") for t in (low, high))
    step = g.op("Div", g.op("Sub", upper, lower), _constant(g, torch.tensor(255.0)))
    zero = g.op("Sub", _constant(g, torch.tensor(-128.0)), g.op("Round", g.op("Div", lower, step)))
    clipped = g.op("Max", g.op("Min", zero, _constant(g, torch.tensor(127.0))), _constant(g, torch.tensor(-128.0)))
    return _like(g, inputs, _pair(g, inputs, step, g.op("Cast", clipped, to_i=3), axis))


def export_int4(
    g: Any, inputs: Any, amax: Any, num_bits: int, dtype: str | None, block_size: int, axis: int | None
) -> Any:
    """trt::DequantizeLinear of int4 blocks, scale amax / 7.

    Raises:
        BitsError: for another number of bits than 4.
    """
    if num_bits != 4:
        raise BitsError(message(f"ONNX export of blocks of {num_bits} bits", "4 bits", "Use num_bits=4."))
    x, own = _around(g, inputs, dtype)
    scale = g.op("Div", amax, _constant(g, torch.tensor(7.0)))
    out = g.op("trt::DequantizeLinear", x, scale, axis_i=-1 if axis is None else axis, block_size_i=block_size)
    return _like(g, inputs, _back(g, out, own))


def export_fp8(g: Any, inputs: Any, amax: Any, E: int, M: int, dtype: str | None) -> Any:
    """trt::TRT_FP8QuantizeLinear and TRT_FP8DequantizeLinear with scale amax / 448, 1 without amax.

    Raises:
        ExportError: for other floats than E4M3, and an amax per axis.
    """
    if (E, M) != (4, 3):
        raise no_export(f"floats with E={E}, M={M}", "Use E=4, M=3.")
    if amax is None or amax.node().mustBeNone():
        scale = _constant(g, torch.tensor(1.0))
    else:
        if _axis(amax) is not None:
            raise ExportError(message("ONNX export of E4M3 with amax per axis", "one amax", "Quantise per tensor."))
        scale = _scale(g, amax, 448.0, None)
    x, own = _around(g, inputs, dtype)
    q = g.op("trt::TRT_FP8QuantizeLinear", x, scale)
    q.setType(inputs.type().with_dtype(torch.uint8))
    return _like(g, inputs, _back(g, g.op("trt::TRT_FP8DequantizeLinear", q, scale), own))


def export_dynamic_block(
    g: Any, inputs: Any, block_size: int, amax: Any, num_bits: Any, scale_bits: Any, dtype: str | None, kind: str
) -> Any:
    """The nodes of MXFP8 (e4m3 elements, e8m0 scales) and NVFP4 (e2m1 elements, e4m3 scales).

    ``kind``: "dynamic", or "static" for the placeholder node trt::TRT_FP4QDQ of weights.

    Raises:
        ExportError: for other blocks, and NVFP4 without amax.
    """
    x, own = _around(g, inputs, dtype)
    if tuple(num_bits) == (4, 3) and tuple(scale_bits) == (8, 0):
        q, scale = g.op(
            "trt::TRT_MXFP8DynamicQuantize", x, axis_i=-1, block_size_i=block_size, output_dtype_i=17, outputs=2
        )
        out = g.op("trt::TRT_MXFP8DequantizeLinear", q, scale, axis_i=-1, block_size_i=block_size, output_dtype_i=1)
        return _like(g, inputs, _back(g, out, own))
    if tuple(num_bits) != (2, 1) or tuple(scale_bits) != (4, 3):
        raise no_export(f"blocks with num_bits={num_bits}, scale_bits={scale_bits}", "Use MXFP8 or NVFP4.")
    if kind == "static":
        return _like(g, inputs, _back(g, g.op("trt::TRT_FP4QDQ", x, block_size_i=block_size), own))
    if amax is None or amax.node().mustBeNone():
        raise ExportError(message("ONNX export of NVFP4 without amax", "the tensor's amax", "Calibrate first."))
    scale = g.op("Div", g.op("Div", amax, _constant(g, torch.tensor(6.0))), _constant(g, torch.tensor(448.0)))
    q, first = g.op(
        "trt::TRT_FP4DynamicQuantize", x, scale, axis_i=-1, block_size_i=block_size, scale_type_i=17, outputs=2
    )
    first = g.op("trt::DequantizeLinear", first, scale)
    return _like(g, inputs, _back(g, g.op("trt::DequantizeLinear", q, first, axis_i=-1, block_size_i=block_size), own))
