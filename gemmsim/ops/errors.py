"""Typed errors of the operators. Every message says what was asked, what is allowed and what to do."""

from __future__ import annotations

from gemmsim.formats.errors import message

__all__ = [
    "DeviceError",
    "DTypeError",
    "ExportError",
    "GradError",
    "OverlapError",
    "SeedError",
    "ShapeError",
    "ShardingError",
    "message",
]


class DTypeError(TypeError):
    """An argument of a kind that the operation does not take: not a tensor, another dtype or layout, not a number.

    Example:
        >>> gs.quantize([0.3], "e4m3")
        Traceback (most recent call last):
            ...
        gemmsim.ops.errors.DTypeError: quantize: x is a list; allowed: a torch.Tensor or a numpy array.
          Convert it first: torch.as_tensor(x, dtype=torch.float64).
    """


class DeviceError(ValueError):
    """Tensors on different devices, or on a device without a kernel.

    Example:
        >>> gs.qmatmul(torch.ones(2, 2), torch.ones(2, 2, device="meta"), ":fp16")
        Traceback (most recent call last):
            ...
        gemmsim.ops.errors.DeviceError: qmatmul: a on cpu, b on meta; allowed: all tensors on one device.
          Move them with .to(device).
    """


class ShapeError(ValueError):
    """Shapes that do not go together.

    Example:
        >>> gs.qmm(torch.ones(2, 3), torch.ones(2, 3), ":fp16")
        Traceback (most recent call last):
            ...
        gemmsim.ops.errors.ShapeError: ...shapes (2, 3) and (2, 3), contracted sizes 3 and 2; allowed: ...
          Transpose one operand with .mT if its matrix is stored the other way round.
    """


class ShardingError(ValueError):
    """A DTensor sharded so that no process can compute its part of the result with the bits of the whole product.

    Example:
        >>> issubclass(gs.ShardingError, ValueError)  # raised by products of torch.distributed.tensor.DTensor
        True
    """


class OverlapError(ValueError):
    """An ``out`` tensor that shares memory with itself or, other than entirely, with the input.

    Example:
        >>> x = torch.ones(4)
        >>> gs.quantize(x[:3], "e4m3", out=x[1:])
        Traceback (most recent call last):
            ...
        gemmsim.ops.errors.OverlapError: quantize: out and x overlap in memory without being the same view; allowed: ...
          Quantize into a new tensor, then copy_.
    """


class SeedError(ValueError):
    """A seed that is not an integer of 64 bits.

    Example:
        >>> gs.quantize(torch.ones(2), "e4m3/sr", seed=-1)
        Traceback (most recent call last):
            ...
        gemmsim.ops.errors.SeedError: quantize: seed=-1; allowed: None or an integer from 0 to 2**64 - 1.
          Give an int, or None to draw from torch's generator.
    """


class ExportError(ValueError):
    """An operation that a file format cannot represent.

    Example:
        >>> layer = gs.nn.QLinear(2, 2, spec="e4m3 : fp16")
        >>> torch.onnx.export(layer, (torch.ones(1, 2),), "layer.onnx", dynamo=False)
        Traceback (most recent call last):
            ...
        gemmsim.ops.errors.ExportError: torch.onnx.export(..., dynamo=False) of QLinear(...); allowed: ...
          Give dynamo=True and custom_translation_table=gemmsim.ops.onnx_translations().
    """


class GradError(RuntimeError):
    """A gradient of an operation that has none was requested.

    Example:
        >>> gs.quantize(torch.ones(2, requires_grad=True), "e4m3")
        Traceback (most recent call last):
            ...
        gemmsim.ops.errors.GradError: quantize of a tensor that requires grad; allowed: ...
          Use gemmsim.quantizer(fmt)(x), whose gradient passes straight through, or x.detach().
    """
