"""Block quantisation: scales found in the data (MX, NVFP4, plain amax), or given for each block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gemmsim.ops.arrays import takes_arrays
from gemmsim.ops.checks import check_ints, check_tensor
from gemmsim.ops.forward_mode import applied
from gemmsim.ops.torch_versions import viewed

from . import onnx_symbolic as onnx
from . import torch_fallback
from .arguments import as_amax, both_vintages, check_nonfinite, prepared, required, write_out
from .errors import AmaxShapeError, BlockSizeError, ElementFormatError, message
from .gradients import clip_mask, fit, straight_through
from .grids import ELEMENTS, NumBits, element_name, integer_name
from .integer import fake_tensor_quant
from .operators import blocks_op, blocks_out_op, checked_op

__all__ = [
    "DynamicBlock",
    "block_grid",
    "dynamic_block_quant",
    "dynamic_block_quantize_op",
    "fake_blocks",
    "mx_format_map",
    "quantize_op",
    "static_block_quant",
    "static_blockwise_fp4_fake_quant",
]

#: gemmsim's name of each element format, by ModelOpt's ``num_bits``.
mx_format_map = {bits: grid.name for bits, grid in ELEMENTS.items()}

_SCALES = {(8, 0): "e8m0", (4, 3): "e4m3"}


class DynamicBlock(torch.autograd.Function):
    """Quantise and dequantise blocks; the gradient passes, or where |x| <= amax."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        inputs: Tensor,
        block_size: int,
        amax: Tensor | None,
        bias: Tensor | None,
        num_bits: NumBits,
        scale_bits: tuple[int, int] | None,
        trt_high_precision_dtype: str | None,
        onnx_quantizer_type: str,
        pass_through_bwd: bool,
        grid: str,
        propagate: bool,
    ) -> Tensor:
        x = inputs if bias is None else inputs - bias
        y = blocks_op(x, grid, block_size, _scale_name(scale_bits), amax, propagate)
        return y if bias is None else (y + bias).to(inputs.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep what the mask is made from."""
        x, _, amax, bias = inputs[:4]
        ctx.passes = inputs[8] or amax is None
        ctx.save_for_backward(*((None, None, None) if ctx.passes else (x, amax, bias)))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient where the inputs were not clipped."""
        x, amax, bias = ctx.saved_tensors
        return (grad if ctx.passes else fit(grad, clip_mask(x, amax, bias)), *([None] * 10))

    @staticmethod
    def symbolic(g: Any, inputs: Any, block_size: int, amax: Any, bias: Any, *args: Any, **kwargs: Any) -> Any:
        """TensorRT's nodes for MXFP8 and NVFP4."""
        onnx.check_no_bias(bias)
        given = _DEFAULTS | dict(zip(_DEFAULTS, args, strict=False)) | kwargs
        formats = given["num_bits"], given["scale_bits"]
        around = given["trt_high_precision_dtype"], given["onnx_quantizer_type"]
        return onnx.export_dynamic_block(g, inputs, block_size, amax, *formats, *around)


#: Arguments after bias, in their order.
_DEFAULTS: dict[str, Any] = {
    "num_bits": (4, 3), "scale_bits": (8, 0), "trt_high_precision_dtype": None, "onnx_quantizer_type": "dynamic",
    "pass_through_bwd": True, "grid": "", "propagate": False,
}  # fmt: skip


def _scale_name(scale_bits: tuple[int, int] | None) -> str:
    return "amax" if scale_bits is None else _SCALES[scale_bits[0], scale_bits[1]]


def block_grid(
    owner: str,
    num_bits: NumBits,
    scale_bits: tuple[int, int] | None,
    ties: str = "even",
    unsigned: bool = False,
    narrow_range: bool = True,
) -> str:
    """Name of the elements' grid under scales of ``scale_bits``; ``ElementFormatError`` for what there is not."""
    pair = isinstance(scale_bits, (tuple, list)) and tuple(scale_bits) in _SCALES
    if scale_bits is not None and not pair:
        allowed = "(8, 0), (4, 3), or None for the block's amax itself"
        raise ElementFormatError(message(f"{owner}: scale_bits={scale_bits}", allowed, "Give one of these."))
    if scale_bits is None and isinstance(num_bits, int):
        return integer_name(owner, num_bits, unsigned, narrow_range)
    return element_name(owner, num_bits if isinstance(num_bits, int) else (num_bits[0], num_bits[1]), ties)


def check_block_size(owner: str, block_size: object) -> int:
    """``block_size``; ``BlockSizeError`` unless a positive integer."""
    if isinstance(block_size, bool) or not isinstance(block_size, (int, torch.SymInt)) or block_size < 1:
        raise BlockSizeError(message(f"{owner}: block_size={block_size!r}", "a positive integer", "Use 16 or 32."))
    return block_size  # type: ignore[return-value]


@takes_arrays
@both_vintages(
    "num_bits", "scale_bits", "trt_high_precision_dtype", "onnx_quantizer_type", before=3, kinds=(tuple, list)
)
def dynamic_block_quant(
    inputs: Tensor,
    block_size: int,
    amax: Tensor | float | None = None,
    bias: Tensor | float | None = None,
    num_bits: NumBits = (4, 3),
    scale_bits: tuple[int, int] | None = (8, 0),
    trt_high_precision_dtype: str | None = None,
    onnx_quantizer_type: str = "dynamic",
    pass_through_bwd: bool = True,
    *,
    ties: str = "even",
    unsigned: bool = False,
    narrow_range: bool = True,
    nonfinite_amax: str = "raise",
    out: Tensor | None = None,
) -> Tensor:
    """Quantise ``inputs`` with a scale for every ``block_size`` elements along the last dimension.

    With m the largest magnitude of a block and M the largest element, in float32, each step rounded once:

    * ``scale_bits=(8, 0)``: S = 2^k, k = ceil(log2(m / M)) clamped to -127..127, 0 if m is 0, infinite or NaN;
      ``element(x * 2^-k) * 2^k``. The scale is rounded up, unlike OCP MX's floor (``gemmsim.mx``).
    * ``scale_bits=(4, 3)``: S2 = amax / (448 M), s = e4m3(m / (M S2)) (1 if that is 0), S = s S2;
      ``element(x / S) * S``. ``amax``: the tensor's largest magnitude; None takes it from ``inputs``.
    * ``scale_bits=None``: the amax of the block, as ``fake_tensor_quant`` (integers, with ``num_bits``, ``unsigned``,
      ``narrow_range``) or ``scaled_e4m3`` uses it.

    Args:
        inputs: any shape with a dimension, any strides; a short last block counts as filled with zeros.
        num_bits: (E, M) of the elements: (4, 3), (5, 2), (3, 2), (2, 3), (2, 1), (3, 0), (1, 2), (0, 3); or 8, the
            integers up to +-127.
        bias: subtracted before and added after. A fourth positional pair is ``num_bits``: the older order ``(inputs,
            block_size, amax, num_bits, scale_bits, trt_high_precision_dtype, onnx_quantizer_type)`` works as well.
        ties: "even", "toward_zero" (ModelOpt's CPU tensors of MXFP4) or "away".
        trt_high_precision_dtype, onnx_quantizer_type: for ONNX export.
        pass_through_bwd: if False, the gradient passes only where |x - bias| <= amax, if there is an amax.
        nonfinite_amax, out: as ``fake_tensor_quant``.

    Elements saturate, NaN elements stay NaN, and the sign of zero is kept. With (4, 3), an amax of 0 gives zeros.
    Source: ModelOpt 0.40, ``dynamic_block_quant`` and ``NVFP4QTensor``; elements: OCP Microscaling rev. 1.0.

    Raises:
        BlockSizeError (ValueError, AssertionError): unless block_size is a positive integer.
        ElementFormatError (NotImplementedError): for other ``num_bits`` or ``scale_bits``.
        AmaxError (ValueError): for NaN or infinity among the amaxes that scale (not with (8, 0)).
        SignError, DTypeError, DeviceError, OverlapError, GradError: as ``fake_tensor_quant``.

    Example:
        >>> x = torch.tensor([1.0, 7.0, 0.1, 0.2])
        >>> gs.tensor_quant.dynamic_block_quant(x, 2, num_bits=(2, 1))  # blocks of two, e2m1 elements, e8m0 scales
        tensor([1.0000, 8.0000, 0.0938, 0.1875])
    """
    owner = "dynamic_block_quant"
    size = check_block_size(owner, block_size)
    grid = block_grid(owner, num_bits, scale_bits, ties, unsigned, narrow_range)
    propagate = check_nonfinite(owner, nonfinite_amax)
    x, second, offset = prepared(owner, inputs, amax if scale_bits is not None else None, bias)
    if x.dim() == 0:
        raise BlockSizeError(message(f"{owner}: inputs without dimensions", "a dimension for blocks", "Use x[None]."))
    if second is not None and second.numel() != 1:
        raise AmaxShapeError(message(f"{owner}: amax of shape {tuple(second.shape)}", "one number", "Use amax.max()."))
    if out is not None:
        write_out(owner, x, out)
        blocks_out_op(x if offset is None else x - offset, grid, size, _scale_name(scale_bits), second, propagate, out)
        return out if offset is None else out.add_(offset)
    result: Tensor = applied("dynamic_block_quant", DynamicBlock,
        x, size, second, offset, num_bits, scale_bits, trt_high_precision_dtype, onnx_quantizer_type,
        bool(pass_through_bwd), grid, propagate,
    )  # fmt: skip
    return result


@takes_arrays
def static_block_quant(
    inputs: Tensor,
    block_size: int,
    amax: Tensor | float,
    bias: Tensor | float | None = None,
    num_bits: int = 8,
    unsigned: bool = False,
    narrow_range: bool = True,
    pass_through_bwd: bool = False,
) -> Tensor:
    """``fake_tensor_quant`` of ``inputs`` read as rows of ``block_size``, with an amax for each row, shape (rows, 1).

    Raises:
        BlockSizeError: unless block_size is positive and divides the number of elements.
        Others as ``fake_tensor_quant``.

    Example:
        >>> x, amax = torch.tensor([1.0, 7.0, 0.1, 0.2]), torch.tensor([[7.0], [0.2]])
        >>> gs.tensor_quant.static_block_quant(x, 2, amax, num_bits=4)
        tensor([1.0000, 7.0000, 0.1143, 0.2000])
    """
    size = check_block_size("static_block_quant", block_size)
    if inputs.numel() % size:
        asked = f"static_block_quant: {inputs.numel()} elements in blocks of {size}"
        raise BlockSizeError(message(asked, "a number that the blocks divide", "Pad the inputs with zeros."))
    rows = inputs.reshape(-1, size)
    if isinstance(amax, Tensor) and amax.numel() == rows.shape[0] and amax.dim() != 2:
        amax = amax.reshape(-1, 1)
    return fake_tensor_quant(
        rows, amax, bias, num_bits, unsigned, narrow_range, None, pass_through_bwd
    ).reshape(inputs.shape)  # fmt: skip


@takes_arrays
def static_blockwise_fp4_fake_quant(
    x: Tensor, amax: Tensor, global_amax: Tensor | float | None = None, quantize_block_scales: bool = True
) -> Tensor:
    """Quantise ``x`` to e2m1 with a given amax for each block; ``x`` consists of ``amax.numel()`` equal blocks.

    With ``quantize_block_scales``, the scales amax / 6 are rounded to e4m3 with the scale ``global_amax / 2688`` (by
    default from the largest amax). Without it they are not rounded (``scaled_e4m3`` with E=2, M=1). The gradient
    passes.

    Raises:
        BlockSizeError: unless the number of blocks divides the number of elements.
        AmaxError: for amaxes that are negative, NaN or infinite.

    Example:
        >>> x, amax = torch.tensor([1.0, 7.0, 0.1, 0.2]), torch.tensor([6.0, 0.3])
        >>> gs.tensor_quant.static_blockwise_fp4_fake_quant(x, amax, quantize_block_scales=False)
        tensor([1.0000, 6.0000, 0.1000, 0.2000])
    """
    owner = "static_blockwise_fp4_fake_quant"
    check_tensor(owner, "x", x)
    required(owner, amax)
    amax = as_amax(amax, x)
    if amax.numel() == 0 or x.numel() % amax.numel():
        asked = f"{owner}: {x.numel()} elements, {amax.numel()} block amaxes"
        raise BlockSizeError(
            message(asked, "a number of blocks that divides the elements", "Pad, or give an amax each.")
        )
    v, block_amax, _ = prepared(owner, x.reshape(amax.numel(), -1), amax.reshape(-1, 1))
    assert block_amax is not None
    block_amax = checked_op(block_amax, owner)
    total = block_amax.max() if global_amax is None else checked_op(as_amax(global_amax, x), owner)
    with torch.no_grad():
        if quantize_block_scales:
            y = torch_fallback.two_levels(v.float(), block_amax.float(), ELEMENTS[2, 1], total.float())
        else:
            y = torch_fallback.fake_quantize(v.float(), block_amax, ELEMENTS[2, 1])
    return straight_through(x, y.to(x.dtype).reshape(x.shape))


@takes_arrays
def quantize_op(
    input: Tensor,
    amax: Tensor | float,
    num_bits: int = 8,
    exponent_bits: int = 0,
    unsigned: bool = False,
    narrow_range: bool = True,
) -> Tensor:
    """``fake_tensor_quant`` with ``num_bits``, or with ``exponent_bits`` a float of ``num_bits`` in all; no gradient.

    Example:
        >>> x = torch.tensor([0.3, -1.0, 2.0])
        >>> gs.tensor_quant.quantize_op(x, 2.0), gs.tensor_quant.quantize_op(x, 2.0, 8, exponent_bits=4)
        (tensor([ 0.2992, -1.0079,  2.0000]), tensor([ 0.2857, -1.0000,  2.0000]))
    """
    from .floating import scaled_e4m3

    with torch.no_grad():
        if exponent_bits:
            result: Tensor = scaled_e4m3(input, amax, None, exponent_bits, num_bits - 1 - exponent_bits)
        else:
            result = fake_tensor_quant(input, amax, None, num_bits, unsigned, narrow_range)
    return result


@takes_arrays
def dynamic_block_quantize_op(
    input: Tensor,
    block_size: int,
    amax: Tensor | float | None,
    num_bits: int,
    exponent_bits: int,
    scale_num_bits: int,
    scale_exponent_bits: int,
) -> Tensor:
    """``dynamic_block_quant`` with formats given as total and exponent bits (8 and 8 for e8m0 scales); no gradient.

    Raises:
        DTypeError: for bits that are not integers; otherwise as ``dynamic_block_quant``.

    Example:
        >>> x = torch.tensor([1.0, 7.0, 0.1, 0.2])
        >>> gs.tensor_quant.dynamic_block_quantize_op(x, 2, None, 4, 2, 8, 8)  # e2m1 elements, e8m0 scales
        tensor([1.0000, 8.0000, 0.0938, 0.1875])
    """
    bits = {"num_bits": num_bits, "exponent_bits": exponent_bits}
    check_ints(
        "dynamic_block_quantize_op", **bits, scale_num_bits=scale_num_bits, scale_exponent_bits=scale_exponent_bits
    )
    element: NumBits = (exponent_bits, num_bits - 1 - exponent_bits) if exponent_bits else num_bits
    scale = (8, 0) if scale_exponent_bits == 8 else (scale_exponent_bits, scale_num_bits - 1 - scale_exponent_bits)
    with torch.no_grad():
        return dynamic_block_quant(input, block_size, amax, None, element, scale)


def _mean(values: Tensor) -> Tensor:
    """The mean in float32, from integers of up to 40 bits: no order of the sum changes it; NaN of NaN."""
    n = values.numel()
    bits = min(40, 62 - n.bit_length())
    top = values.abs().amax()
    _, exponent = torch.frexp(torch.where(top.isfinite(), top, 1.0).double())
    whole = (values.double() * _power(bits - exponent)).round().long()
    total = whole.sum().double()
    mean = (total / torch.full_like(total, n) * _power(exponent - bits)).float()
    return torch.where(top.isfinite(), mean, torch.nan)


def _power(exponent: Tensor) -> Tensor:
    """2^exponent in float64, written as bits because exp2 may be off by an ulp on GPUs."""
    return viewed((exponent.long() + 1023) << 52, torch.float64)


def fake_blocks(amax: Tensor, block_sizes: Mapping[Any, Any]) -> Tensor:
    """amax of blocks, less their mean rounded to ``scale_bits`` integers in blocks of ``scale_block_sizes``."""
    bits = block_sizes["scale_bits"]
    sizes = block_sizes.get("scale_block_sizes") or {-1: amax.numel()}
    size = next(iter(sizes.values())) or amax.numel()
    flat = amax.reshape(-1).to(torch.float32)
    mean = _mean(flat)
    rows = torch.nn.functional.pad(flat - mean, (0, -flat.numel() % size)).view(-1, size)
    with torch.no_grad():
        rows = fake_tensor_quant(rows, rows.abs().amax(1, keepdim=True), None, bits)
    return (rows.reshape(-1)[: flat.numel()] + mean).clamp(min=0).reshape(amax.shape)
