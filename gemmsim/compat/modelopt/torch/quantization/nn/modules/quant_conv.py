"""``modelopt.torch.quantization.nn.modules.quant_conv``."""

from __future__ import annotations

from torch import nn

from gemmsim import tensor_quant

from .quant_linear import Made
from .quant_module import QuantModuleRegistry

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "QuantConv1d",
    "QuantConv2d",
    "QuantConv3d",
    "QuantConvTranspose1d",
    "QuantConvTranspose2d",
    "QuantConvTranspose3d",
]


@QuantModuleRegistry.register({nn.Conv1d: "nn.Conv1d"})
class QuantConv1d(Made, tensor_quant.QuantConv1d):
    """``gemmsim.tensor_quant.QuantConv1d`` with quantisers of 8 bits by default.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantConv1d(2, 3, 3)(torch.ones(1, 2, 8)).shape
        torch.Size([1, 3, 6])
    """

    default_quant_desc_weight = tensor_quant.QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL


@QuantModuleRegistry.register({nn.Conv2d: "nn.Conv2d"})
class QuantConv2d(Made, tensor_quant.QuantConv2d):
    """``gemmsim.tensor_quant.QuantConv2d`` with quantisers of 8 bits by default.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantConv2d(2, 3, 3)(torch.ones(1, 2, 8, 8)).shape
        torch.Size([1, 3, 6, 6])
    """

    default_quant_desc_weight = tensor_quant.QUANT_DESC_8BIT_CONV2D_WEIGHT_PER_CHANNEL


@QuantModuleRegistry.register({nn.Conv3d: "nn.Conv3d"})
class QuantConv3d(Made, tensor_quant.QuantConv3d):
    """``gemmsim.tensor_quant.QuantConv3d`` with quantisers of 8 bits by default.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantConv3d(2, 3, 3)(torch.ones(1, 2, 4, 4, 4)).shape
        torch.Size([1, 3, 2, 2, 2])
    """

    default_quant_desc_weight = tensor_quant.QUANT_DESC_8BIT_CONV3D_WEIGHT_PER_CHANNEL


@QuantModuleRegistry.register({nn.ConvTranspose1d: "nn.ConvTranspose1d"})
class QuantConvTranspose1d(Made, tensor_quant.QuantConvTranspose1d):
    """``gemmsim.tensor_quant.QuantConvTranspose1d`` with quantisers of 8 bits by default.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantConvTranspose1d(2, 3, 3)(torch.ones(1, 2, 8)).shape
        torch.Size([1, 3, 10])
    """

    default_quant_desc_weight = tensor_quant.QUANT_DESC_8BIT_CONVTRANSPOSE1D_WEIGHT_PER_CHANNEL


@QuantModuleRegistry.register({nn.ConvTranspose2d: "nn.ConvTranspose2d"})
class QuantConvTranspose2d(Made, tensor_quant.QuantConvTranspose2d):
    """``gemmsim.tensor_quant.QuantConvTranspose2d`` with quantisers of 8 bits by default.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantConvTranspose2d(2, 3, 3)(torch.ones(1, 2, 8, 8)).shape
        torch.Size([1, 3, 10, 10])
    """

    default_quant_desc_weight = tensor_quant.QUANT_DESC_8BIT_CONVTRANSPOSE2D_WEIGHT_PER_CHANNEL


@QuantModuleRegistry.register({nn.ConvTranspose3d: "nn.ConvTranspose3d"})
class QuantConvTranspose3d(Made, tensor_quant.QuantConvTranspose3d):
    """``gemmsim.tensor_quant.QuantConvTranspose3d`` with quantisers of 8 bits by default.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.nn.QuantConvTranspose3d(2, 3, 3)(torch.ones(1, 2, 4, 4, 4)).shape
        torch.Size([1, 3, 6, 6, 6])
    """

    default_quant_desc_weight = tensor_quant.QUANT_DESC_8BIT_CONVTRANSPOSE3D_WEIGHT_PER_CHANNEL


#: The same by the plain classes' names.
Conv1d = QuantConv1d
Conv2d = QuantConv2d
Conv3d = QuantConv3d
ConvTranspose1d = QuantConvTranspose1d
ConvTranspose2d = QuantConvTranspose2d
ConvTranspose3d = QuantConvTranspose3d
