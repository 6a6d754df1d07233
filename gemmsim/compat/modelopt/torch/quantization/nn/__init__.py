"""``modelopt.torch.quantization.nn``: quantisers, and modules with them."""

from gemmsim.tensor_quant import QuantLayer

from . import functional, modules
from .modules import quant_conv, quant_pooling
from .modules.quant_activations import QuantLeakyReLU
from .modules.quant_batchnorm import QuantBatchNorm1d, QuantBatchNorm2d, QuantBatchNorm3d
from .modules.quant_conv import *  # noqa: F403
from .modules.quant_instancenorm import QuantInstanceNorm1d, QuantInstanceNorm2d, QuantInstanceNorm3d
from .modules.quant_linear import Linear, QuantLinear
from .modules.quant_module import QuantInputBase, QuantLinearConvBase, QuantModule, QuantModuleRegistry
from .modules.quant_pooling import *  # noqa: F403
from .modules.tensor_quantizer import SequentialQuantizer, TensorQuantizer

__all__ = [
    "Linear",
    "QuantBatchNorm1d",
    "QuantBatchNorm2d",
    "QuantBatchNorm3d",
    "QuantInputBase",
    "QuantInstanceNorm1d",
    "QuantInstanceNorm2d",
    "QuantInstanceNorm3d",
    "QuantLayer",
    "QuantLeakyReLU",
    "QuantLinear",
    "QuantLinearConvBase",
    "QuantModule",
    "QuantModuleRegistry",
    "SequentialQuantizer",
    "TensorQuantizer",
    "functional",
    "modules",
    *quant_conv.__all__,
    *quant_pooling.__all__,
]
