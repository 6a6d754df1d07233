"""Tensors to block formats and back."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gemmsim._keywords import says_keywords
from gemmsim.backends.encoding import scale_for_largest
from gemmsim.ops.arrays import takes_arrays
from gemmsim.ops.checks import check_device, check_float, check_out_dtype
from gemmsim.ops.errors import GradError, OverlapError, ShapeError, message
from gemmsim.ops.overlap import check_out

from .arguments import (
    BlockLike,
    block_constant,
    block_key,
    check_codes,
    check_dim,
    code_shape,
    largest_constant,
    packing_constant,
    scale_shape,
)
from .layout import room
from .operators import decode_into_op, decode_op, encode_into_op, encode_op, quantize_into_op, quantize_op

__all__ = ["Encoded", "decode", "encode", "quantize", "tensor_scale"]


class Encoded(NamedTuple):
    """A tensor in a block format: element codes, scale codes, and the scale of the whole tensor if the format has
    one.

    Example:
        >>> encoded = gs.mx.encode(torch.tensor([1.0, 1.5, -6.0, 0.3]), "mxfp4")
        >>> encoded._fields, encoded.codes, encoded.scales
        (('codes', 'scales', 'tensor_scale'), tensor([50, 31], dtype=torch.uint8), tensor([127], dtype=torch.uint8))
    """

    codes: Tensor
    scales: Tensor
    tensor_scale: Tensor | None = None


@takes_arrays
@says_keywords("fmt")
def tensor_scale(x: Tensor, fmt: BlockLike) -> Tensor:
    """Return amax(x) / (largest scale * largest element) as a 0-D float32 tensor, at least 2^-96.

    If ``x`` has a NaN or infinity, so has the result, and every block becomes NaN. An empty ``x`` gives 1.
    Source: torchao ``per_tensor_amax_to_scale``, which lets the result underflow to 0.

    Raises:
        DTypeError: unless ``x`` is a strided tensor of a supported float dtype.
        FormatError: if ``fmt`` does not name a block format.

    Example:
        >>> gs.mx.tensor_scale(torch.tensor([1.0, -2688.0]), "nvfp4/tensor")  # 2688 is 448 * 6
        tensor(1.)
    """
    check_float("mx.tensor_scale", "x", x)
    return scale_for_largest(x, largest_constant(fmt))


@takes_arrays
@says_keywords("fmt")
def encode(
    x: Tensor,
    fmt: BlockLike,
    *,
    dim: int = -1,
    packing: str | None = None,
    tensor_scale: Tensor | float | None = None,
    out: Encoded | tuple[Tensor, Tensor] | None = None,
) -> Encoded:
    """Encode ``x`` in the block format ``fmt``, with blocks along ``dim``, as uint8 tensors of codes.

    Args:
        x: float32, float64, float16 or bfloat16, with any strides. float64 is first converted to float32 with
            rounding to odd, so that elements are rounded only once; beyond float32's range it saturates.
        fmt: a ``BlockFormat`` or its name: "mxfp8_e4m3", "mxfp4/rceil", "nvfp4/tensor", "mx(e3m2)/b16/torchao-0.18".
        packing: "bytes" (one code in a byte; the default except for 4-bit floats), "lo_first" (their default: two
            codes in a byte, the first in bits 0 to 3), "hi_first", or "dense" (four 6-bit elements in three bytes).
        tensor_scale: the scale of the whole tensor, for formats that have one: 2^-96 or more (otherwise every block
            is NaN); by default ``tensor_scale(x, fmt)``.
        out: uint8 tensors that receive codes and scales, of the shapes that the result has without ``out``.

    ``codes`` has the shape of ``x``, except that dimension ``dim`` has as many bytes as ``packing`` needs. ``scales``
    has one entry for each block along ``dim``. A short last block is treated as if filled with zeros. NaN and
    infinity make their block NaN. A block of zeros has scale code 0 and keeps its signs. Elements beyond the largest
    value saturate. Modes other than ocp differ; docs/reference/mx.md says how.

    Raises:
        FormatError: for an unknown format.
        DTypeError, DeviceError: for other dtypes and devices.
        ShapeError, OverlapError: for a ``dim``, packing or ``out`` that does not fit.
        GradError: for an ``x`` that requires grad in grad mode.

    Example:
        >>> codes, scales, _ = gs.mx.encode(torch.tensor([1.0, 1.5, -6.0, 0.3]), "mxfp4")
        >>> [f"{byte:08b}" for byte in codes.tolist()]  # two codes in a byte, the first in the low bits
        ['00110010', '00011111']
        >>> scales.int() - 127  # the exponent of the block's scale
        tensor([0], dtype=torch.int32)
    """
    meaning, name = block_constant(fmt), block_key(fmt)
    where = _check_input("encode", x, dim)
    how = packing_constant("mx.encode", fmt, packing)
    second = _second_scale("encode", name, meaning.tensor_scale, tensor_scale, x.device, x)
    if out is None:
        codes, scales = encode_op(x, name, where, how, second)
        return Encoded(codes, scales, second)
    codes, scales = out[0], out[1]
    check_codes("mx.encode", "out[0]", codes, code_shape(x.shape, where, how))
    check_codes("mx.encode", "out[1]", scales, scale_shape(x.shape, where, meaning.block_size))
    check_device("mx.encode", x, codes, scales, names="x out[0] out[1]")
    if not torch.compiler.is_compiling():
        _check_apart("encode", codes, scales, x)
    encode_into_op(x, name, where, how, second, codes, scales)
    return Encoded(codes, scales, second)


@takes_arrays
@says_keywords("fmt")
def decode(
    encoded: Encoded | tuple[Tensor, Tensor],
    fmt: BlockLike,
    *,
    dim: int = -1,
    size: int | None = None,
    packing: str | None = None,
    dtype: torch.dtype = torch.float32,
    tensor_scale: Tensor | float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return the values of codes and scales that ``encode`` returned for the same ``fmt``, ``dim`` and ``packing``.

    Args:
        size: number of elements along ``dim``; by default as many as the codes have room for.
        dtype: dtype of the result: float32, float64, float16 or bfloat16.
        tensor_scale: by default ``encoded.tensor_scale``.
        out: tensor that receives the result, in its own dtype.

    An element times its scale is rounded once to float32, then to ``dtype`` (to nearest even). A NaN scale makes its
    block NaN. Scale code 0 of e8m0 is 2^-127. Products beyond the largest float32 become infinite.

    Raises:
        FormatError, DTypeError, DeviceError, ShapeError, OverlapError: as ``encode``.

    Example:
        >>> encoded = gs.mx.encode(torch.tensor([1.0, 1.5, -6.0, 0.3]), "mxfp4")
        >>> gs.mx.decode(encoded, "mxfp4")
        tensor([ 1.0000,  1.5000, -6.0000,  0.5000])
        >>> gs.mx.decode(encoded._replace(scales=encoded.scales + 1), "mxfp4")  # twice the scale
        tensor([  2.,   3., -12.,   1.])
    """
    meaning, name = block_constant(fmt), block_key(fmt)
    codes, scales = encoded[0], encoded[1]
    check_codes("mx.decode", "codes", codes)
    where = check_dim("mx.decode", codes.dim(), dim)
    how = packing_constant("mx.decode", fmt, packing)
    if size is None:
        size = room(codes.shape[where], how) if out is None else out.shape[where]
    shape = [*codes.shape[:where], size, *codes.shape[where + 1 :]]
    check_codes("mx.decode", "codes", codes, code_shape(shape, where, how))
    check_codes("mx.decode", "scales", scales, scale_shape(shape, where, meaning.block_size))
    check_device("mx.decode", codes, scales, out, names="codes scales out")
    given = encoded[2] if tensor_scale is None and len(encoded) > 2 else tensor_scale
    second = _second_scale("decode", name, meaning.tensor_scale, given, codes.device)
    if out is None:
        check_out_dtype("mx.decode", dtype)
        return decode_op(codes, scales, name, where, size, how, dtype, second)
    check_float("mx.decode", "out", out)
    if list(out.shape) != shape:
        raise ShapeError(message(f"mx.decode: out has shape {tuple(out.shape)}", f"{tuple(shape)} here", "Give that."))
    if not torch.compiler.is_compiling():
        _check_apart("decode", out, codes, scales)
    decode_into_op(codes, scales, name, where, how, second, out)
    return out


