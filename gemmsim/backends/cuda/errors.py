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
    """The CUDA backend could not compile or run a kernel.

    Example:
        >>> from gemmsim.backends import cuda
        >>> list(cuda.family_sources(["no such family"]))
        Traceback (most recent call last):
            ...
        gemmsim.backends.cuda.errors.CudaError: kernel family no such family; allowed: cast, block_float, ...
    """


class PackageError(CudaError):
    """A package of the extra ``gemmsim[cuda]`` is missing, or lacks files that it should contain.

    Example:
        >>> from gemmsim.backends import cuda
        >>> issubclass(cuda.PackageError, cuda.CudaError)
        True
    """


class DriverError(CudaError):
    """There is no NVIDIA driver or no GPU, or a call of the driver failed.

    Example:
        >>> from gemmsim.backends import cuda
        >>> issubclass(cuda.DriverError, cuda.CudaError)
        True
    """


class ArchitectureError(CudaError, ValueError):
    """Kernels cannot be compiled for this GPU architecture.

    Example:
        >>> from gemmsim.backends import cuda
        >>> cuda.check_arch("sm_10")
        Traceback (most recent call last):
            ...
        gemmsim.backends.cuda.errors.ArchitectureError: GPU architecture 'sm_10'; allowed: sm_80 (the ...
    """


class CompileError(CudaError):
    """The compiler rejected a kernel's source. ``log`` is its text; ``source_path`` is the file with the source.

    Example:
        >>> from gemmsim.backends import cuda
        >>> cuda.CompileError("cast did not compile", log="error: expected ';'").log
        "error: expected ';'"
    """

    def __init__(self, text: str, *, log: str = "", source_path: str | None = None) -> None:
        super().__init__(text)
        self.log = log
        self.source_path = source_path


class CacheWarning(UserWarning):
    """The folder of compiled kernels cannot be used. Kernels are compiled again and stored in memory.

    Example:
        >>> from gemmsim.backends import cuda
        >>> issubclass(cuda.CacheWarning, UserWarning)
        True
    """
