"""Modules in any format with any accumulator: subclasses of ``torch.nn``'s, with the same arguments and ``formats``.

layer = gemmsim.nn.QConv2d(3, 16, 3, padding=1, formats="e4m3 : e5m10")
gemmsim.nn.QLinear.from_float(model.head, "e4m3 : e5m10")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from .conversion import Conversion as Conversion
    from .conversion import stands_for as stands_for
    from .emulated import Emulated as Emulated
    from .linear import QLazyLinear as QLazyLinear
    from .linear import QLinear as QLinear
    from .quantizer import Quantizer as Quantizer
    from .recurrent import QGRU as QGRU
    from .recurrent import QLSTM as QLSTM
    from .recurrent_cells import QGRUCell as QGRUCell
    from .recurrent_cells import QLSTMCell as QLSTMCell
    from .rows import QGELU as QGELU
    from .rows import QAdaptiveAvgPool2d as QAdaptiveAvgPool2d
    from .rows import QAvgPool1d as QAvgPool1d
    from .rows import QAvgPool2d as QAvgPool2d
    from .rows import QAvgPool3d as QAvgPool3d
    from .rows import QBatchNorm1d as QBatchNorm1d
    from .rows import QBatchNorm2d as QBatchNorm2d
    from .rows import QBatchNorm3d as QBatchNorm3d
    from .rows import QEmbedding as QEmbedding
    from .rows import QGroupNorm as QGroupNorm
    from .rows import QLayerNorm as QLayerNorm
    from .rows import QRMSNorm as QRMSNorm
    from .rows import QSiLU as QSiLU
    from .rows import QSoftmax as QSoftmax

_HOME = {
    "Conversion": "conversion",
    "stands_for": "conversion",
    "Emulated": "emulated",
    "QAdaptiveAvgPool2d": "rows",
    "QAvgPool1d": "rows",
    "QAvgPool2d": "rows",
    "QAvgPool3d": "rows",
    "QBatchNorm1d": "rows",
    "QBatchNorm2d": "rows",
    "QBatchNorm3d": "rows",
    "QConv1d": "conv",
    "QConv2d": "conv",
    "QConv3d": "conv",
    "QConvTranspose1d": "conv_transpose",
    "QConvTranspose2d": "conv_transpose",
    "QConvTranspose3d": "conv_transpose",
    "QEmbedding": "rows",
    "QGELU": "rows",
    "QGRU": "recurrent",
    "QGRUCell": "recurrent_cells",
    "QGroupNorm": "rows",
    "QLSTM": "recurrent",
    "QLSTMCell": "recurrent_cells",
    "QLayerNorm": "rows",
    "QLazyConv1d": "conv",
    "QLazyConv2d": "conv",
    "QLazyConv3d": "conv",
    "QLazyConvTranspose1d": "conv_transpose",
    "QLazyConvTranspose2d": "conv_transpose",
    "QLazyConvTranspose3d": "conv_transpose",
    "QLazyLinear": "linear",
    "QLinear": "linear",
    "QMultiheadAttention": "attention",
    "QRMSNorm": "rows",
    "QSiLU": "rows",
    "QSoftmax": "rows",
    "Quantizer": "quantizer",
}

__all__ = [
    "Conversion",
    "stands_for",
    "Emulated",
    "QAdaptiveAvgPool2d",
    "QAvgPool1d",
    "QAvgPool2d",
    "QAvgPool3d",
    "QBatchNorm1d",
    "QBatchNorm2d",
    "QBatchNorm3d",
    "QConv1d",
    "QConv2d",
    "QConv3d",
    "QConvTranspose1d",
    "QConvTranspose2d",
    "QConvTranspose3d",
    "QEmbedding",
    "QGELU",
    "QGRU",
    "QGRUCell",
    "QGroupNorm",
    "QLSTM",
    "QLSTMCell",
    "QLayerNorm",
    "QLazyConv1d",
    "QLazyConv2d",
    "QLazyConv3d",
    "QLazyConvTranspose1d",
    "QLazyConvTranspose2d",
    "QLazyConvTranspose3d",
    "QLazyLinear",
    "QLinear",
    "QMultiheadAttention",
    "QRMSNorm",
    "QSiLU",
    "QSoftmax",
    "Quantizer",
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
