"""The errors of the CUDA backend. Every message says what was asked, what is allowed and what to do."""

from __future__ import annotations

from gemmsim.formats.errors import LONGEST, shortened

__all__ = [
    "INSTALL",
    "ArchitectureError",
    "CacheWarning",
    "CompileError",
    "CudaError",
    "DriverError",
    "PackageError",
    "message",
]


INSTALL = "Install what is missing: pip install 'gemmsim[cuda]'"


class CudaError(RuntimeError):
    """Anything that keeps the CUDA backend from compiling or running a kernel."""


class PackageError(CudaError):
    """A package of the extra ``gemmsim[cuda]`` is missing, or lacks the files it should bring."""


class DriverError(CudaError):
    """No NVIDIA driver, no GPU, or a call of the driver that failed."""


class ArchitectureError(CudaError, ValueError):
    """A GPU architecture that kernels cannot be compiled for."""


class CompileError(CudaError):
    """The compiler refused a kernel's source. ``log`` is its text; ``source_path`` is where the source was kept."""

    def __init__(self, text: str, *, log: str = "", source_path: str | None = None) -> None:
        super().__init__(text)
        self.log = log
        self.source_path = source_path


class CacheWarning(UserWarning):
    """The folder of compiled kernels cannot be used; kernels are compiled again and kept in memory."""


def message(asked: str, allowed: str, do: str) -> str:
    """The three parts every error of this package states."""
    return f"{shortened(asked, 2 * LONGEST)}; allowed: {allowed}.\n  {do}"
