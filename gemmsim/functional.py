"""Functions of tensors in any arithmetic, each step rounded: the counterpart of ``torch.nn.functional``.

gemmsim.functional.qsoftmax(x, -1, gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10"))

Every name here is also one of ``gemmsim`` itself. See docs/reference/functional.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ops.activations import qgelu as qgelu
    from .ops.activations import qsilu as qsilu
    from .ops.attention import qattention as qattention
    from .ops.batchnorm import qbatchnorm as qbatchnorm
    from .ops.elementwise import qadd as qadd
    from .ops.elementwise import qdiv as qdiv
    from .ops.elementwise import qmean as qmean
    from .ops.elementwise import qmul as qmul
    from .ops.elementwise import qpow as qpow
    from .ops.elementwise import qrelu as qrelu
    from .ops.elementwise import qsqrt as qsqrt
    from .ops.elementwise import qsum as qsum
    from .ops.embedding import qembedding as qembedding
    from .ops.normalization import qgroupnorm as qgroupnorm
    from .ops.normalization import qlayernorm as qlayernorm
    from .ops.normalization import qrmsnorm as qrmsnorm
    from .ops.pooling import qadaptive_avgpool as qadaptive_avgpool
    from .ops.pooling import qavgpool as qavgpool
    from .ops.pooling import qavgpool1d as qavgpool1d
    from .ops.pooling import qavgpool2d as qavgpool2d
    from .ops.pooling import qavgpool3d as qavgpool3d
    from .ops.softmax import qsoftmax as qsoftmax

_HOME = {
    "qadaptive_avgpool": "pooling",
    "qadd": "elementwise",
    "qattention": "attention",
    "qavgpool": "pooling",
    "qavgpool1d": "pooling",
    "qavgpool2d": "pooling",
    "qavgpool3d": "pooling",
    "qbatchnorm": "batchnorm",
    "qdiv": "elementwise",
    "qembedding": "embedding",
    "qgelu": "activations",
    "qgroupnorm": "normalization",
    "qlayernorm": "normalization",
    "qmean": "elementwise",
    "qmul": "elementwise",
    "qpow": "elementwise",
    "qrelu": "elementwise",
    "qrmsnorm": "normalization",
    "qsilu": "activations",
    "qsoftmax": "softmax",
    "qsqrt": "elementwise",
    "qsum": "elementwise",
}

__all__ = [
    "qadaptive_avgpool",
    "qadd",
    "qattention",
    "qavgpool",
    "qavgpool1d",
    "qavgpool2d",
    "qavgpool3d",
    "qbatchnorm",
    "qdiv",
    "qembedding",
    "qgelu",
    "qgroupnorm",
    "qlayernorm",
    "qmean",
    "qmul",
    "qpow",
    "qrelu",
    "qrmsnorm",
    "qsilu",
    "qsoftmax",
    "qsqrt",
    "qsum",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".ops.{_HOME[name]}", __package__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
