"""microxcaling's names: block and element-wise rounding, ``mx_specs``, quantised operations and modules.

Values are microxcaling's on float32 tensors (``custom_cuda=False``); sums of products are PyTorch's, as there.
microxcaling is not needed. See docs/reference/compat.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import exports

# The modules bmm, linear, matmul and softmax are loaded here, so that these names are the functions ever after.
from .activations import GELU as GELU
from .activations import LeakyReLU as LeakyReLU
from .activations import ReLU as ReLU
from .activations import ReLU6 as ReLU6
from .activations import Sigmoid as Sigmoid
from .activations import SiLU as SiLU
from .activations import Tanh as Tanh
from .activations import gelu as gelu
from .activations import leaky_relu as leaky_relu
from .activations import relu as relu
from .activations import relu6 as relu6
from .activations import sigmoid as sigmoid
from .activations import silu as silu
from .activations import tanh as tanh
from .adaptive_avg_pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from .adaptive_avg_pooling import adaptive_avg_pool2d as adaptive_avg_pool2d
from .blocks import _quantize_mx as _quantize_mx
from .blocks import quantize_mx_op as quantize_mx_op
from .bmm import bmm as bmm
from .convolutions import Conv1d as Conv1d
from .convolutions import Conv2d as Conv2d
from .convolutions import Conv3d as Conv3d
from .convolutions import ConvTranspose2d as ConvTranspose2d
from .convolutions import conv1d as conv1d
from .convolutions import conv2d as conv2d
from .convolutions import conv3d as conv3d
from .convolutions import conv_transpose2d as conv_transpose2d
from .elementwise import _quantize_bfloat as _quantize_bfloat
from .elementwise import _quantize_elemwise as _quantize_elemwise
from .elementwise import _quantize_elemwise_core as _quantize_elemwise_core
from .elementwise import _quantize_fp as _quantize_fp
from .elementwise import quantize_bfloat as quantize_bfloat
from .elementwise import quantize_elemwise_op as quantize_elemwise_op
from .formats import ElemFormat as ElemFormat
from .formats import RoundingMode as RoundingMode
from .formats import _get_format_params as _get_format_params
from .formats import _get_max_norm as _get_max_norm
from .formats import _get_min_norm as _get_min_norm
from .gemms import addmm as addmm
from .inject import FUNCTION_MAPPING as FUNCTION_MAPPING
from .inject import MODULE_MAPPING as MODULE_MAPPING
from .inject import inject_pyt_ops as inject_pyt_ops
from .linear import Linear as Linear
from .linear import linear as linear
from .matmul import matmul as matmul
from .norms import BatchNorm1d as BatchNorm1d
from .norms import BatchNorm2d as BatchNorm2d
from .norms import BatchNorm3d as BatchNorm3d
from .norms import GroupNorm as GroupNorm
from .norms import LayerNorm as LayerNorm
from .norms import RMSNorm as RMSNorm
from .norms import batch_norm as batch_norm
from .norms import group_norm as group_norm
from .norms import layer_norm as layer_norm
from .rnn import LSTM as LSTM
from .simd_ops import simd_add as simd_add
from .simd_ops import simd_div as simd_div
from .simd_ops import simd_exp as simd_exp
from .simd_ops import simd_log as simd_log
from .simd_ops import simd_mul as simd_mul
from .simd_ops import simd_norm as simd_norm
from .simd_ops import simd_reduce_mean as simd_reduce_mean
from .simd_ops import simd_reduce_sum as simd_reduce_sum
from .simd_ops import simd_split as simd_split
from .simd_ops import simd_sqrt as simd_sqrt
from .simd_ops import simd_square as simd_square
from .simd_ops import simd_sub as simd_sub
from .softmax import Softmax as Softmax
from .softmax import softmax as softmax
from .specs import MxSpecs as MxSpecs
from .specs import add_mx_args as add_mx_args
from .specs import apply_mx_specs as apply_mx_specs
from .specs import finalize_mx_specs as finalize_mx_specs
from .specs import get_backwards_mx_specs as get_backwards_mx_specs
from .specs import get_default_mx_specs as get_default_mx_specs
from .specs import get_mx_specs as get_mx_specs
from .specs import mx_assert_test as mx_assert_test

if TYPE_CHECKING:
    from . import adaptive_avg_pooling as adaptive_avg_pooling
    from . import batchnorm as batchnorm
    from . import convolution as convolution
    from . import custom_extensions as custom_extensions
    from . import elemwise_ops as elemwise_ops
    from . import formats as formats
    from . import groupnorm as groupnorm
    from . import layernorm as layernorm
    from . import mx_mapping as mx_mapping
    from . import mx_ops as mx_ops
    from . import norm_utils as norm_utils
    from . import quantize as quantize
    from . import rnn as rnn
    from . import simd_ops as simd_ops
    from . import transpose_convolution as transpose_convolution
    from . import vector_ops as vector_ops
else:
    # The modules are attributes, but no part of `import *`: some have the names of functions people define.
    __getattr__, __dir__ = exports(__name__, star_modules=False)
