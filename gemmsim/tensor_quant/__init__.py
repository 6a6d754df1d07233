"""Calibrated fake quantisation: integers and small floats with scales taken from data, and gradients for training.

    from gemmsim.tensor_quant import TensorQuantizer, calibrate, fake_tensor_quant, quantize_, scaled_e4m3
    fake_tensor_quant(x, amax)                       # int8 with the scale 127 / amax, and back
    scaled_e4m3(x, amax, 4, 3)                       # E4M3 with the scale 448 / amax, and back
    quantize_(model, {"*weight_quantizer": {"axis": 0}}); calibrate(model, batches)

The names are those of NVIDIA ModelOpt's ``tensor_quant``; docs/reference/tensor_quant.md lists the differences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports

if TYPE_CHECKING:
    from .affine import fake_affine_tensor_quant as fake_affine_tensor_quant
    from .bias_calibrator import BiasCalibrator as BiasCalibrator
    from .block_quantization import dynamic_block_quant as dynamic_block_quant
    from .block_quantization import dynamic_block_quantize_op as dynamic_block_quantize_op
    from .block_quantization import mx_format_map as mx_format_map
    from .block_quantization import quantize_op as quantize_op
    from .block_quantization import static_block_quant as static_block_quant
    from .block_quantization import static_blockwise_fp4_fake_quant as static_blockwise_fp4_fake_quant
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
    from .floating import fp4_cast_ste as fp4_cast_ste
    from .floating import fp8_eager as fp8_eager
    from .floating import scaled_e4m3 as scaled_e4m3
    from .floating import scaled_e4m3_abstract as scaled_e4m3_abstract
    from .floating import scaled_e4m3_impl as scaled_e4m3_impl
    from .function_classes import DynamicBlockQuantizationFunction as DynamicBlockQuantizationFunction
    from .function_classes import FakeAffineTensorQuantFunction as FakeAffineTensorQuantFunction
    from .function_classes import FakeTensorQuantFunction as FakeTensorQuantFunction
    from .function_classes import LegacyFakeTensorQuantFunction as LegacyFakeTensorQuantFunction
    from .function_classes import ScaledE4M3Function as ScaledE4M3Function
    from .function_classes import StaticBlockQuantizationFunction as StaticBlockQuantizationFunction
    from .function_classes import TensorQuantFunction as TensorQuantFunction
    from .histogram import HistogramCalibrator as HistogramCalibrator
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
else:
    __getattr__, __dir__ = exports(__name__)