@takes_arrays
@says_keywords("fmt")
def quantize(
    x: Tensor,
    fmt: BlockLike,
    *,
    dim: int = -1,
    dtype: torch.dtype | None = None,
    tensor_scale: Tensor | float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Round ``x`` to the block format ``fmt``: ``decode(encode(x))`` in one pass, in ``dtype`` or the dtype of ``x``.

    Arguments and special values are those of ``encode`` and ``decode``; ``out`` may be ``x`` itself.

    Raises:
        FormatError, DTypeError, DeviceError, ShapeError, OverlapError: as ``encode`` and ``decode``.

    Example:
        >>> gs.mx.quantize(torch.tensor([1.0, 1.5, -6.0, 0.3]), "mxfp4")
        tensor([ 1.0000,  1.5000, -6.0000,  0.5000])
        >>> gs.mx.quantize(torch.tensor([1.0, 1.5, -100.0, 0.3]), "mxfp4")  # one outlier, and the others underflow
        tensor([  0.,   0., -96.,   0.])
        >>> gs.mx.quantize(torch.tensor([1.0, torch.inf]), "mxfp4")  # a NaN block
        tensor([nan, nan])
    """
    meaning, name = block_constant(fmt), block_key(fmt)
    where = _check_input("quantize", x, dim)
    if dtype is not None:
        check_out_dtype("mx.quantize", dtype)
    second = _second_scale("quantize", name, meaning.tensor_scale, tensor_scale, x.device, x)
    if out is None:
        return quantize_op(x, name, where, dtype, second)
    check_float("mx.quantize", "out", out)
    check_device("mx.quantize", x, out, names="x out")
    if not torch.compiler.is_compiling():
        check_out("mx.quantize", x, out)
    quantize_into_op(x, name, where, second, out)
    return out


def _check_input(name: str, x: Tensor, dim: int) -> int:
    owner = f"mx.{name}"
    check_float(owner, "x", x)
    check_device(owner, x, names="x")
    if x.dim() == 0:
        raise ShapeError(
            message(f"{owner}: x has no dimensions", "a tensor with a dimension for blocks", "Use x[None].")
        )
    if torch.is_grad_enabled() and x.requires_grad:
        allowed = "tensors without grad, or a call under torch.no_grad()"
        raise GradError(message(f"{owner} of a tensor that requires grad", allowed, "Use x.detach()."))
    return check_dim(owner, x.dim(), dim)


def _second_scale(
    owner: str, fmt: str, has: bool, given: Tensor | float | None, device: torch.device, x: Tensor | None = None
) -> Tensor | None:
    """The tensor's scale as a float32 tensor of no dimensions on ``device``, None where the format ``has`` none."""
    if not has:
        if given is not None:
            allowed = "tensor_scale for formats with a second scale"
            raise ShapeError(
                message(f"mx.{owner}: tensor_scale with {fmt}", allowed, f"Use '{fmt}/tensor', or drop it.")
            )
        return None
    if given is None:
        if x is None:
            asked = f"mx.{owner}: {fmt} without tensor_scale"
            raise ShapeError(message(asked, "the tensor's scale for this format", "Pass what encode returned."))
        return tensor_scale(x, fmt)
    second = torch.as_tensor(given, dtype=torch.float32, device=device)
    if second.numel() != 1:
        asked = f"mx.{owner}: tensor_scale of shape {tuple(second.shape)}"
        raise ShapeError(message(asked, "one number", "Give one scale for the tensor."))
    return second.reshape(())


def _check_apart(name: str, *tensors: Tensor) -> None:
    """``OverlapError`` unless the memory of the first tensor is its own, and written elements are distinct."""
    first, others = tensors[0], tensors[1:]
    check_out(f"mx.{name}", torch.empty_like(first), first)
    storage = first.untyped_storage().data_ptr()
    if first.numel() and any(t.untyped_storage().data_ptr() == storage for t in others):
        raise OverlapError(message(f"mx.{name}: out shares memory", "an out with its own memory", "Give a new tensor."))
