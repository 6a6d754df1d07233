"""NVIDIA ModelOpt by its module paths, as far as it is about numbers; ``modelopt.torch.quantization`` is here, too.

    import gemmsim.compat.modelopt.torch.quantization as mtq        # import modelopt.torch.quantization as mtq
    mtq.quantize(model, mtq.INT8_DEFAULT_CFG, forward_loop)

docs/reference/compat/modelopt.md lists what differs, and why.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import torch as torch
    from .torch.quantization import *  # noqa: F403
    from .torch.quantization import calib as calib
    from .torch.quantization import calibrate as calibrate
    from .torch.quantization import config as config
    from .torch.quantization import nn as nn
    from .torch.quantization import quantize as quantize
    from .torch.quantization import tensor_quant as tensor_quant

#: Modules of this package; every other name is one of ``torch.quantization``.
_MODULES = ("calib", "config", "nn", "tensor_quant", "torch")

__all__ = ["calib", "calibrate", "config", "nn", "quantize", "tensor_quant", "torch"]


if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        """Load a module, or a name of ``torch.quantization``, on first use (PEP 562)."""
        if name in _MODULES:
            return import_module(f".{name}", __name__)
        if name.startswith("__"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        quantization = import_module(".torch.quantization", __name__)
        if name not in quantization.__all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(quantization, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *import_module(".torch.quantization", __name__).__all__})
