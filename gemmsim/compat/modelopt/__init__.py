"""NVIDIA ModelOpt by its module paths, as far as it is about numbers; ``modelopt.torch.quantization`` is here, too.

    import gemmsim.compat.modelopt.torch.quantization as mtq        # import modelopt.torch.quantization as mtq
    mtq.quantize(model, mtq.INT8_DEFAULT_CFG, forward_loop)

docs/reference/compat/modelopt.md lists what differs, and why.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: Modules of this package; every other name is one of ``torch.quantization``.
_MODULES = ("calib", "config", "nn", "tensor_quant", "torch")

__all__ = ["calib", "calibrate", "config", "nn", "quantize", "tensor_quant", "torch"]


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
