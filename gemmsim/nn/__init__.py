"""Modules in any format with any accumulator: subclasses of ``torch.nn``'s, with the same arguments and ``formats``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .attention import QMultiheadAttention as QMultiheadAttention
    from .quantizer import Quantizer as Quantizer
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
    "QAdaptiveAvgPool2d": "rows",
    "QAvgPool1d": "rows",
    "QAvgPool2d": "rows",
    "QAvgPool3d": "rows",
    "QBatchNorm1d": "rows",
    "QBatchNorm2d": "rows",
    "QBatchNorm3d": "rows",
    "QEmbedding": "rows",
    "QGELU": "rows",
    "QGroupNorm": "rows",
    "QLayerNorm": "rows",
    "QMultiheadAttention": "attention",
    "QRMSNorm": "rows",
    "QSiLU": "rows",
    "QSoftmax": "rows",
    "Quantizer": "quantizer",
}

__all__ = [
    "QAdaptiveAvgPool2d",
    "QAvgPool1d",
    "QAvgPool2d",
    "QAvgPool3d",
    "QBatchNorm1d",
    "QBatchNorm2d",
    "QBatchNorm3d",
    "QEmbedding",
    "QGELU",
    "QGroupNorm",
    "QLayerNorm",
    "QMultiheadAttention",
    "QRMSNorm",
    "QSiLU",
    "QSoftmax",
    "Quantizer",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
