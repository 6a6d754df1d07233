"""Compiles source text to machine code with NVRTC. This needs no driver and no GPU, and launches nothing."""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ..errors import INSTALL, CompileError, CudaError, PackageError, message
from .arch import check_arch
from .bindings import cuda_core, nvrtc
from .cache_dir import keep_failed_source
from .source import KernelSource
from .toolchain import Toolchain, toolchain

__all__ = ["OPTIONS", "CompiledKernel", "compile_kernel", "kernel_key", "program_options"]

_log = logging.getLogger("gemmsim.cuda")

#: Options of every kernel, as ``cuda.core.ProgramOptions`` names them.
#:
#: C++20 is needed because formats are template parameters of class type, with named fields. CUTLASS needs unannotated
#: functions to be device functions. The compiler must not contract a*b + c: kernels call `fma` where they need it, and
#: so give the host's bits.
OPTIONS: Final[dict[str, object]] = {
    "std": "c++20",
    "device_as_default_execution_space": True,
    "device_int128": True,
    "fma": False,
}


@dataclass(frozen=True)
class CompiledKernel:
    """Machine code of one kernel for one architecture, and the seconds that compiling took."""

    source: KernelSource
    arch: str
    cubin: bytes
    seconds: float


def program_options(tools: Toolchain, arch: str) -> Any:
    """Return ``OPTIONS`` for ``arch``, with the locations of the headers on this machine."""
    return cuda_core().ProgramOptions(arch=arch, include_path=list(tools.include_dirs), **OPTIONS)


def kernel_key(source: KernelSource, arch: str) -> bytes:
    """Return the SHA-256 of everything on which the machine code depends: text, options, compiler, headers.

    It does not depend on the location of the headers, nor on the packages that only call the compiler. So a folder of
    kernels serves every machine with the same compiler and headers. ``cuda.core.utils.make_program_cache_key`` is not
    used, because it digests the include path and a version of its own.
    """
    parts = (source.text, arch, repr(sorted(OPTIONS.items())), toolchain().digest.hex(), compiler_version())
    digest = hashlib.sha256(usedforsecurity=False)
    for part in parts:
        content = part.encode()
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.digest()


@lru_cache(maxsize=1)
def compiler_version() -> str:
    """Return the version of the loaded NVRTC, which may differ from that of the package that was found first.

    Raises:
        PackageError: if there is none.
    """
    try:
        _, major, minor = nvrtc().nvrtcVersion()
    except RuntimeError as error:  # cuda-pathfinder raises this if there is no such library
        asked = f"compiling without NVRTC ({str(error).splitlines()[0]})"
        raise PackageError(message(asked, "the packages of the extra gemmsim[cuda]", INSTALL)) from error
    return f"{major}.{minor}"


def compile_kernel(source: KernelSource, arch: str) -> CompiledKernel:
    """Return ``source`` compiled for ``arch``; log one INFO line on ``gemmsim.cuda``.

    Raises:
        ArchitectureError: for an unknown or too old architecture.
        PackageError: if a package of the extra is missing.
        CompileError: if the compiler refuses the source. The message has its log and the file the source was kept in.
    """
    if arch not in source.archs:
        check_arch(arch)
    options = program_options(toolchain(), arch)
    _log.info("compiling %s for %s; cached afterwards", source, arch)
    start = time.perf_counter()
    program = cuda_core().Program(source.text, "c++", options)
    try:
        code = bytes(program.compile("cubin").code)
    except Exception as error:  # cuda.core raises exceptions of its own, which differ between versions
        raise _refusal(source, arch, error) from error
    finally:
        program.close()
        del program  # delete it now: cuda-core complains if the garbage collector does it
    return CompiledKernel(source, arch, code, time.perf_counter() - start)


def _refusal(source: KernelSource, arch: str, error: Exception) -> CudaError:
    log = str(error)
    if type(error).__name__ == "DynamicLibNotFoundError":
        return PackageError(message(f"compiling without a library: {log}", "the pinned packages", INSTALL))
    kept = keep_failed_source(source, arch, log)
    where = f"Its source is in {kept}" if kept else f"Its source, which could not be written to disk:\n{source.text}"
    text = f"NVRTC could not compile {source} for {arch}. {where}\n  Please report it with this log:\n{log}"
    return CompileError(text, log=log, source_path=str(kept) if kept else None)
