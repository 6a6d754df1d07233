"""The errors of the CUDA backend. Every message says what was requested, what is allowed and what to do."""

from __future__ import annotations

from gemmsim.formats.errors import message

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
    """The CUDA backend could not compile or run a kernel."""


class PackageError(CudaError):
    """A package of the extra ``gemmsim[cuda]`` is missing, or lacks files that it should contain."""


class DriverError(CudaError):
    """There is no NVIDIA driver or no GPU, or a call of the driver failed."""


class ArchitectureError(CudaError, ValueError):
    """Kernels cannot be compiled for this GPU architecture."""


class CompileError(CudaError):
    """The compiler rejected a kernel's source. ``log`` is its text; ``source_path`` is the file with the source."""

    def __init__(self, text: str, *, log: str = "", source_path: str | None = None) -> None:
        super().__init__(text)
        self.log = log
        self.source_path = source_path


class CacheWarning(UserWarning):
    """The folder of compiled kernels cannot be used. Kernels are compiled again and stored in memory."""
