"""microxcaling's ``mx.mx_mapping``: PyTorch's functions and modules exchanged for quantised ones."""

from __future__ import annotations

from .activations import GELU as GELU
from .activations import LeakyReLU as LeakyReLU
from .activations import ReLU as ReLU
from .activations import ReLU6 as ReLU6
from .activations import Sigmoid as Sigmoid
from .activations import SiLU as SiLU
from .activations import Softmax as Softmax
from .activations import Tanh as Tanh
from .activations import gelu as gelu
from .activations import leaky_relu as leaky_relu
from .activations import relu as relu
from .activations import relu6 as relu6
from .activations import sigmoid as sigmoid
from .activations import silu as silu
from .activations import softmax as softmax
from .activations import tanh as tanh
from .convolutions import Conv1d as Conv1d
from .convolutions import Conv2d as Conv2d
from .convolutions import Conv3d as Conv3d
from .convolutions import ConvTranspose2d as ConvTranspose2d
from .convolutions import conv1d as conv1d
from .convolutions import conv2d as conv2d
from .convolutions import conv3d as conv3d
from .gemms import Linear as Linear
from .gemms import addmm as addmm_mx
from .gemms import bmm as bmm
from .gemms import linear as linear
from .gemms import matmul as matmul
from .inject import FUNCTION_MAPPING as FUNCTION_MAPPING
from .inject import MODULE_MAPPING as MODULE_MAPPING
from .inject import inject_pyt_ops as inject_pyt_ops
from .inject import tracer_decorator as tracer_decorator
from .lstm import LSTM as LSTM
from .norms import BatchNorm1d as BatchNorm1d
from .norms import BatchNorm2d as BatchNorm2d
from .norms import BatchNorm3d as BatchNorm3d
from .norms import GroupNorm as GroupNorm
from .norms import LayerNorm as LayerNorm
from .norms import batch_norm as batch_norm
from .norms import group_norm as group_norm
from .norms import layer_norm as layer_norm
from .pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from .pooling import adaptive_avg_pool2d as adaptive_avg_pool2d
from .simd import simd_add as simd_add
from .simd import simd_div as simd_div
from .simd import simd_exp as simd_exp
from .simd import simd_log as simd_log
from .simd import simd_mul as simd_mul
from .simd import simd_norm as simd_norm
from .simd import simd_reduce_mean as simd_reduce_mean
from .simd import simd_reduce_sum as simd_reduce_sum
from .simd import simd_square as simd_square
from .simd import simd_sub as simd_sub
from .specs import apply_mx_specs as apply_mx_specs

__all__ = [
    "addmm_mx",
    "AdaptiveAvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose2d",
    "FUNCTION_MAPPING",
    "GELU",
    "GroupNorm",
    "LSTM",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "MODULE_MAPPING",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "adaptive_avg_pool2d",
    "apply_mx_specs",
    "batch_norm",
    "bmm",
    "conv1d",
    "conv2d",
    "conv3d",
    "gelu",
    "group_norm",
    "inject_pyt_ops",
    "layer_norm",
    "leaky_relu",
    "linear",
    "matmul",
    "relu",
    "relu6",
    "sigmoid",
    "silu",
    "simd_add",
    "simd_div",
    "simd_exp",
    "simd_log",
    "simd_mul",
    "simd_norm",
    "simd_reduce_mean",
    "simd_reduce_sum",
    "simd_square",
    "simd_sub",
    "softmax",
    "tanh",
    "tracer_decorator",
]
