"""NVIDIA ModelOpt's ``modelopt.torch.quantization``, as far as it is about numbers: names, argument orders, defaults.

    import gemmsim.compat.modelopt as mtq
    mtq.quantize(model, mtq.config.INT8_DEFAULT_CFG, forward_loop)
    mtq.tensor_quant.fake_tensor_quant(x, amax, None, 8, False, True)

docs/reference/tensor_quant.md lists where results differ, and why.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import calib as calib
    from . import config as config
    from . import nn as nn
    from . import tensor_quant as tensor_quant
    from .model import calibrate as calibrate
    from .model import quantize as quantize

_MODULES = ("calib", "config", "nn", "tensor_quant")
_HOME = {
    "calibrate": "model",
    "quantize": "model",
}

__all__ = [
    "calib",
    "calibrate",
    "config",
    "nn",
    "quantize",
    "tensor_quant",
]


if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        """Load a public name on first use (PEP 562)."""
        if name in _MODULES:
            return import_module(f".{name}", __name__)
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
