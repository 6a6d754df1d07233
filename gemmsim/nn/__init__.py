"""Layers in any format with any accumulator: subclasses of ``torch.nn``'s, with the same arguments and ``spec``.

layer = gemmsim.nn.QConv2d(3, 16, 3, padding=1, spec="e4m3 : e5m10")
gemmsim.nn.QLinear.from_float(model.head, "e4m3 : e5m10")

``formats``, the former keyword for ``spec``, still works and is deprecated; the attribute has both names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports

if TYPE_CHECKING:
    from .activation import QGELU as QGELU
    from .activation import QSiLU as QSiLU
    from .activation import QSoftmax as QSoftmax
    from .attention import QMultiheadAttention as QMultiheadAttention
    from .conv import QConv1d as QConv1d
    from .conv import QConv2d as QConv2d
    from .conv import QConv3d as QConv3d
    from .conv import QLazyConv1d as QLazyConv1d
    from .conv import QLazyConv2d as QLazyConv2d
    from .conv import QLazyConv3d as QLazyConv3d
    from .conv_transpose import QConvTranspose1d as QConvTranspose1d
    from .conv_transpose import QConvTranspose2d as QConvTranspose2d
    from .conv_transpose import QConvTranspose3d as QConvTranspose3d
    from .conv_transpose import QLazyConvTranspose1d as QLazyConvTranspose1d
    from .conv_transpose import QLazyConvTranspose2d as QLazyConvTranspose2d
    from .conv_transpose import QLazyConvTranspose3d as QLazyConvTranspose3d
    from .conversion_report import Conversion as Conversion
    from .conversion_report import stands_for as stands_for
    from .embedding import QEmbedding as QEmbedding
    from .emulated_marker import Emulated as Emulated
    from .emulated_marker import NotCalledError as NotCalledError
    from .linear import QLazyLinear as QLazyLinear
    from .linear import QLinear as QLinear
    from .normalization import QBatchNorm1d as QBatchNorm1d
    from .normalization import QBatchNorm2d as QBatchNorm2d
    from .normalization import QBatchNorm3d as QBatchNorm3d
    from .normalization import QGroupNorm as QGroupNorm
    from .normalization import QLayerNorm as QLayerNorm
    from .normalization import QRMSNorm as QRMSNorm
    from .pooling import QAdaptiveAvgPool2d as QAdaptiveAvgPool2d
    from .pooling import QAvgPool1d as QAvgPool1d
    from .pooling import QAvgPool2d as QAvgPool2d
    from .pooling import QAvgPool3d as QAvgPool3d
    from .quantizer import Quantizer as Quantizer
    from .recurrent import QGRU as QGRU
    from .recurrent import QLSTM as QLSTM
    from .recurrent_cells import QGRUCell as QGRUCell
    from .recurrent_cells import QLSTMCell as QLSTMCell
    from .transformer_patches import call_children as call_children
    from .weights import ComputedWeightError as ComputedWeightError
else:
    __getattr__, __dir__ = exports(__name__)
