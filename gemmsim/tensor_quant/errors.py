"""Errors of calibrated quantisation. Each is also the built-in kind that users of ModelOpt catch in its place."""

from __future__ import annotations

from gemmsim.ops.errors import ShapeError, message

__all__ = [
    "AmaxError",
    "AmaxShapeError",
    "BitsError",
    "BlockSizeError",
    "CalibrationDataError",
    "CalibrationError",
    "DescriptorError",
    "DescriptorTypeError",
    "ElementFormatError",
    "ExportError",
    "SignError",
    "message",
]


class AmaxError(ValueError):
    """An amax or range that is negative, NaN or infinite, or whose scale the result's dtype cannot hold."""


class AmaxShapeError(ShapeError, RuntimeError):
    """An amax whose shape does not broadcast against the inputs, or differs from the shape it had before."""


class BitsError(ValueError):
    """A number of bits without a grid."""


class ElementFormatError(NotImplementedError):
    """A pair (exponent bits, fraction bits) that names no element format here."""


class SignError(TypeError):
    """Negative inputs of an unsigned grid."""


class BlockSizeError(ValueError, AssertionError):
    """Block sizes that are no positive integers, or do not go with the other arguments."""


class DescriptorError(ValueError):
    """Fields of a quantisation description that contradict each other."""


class DescriptorTypeError(TypeError):
    """A field of a quantisation description of the wrong type."""


class CalibrationError(RuntimeError):
    """A calibration step out of order: nothing collected, or results of different shapes."""


class CalibrationDataError(ValueError, AssertionError):
    """Data that cannot be calibrated on: NaN, infinities, negative counts."""


class ExportError(ValueError, AssertionError):
    """A quantiser that the ONNX nodes cannot express."""
