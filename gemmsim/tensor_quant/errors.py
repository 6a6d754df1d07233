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
    """Raised for an amax or range that is negative, NaN or infinite, or gives a scale that the result's dtype cannot
    hold.

    Example:
        >>> gs.tensor_quant.fake_tensor_quant(torch.ones(2), -1.0)
        Traceback (most recent call last):
            ...
        gemmsim.tensor_quant.errors.AmaxError: fake quantisation: Negative values in amax (least: -1.0); ...
    """


class AmaxShapeError(ShapeError, RuntimeError):
    """Raised for an amax with a shape that does not broadcast against the inputs, or that differs from its earlier
    shape.

    Example:
        >>> gs.tensor_quant.fake_tensor_quant(torch.ones(2, 3), torch.ones(4))
        Traceback (most recent call last):
            ...
        gemmsim.tensor_quant.errors.AmaxShapeError: fake_tensor_quant: amax (or range, bias) of shape (4,) ...
    """


class BitsError(ValueError):
    """Raised for a number of bits that is not supported.

    Example:
        >>> gs.tensor_quant.fake_tensor_quant(torch.ones(2), 1.0, num_bits=1)
        Traceback (most recent call last):
            ...
        gemmsim.tensor_quant.errors.BitsError: fake_tensor_quant: num_bits=1; allowed: 2 to 23 (one signed ...
    """


class ElementFormatError(NotImplementedError):
    """Raised for a pair (exponent bits, fraction bits) that is not a supported element format.

    Example:
        >>> gs.tensor_quant.scaled_e4m3(torch.ones(2), 1.0, E=7, M=1)
        Traceback (most recent call last):
            ...
        gemmsim.tensor_quant.errors.ElementFormatError: scaled_e4m3: Only support E=4 & M=3 for now. Got ...
    """


class SignError(TypeError):
    """Raised for negative inputs of unsigned quantisation.

    Example:
        >>> gs.tensor_quant.fake_tensor_quant(torch.tensor([-1.0]), 1.0, unsigned=True)
        Traceback (most recent call last):
            ...
        gemmsim.tensor_quant.errors.SignError: fake quantisation: Negative values encountered in unsigned ...
    """


class BlockSizeError(ValueError, AssertionError):
    """Raised for block sizes that are not positive integers, or that contradict the other arguments.

    Example:
        >>> gs.tensor_quant.dynamic_block_quant(torch.ones(4), 0)
        Traceback (most recent call last):
            ...
        gemmsim.tensor_quant.errors.BlockSizeError: dynamic_block_quant: block_size=0; allowed: a positive ...
    """


class DescriptorError(ValueError):
    """Raised for fields of a quantisation description that contradict each other.

    Example:
        >>> gs.tensor_quant.ScaledQuantDescriptor(calib_method="median")
        Traceback (most recent call last):
            ...
        gemmsim.tensor_quant.errors.DescriptorError: descriptor: calib_method='median'; allowed: 'max', ...
    """


class DescriptorTypeError(TypeError):
    """Raised for a field of a quantisation description that has the wrong type.

    Example:
        >>> gs.tensor_quant.ScaledQuantDescriptor(axis="rows")
        Traceback (most recent call last):
            ...
        gemmsim.tensor_quant.errors.DescriptorTypeError: descriptor: axis='rows'; allowed: None, an integer ...
    """


class CalibrationError(RuntimeError):
    """Raised for a calibration step out of order: nothing was collected, or results have different shapes.

    Example:
        >>> gs.tensor_quant.TensorQuantizer().load_calib_amax()
        Traceback (most recent call last):
            ...
        gemmsim.tensor_quant.errors.CalibrationError: nothing was collected: the calibrator has seen no ...
    """


class CalibrationDataError(ValueError, AssertionError):
    """Raised for data that calibration cannot use: NaN, infinities, negative counts.

    Example:
        >>> gs.tensor_quant.MaxCalibrator().collect(torch.tensor([1.0, torch.nan]))
        Traceback (most recent call last):
            ...
        gemmsim.tensor_quant.errors.CalibrationDataError: calibration: NaN or infinity in the data; ...
    """


class ExportError(ValueError, AssertionError):
    """Raised for a quantiser that ONNX nodes cannot express.

    Example:
        >>> issubclass(gs.tensor_quant.ExportError, ValueError)
        True
    """
