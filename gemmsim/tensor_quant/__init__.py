"""Calibrated fake quantisation: integers and small floats under scales taken from data, with the gradients to train.

    from gemmsim.tensor_quant import TensorQuantizer, calibrate, fake_tensor_quant, quantize_, scaled_e4m3
    fake_tensor_quant(x, amax)                       # int8 under the scale 127 / amax, and back
    scaled_e4m3(x, amax, 4, 3)                       # E4M3 under 448 / amax, and back
    quantize_(model, {"*weight_quantizer": {"axis": 0}}); calibrate(model, batches)

The names are those of NVIDIA ModelOpt's ``tensor_quant``; docs/reference/tensor_quant.md lists the differences.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .affine import FakeAffineTensorQuantFunction as FakeAffineTensorQuantFunction
    from .affine import fake_affine_tensor_quant as fake_affine_tensor_quant
    from .bias_calibrator import BiasCalibrator as BiasCalibrator
    from .block import DynamicBlockQuantizationFunction as DynamicBlockQuantizationFunction
    from .block import StaticBlockQuantizationFunction as StaticBlockQuantizationFunction
    from .block import dynamic_block_quant as dynamic_block_quant
    from .block import dynamic_block_quantize_op as dynamic_block_quantize_op
    from .block import mx_format_map as mx_format_map
    from .block import quantize_op as quantize_op
    from .block import static_block_quant as static_block_quant
    from .block import static_blockwise_fp4_fake_quant as static_blockwise_fp4_fake_quant
    from .config import QuantizerAttributeConfig as QuantizerAttributeConfig
    from .convolutions import QuantConv1d as QuantConv1d
    from .convolutions import QuantConv2d as QuantConv2d
    from .convolutions import QuantConv3d as QuantConv3d
    from .convolutions import QuantConvTranspose1d as QuantConvTranspose1d
    from .convolutions import QuantConvTranspose2d as QuantConvTranspose2d
    from .convolutions import QuantConvTranspose3d as QuantConvTranspose3d
    from .descriptor import QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL as QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL
    from .descriptor import QUANT_DESC_8BIT_CONV2D_WEIGHT_PER_CHANNEL as QUANT_DESC_8BIT_CONV2D_WEIGHT_PER_CHANNEL
    from .descriptor import QUANT_DESC_8BIT_CONV3D_WEIGHT_PER_CHANNEL as QUANT_DESC_8BIT_CONV3D_WEIGHT_PER_CHANNEL
    from .descriptor import (
        QUANT_DESC_8BIT_CONVTRANSPOSE1D_WEIGHT_PER_CHANNEL as QUANT_DESC_8BIT_CONVTRANSPOSE1D_WEIGHT_PER_CHANNEL,
    )
    from .descriptor import (
        QUANT_DESC_8BIT_CONVTRANSPOSE2D_WEIGHT_PER_CHANNEL as QUANT_DESC_8BIT_CONVTRANSPOSE2D_WEIGHT_PER_CHANNEL,
    )
    from .descriptor import (
        QUANT_DESC_8BIT_CONVTRANSPOSE3D_WEIGHT_PER_CHANNEL as QUANT_DESC_8BIT_CONVTRANSPOSE3D_WEIGHT_PER_CHANNEL,
    )
    from .descriptor import QUANT_DESC_8BIT_LINEAR_WEIGHT_PER_ROW as QUANT_DESC_8BIT_LINEAR_WEIGHT_PER_ROW
    from .descriptor import QUANT_DESC_8BIT_PER_TENSOR as QUANT_DESC_8BIT_PER_TENSOR
    from .descriptor import QUANT_DESC_UNSIGNED_8BIT_PER_TENSOR as QUANT_DESC_UNSIGNED_8BIT_PER_TENSOR
    from .descriptor import QuantDescriptor as QuantDescriptor
    from .descriptor import ScaledQuantDescriptor as ScaledQuantDescriptor
    from .errors import AmaxError as AmaxError
    from .errors import AmaxShapeError as AmaxShapeError
    from .errors import BitsError as BitsError
    from .errors import BlockSizeError as BlockSizeError
    from .errors import CalibrationDataError as CalibrationDataError
    from .errors import CalibrationError as CalibrationError
    from .errors import DescriptorError as DescriptorError
    from .errors import DescriptorTypeError as DescriptorTypeError
    from .errors import ElementFormatError as ElementFormatError
    from .errors import ExportError as ExportError
    from .errors import SignError as SignError
    from .floating import ScaledE4M3Function as ScaledE4M3Function
    from .floating import fp4_cast_ste as fp4_cast_ste
    from .floating import fp8_eager as fp8_eager
    from .floating import scaled_e4m3 as scaled_e4m3
    from .floating import scaled_e4m3_abstract as scaled_e4m3_abstract
    from .floating import scaled_e4m3_impl as scaled_e4m3_impl
    from .histogram import HistogramCalibrator as HistogramCalibrator
    from .integer import FakeTensorQuantFunction as FakeTensorQuantFunction
    from .integer import LegacyFakeTensorQuantFunction as LegacyFakeTensorQuantFunction
    from .integer import TensorQuantFunction as TensorQuantFunction
    from .integer import fake_quant_impl as fake_quant_impl
    from .integer import fake_tensor_quant as fake_tensor_quant
    from .integer import int_cast_ste as int_cast_ste
    from .integer import legacy_fake_tensor_quant as legacy_fake_tensor_quant
    from .integer import tensor_quant as tensor_quant
    from .integer_products import int_linear as int_linear
    from .integer_products import int_matmul as int_matmul
    from .integer_products import integer_values as integer_values
    from .layer_base import QuantLayer as QuantLayer
    from .layers import QuantLinear as QuantLinear
    from .learned import learned_fake_tensor_quant as learned_fake_tensor_quant
    from .learned import pact as pact
    from .max_calibrator import MaxCalibrator as MaxCalibrator
    from .model import calibrate as calibrate
    from .model import quantize_ as quantize_
    from .mse_calibrator import MseCalibrator as MseCalibrator
    from .nf4 import NF4 as NF4
    from .nf4 import nf4_fake_quant as nf4_fake_quant
    from .onnx import onnx_translations as onnx_translations
    from .quantizer import TensorQuantizer as TensorQuantizer

_HOME = {
    "AmaxError": "errors",
    "AmaxShapeError": "errors",
    "BiasCalibrator": "bias_calibrator",
    "BitsError": "errors",
    "BlockSizeError": "errors",
    "CalibrationDataError": "errors",
    "CalibrationError": "errors",
    "DescriptorError": "errors",
    "DescriptorTypeError": "errors",
    "DynamicBlockQuantizationFunction": "block",
    "ElementFormatError": "errors",
    "ExportError": "errors",
    "FakeAffineTensorQuantFunction": "affine",
    "FakeTensorQuantFunction": "integer",
    "HistogramCalibrator": "histogram",
    "LegacyFakeTensorQuantFunction": "integer",
    "MaxCalibrator": "max_calibrator",
    "MseCalibrator": "mse_calibrator",
    "NF4": "nf4",
    "QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL": "descriptor",
    "QUANT_DESC_8BIT_CONV2D_WEIGHT_PER_CHANNEL": "descriptor",
    "QUANT_DESC_8BIT_CONV3D_WEIGHT_PER_CHANNEL": "descriptor",
    "QUANT_DESC_8BIT_CONVTRANSPOSE1D_WEIGHT_PER_CHANNEL": "descriptor",
    "QUANT_DESC_8BIT_CONVTRANSPOSE2D_WEIGHT_PER_CHANNEL": "descriptor",
    "QUANT_DESC_8BIT_CONVTRANSPOSE3D_WEIGHT_PER_CHANNEL": "descriptor",
    "QUANT_DESC_8BIT_LINEAR_WEIGHT_PER_ROW": "descriptor",
    "QUANT_DESC_8BIT_PER_TENSOR": "descriptor",
    "QUANT_DESC_UNSIGNED_8BIT_PER_TENSOR": "descriptor",
    "QuantConv1d": "convolutions",
    "QuantConvTranspose1d": "convolutions",
    "QuantConv2d": "convolutions",
    "QuantConvTranspose2d": "convolutions",
    "QuantConv3d": "convolutions",
    "QuantConvTranspose3d": "convolutions",
    "QuantDescriptor": "descriptor",
    "QuantLayer": "layer_base",
    "QuantLinear": "layers",
    "QuantizerAttributeConfig": "config",
    "ScaledE4M3Function": "floating",
    "ScaledQuantDescriptor": "descriptor",
    "SignError": "errors",
    "StaticBlockQuantizationFunction": "block",
    "TensorQuantFunction": "integer",
    "TensorQuantizer": "quantizer",
    "calibrate": "model",
    "dynamic_block_quant": "block",
    "dynamic_block_quantize_op": "block",
    "fake_affine_tensor_quant": "affine",
    "fake_quant_impl": "integer",
    "fake_tensor_quant": "integer",
    "fp4_cast_ste": "floating",
    "fp8_eager": "floating",
    "int_cast_ste": "integer",
    "int_linear": "integer_products",
    "int_matmul": "integer_products",
    "integer_values": "integer_products",
    "learned_fake_tensor_quant": "learned",
    "legacy_fake_tensor_quant": "integer",
    "mx_format_map": "block",
    "nf4_fake_quant": "nf4",
    "onnx_translations": "onnx",
    "pact": "learned",
    "quantize_": "model",
    "quantize_op": "block",
    "scaled_e4m3": "floating",
    "scaled_e4m3_abstract": "floating",
    "scaled_e4m3_impl": "floating",
    "static_block_quant": "block",
    "static_blockwise_fp4_fake_quant": "block",
    "tensor_quant": "integer",
}

__all__ = [
    "AmaxError",
    "AmaxShapeError",
    "BiasCalibrator",
    "BitsError",
    "BlockSizeError",
    "CalibrationDataError",
    "CalibrationError",
    "DescriptorError",
    "DescriptorTypeError",
    "DynamicBlockQuantizationFunction",
    "ElementFormatError",
    "ExportError",
    "FakeAffineTensorQuantFunction",
    "FakeTensorQuantFunction",
    "HistogramCalibrator",
    "LegacyFakeTensorQuantFunction",
    "MaxCalibrator",
    "MseCalibrator",
    "NF4",
    "QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_CONV2D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_CONV3D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_CONVTRANSPOSE1D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_CONVTRANSPOSE2D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_CONVTRANSPOSE3D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_LINEAR_WEIGHT_PER_ROW",
    "QUANT_DESC_8BIT_PER_TENSOR",
    "QUANT_DESC_UNSIGNED_8BIT_PER_TENSOR",
    "QuantConv1d",
    "QuantConvTranspose1d",
    "QuantConv2d",
    "QuantConvTranspose2d",
    "QuantConv3d",
    "QuantConvTranspose3d",
    "QuantDescriptor",
    "QuantLayer",
    "QuantLinear",
    "QuantizerAttributeConfig",
    "ScaledE4M3Function",
    "ScaledQuantDescriptor",
    "SignError",
    "StaticBlockQuantizationFunction",
    "TensorQuantFunction",
    "TensorQuantizer",
    "calibrate",
    "dynamic_block_quant",
    "dynamic_block_quantize_op",
    "fake_affine_tensor_quant",
    "fake_quant_impl",
    "fake_tensor_quant",
    "fp4_cast_ste",
    "fp8_eager",
    "int_cast_ste",
    "int_linear",
    "int_matmul",
    "integer_values",
    "learned_fake_tensor_quant",
    "legacy_fake_tensor_quant",
    "mx_format_map",
    "nf4_fake_quant",
    "onnx_translations",
    "pact",
    "quantize_",
    "quantize_op",
    "scaled_e4m3",
    "scaled_e4m3_abstract",
    "scaled_e4m3_impl",
    "static_block_quant",
    "static_blockwise_fp4_fake_quant",
    "tensor_quant",
]


if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        """Load a public name on first use (PEP 562)."""
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
