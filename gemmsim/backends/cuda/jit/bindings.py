"""Imports the Python packages of the CUDA backend when they are first needed, by one thread at a time.

cuda-core replaces its own names while it is imported. A second thread that imports it meanwhile would get an incomplete
module.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any

from ..errors import INSTALL, PackageError, message

__all__ = ["cuda_core", "cuda_core_utils", "cuda_driver", "nvrtc"]

_lock = threading.Lock()
_modules: dict[str, Any] = {}


def _imported(name: str, package: str) -> Any:
    found = _modules.get(name)
    if found is None:
        with _lock:
            try:
                found = _modules[name] = importlib.import_module(name)
            except ImportError as error:
                asked = f"the CUDA backend without a working {package} ({error})"
                raise PackageError(message(asked, "the packages of the extra gemmsim[cuda]", INSTALL)) from error
    return found


def cuda_core() -> Any:
    """Return module ``cuda.core``. ``PackageError`` if it cannot be imported."""
    return _imported("cuda.core", "cuda-core")


def cuda_core_utils() -> Any:
    """Return module ``cuda.core.utils``. ``PackageError`` if it cannot be imported."""
    cuda_core()
    return _imported("cuda.core.utils", "cuda-core")


def cuda_driver() -> Any:
    """Return module ``cuda.bindings.driver``, which loads libcuda at the first call of one of its functions."""
    return _imported("cuda.bindings.driver", "cuda-bindings")


def nvrtc() -> Any:
    """Return module ``cuda.bindings.nvrtc``, which loads libnvrtc at the first call of one of its functions."""
    return _imported("cuda.bindings.nvrtc", "cuda-bindings")
