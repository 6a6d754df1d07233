"""torchmx's MX names and module names, defaults and errors, with the bits of torchmx 0.1.0. torchmx is not needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import config as config
    from . import custom_float_cast as custom_float_cast
    from . import dtypes as dtypes
    from . import env_variables as env_variables
    from . import layers as layers
    from . import mx_quantization_utils as mx_quantization_utils
    from . import mx_tensor as mx_tensor
    from . import ops as ops
    from . import quant_api as quant_api
    from . import utils as utils
    from .mx_tensor import MXTensor as MXTensor

#: Submodules by name.
_MODULES = (
    "config",
    "custom_float_cast",
    "dtypes",
    "env_variables",
    "layers",
    "mx_quantization_utils",
    "mx_tensor",
    "ops",
    "quant_api",
    "utils",
)

__all__ = [
    "MXTensor",
    "config",
    "custom_float_cast",
    "dtypes",
    "env_variables",
    "layers",
    "mx_quantization_utils",
    "mx_tensor",
    "ops",
    "quant_api",
    "utils",
]


if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        """Load a module, or the tensor, on first use (PEP 562)."""
        if name == "MXTensor":
            return import_module(".mx_tensor", __name__).MXTensor
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
