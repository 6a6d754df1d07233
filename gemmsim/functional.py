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
    from .ops.elementwise import qadd as qadd
    from .ops.elementwise import qdiv as qdiv
    from .ops.elementwise import qmean as qmean
    from .ops.elementwise import qmul as qmul
    from .ops.elementwise import qpow as qpow
    from .ops.elementwise import qrelu as qrelu
    from .ops.elementwise import qsqrt as qsqrt
    from .ops.elementwise import qsum as qsum
    from .ops.normalization import qgroupnorm as qgroupnorm
    from .ops.normalization import qlayernorm as qlayernorm
    from .ops.normalization import qrmsnorm as qrmsnorm
    from .ops.softmax import qsoftmax as qsoftmax

_HOME = {
    "qadd": "elementwise",
    "qdiv": "elementwise",
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
    "qadd",
    "qdiv",
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
