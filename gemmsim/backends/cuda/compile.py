"""From source text to machine code, with NVRTC. Plain values in and out; no driver, no GPU, nothing is launched."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

from .arch import check_arch
from .bindings import cuda_core
from .errors import INSTALL, CompileError, CudaError, PackageError, message
from .folder import keep_failed_source
from .source import KernelSource
from .toolchain import Toolchain, toolchain

__all__ = ["CompiledKernel", "compile_kernel", "program_options"]

_log = logging.getLogger("gemmsim.cuda")


@dataclass(frozen=True)
class CompiledKernel:
    """Machine code of one kernel for one architecture, and how many seconds compiling it took."""

    source: KernelSource
    arch: str
    cubin: bytes
    seconds: float


def program_options(tools: Toolchain, arch: str) -> Any:
    """Options of every kernel, a ``cuda.core.ProgramOptions``.

    C++20: formats are template parameters of class type, with named fields. Unannotated functions are device functions,
    which CUTLASS needs. No contraction of a*b + c: kernels say `fma` where they mean it, and give the host's bits.
    """
    return cuda_core().ProgramOptions(
        arch=arch,
        std="c++20",
        include_path=list(tools.include_dirs),
        device_as_default_execution_space=True,
        device_int128=True,
        fma=False,
    )


def compile_kernel(source: KernelSource, arch: str) -> CompiledKernel:
    """``source`` compiled for ``arch``; logs one INFO line on ``gemmsim.cuda``.

    Raises:
        ArchitectureError: for an unknown or too old architecture.
        PackageError: if a package of the extra is missing.
        CompileError: if the compiler refuses the source. The message has its log and the file the source was kept in.
    """
    check_arch(arch)
    options = program_options(toolchain(), arch)
    _log.info("compiling %s for %s; cached afterwards", source, arch)
    start = time.perf_counter()
    program = cuda_core().Program(source.text, "c++", options)
    try:
        code = bytes(program.compile("cubin").code)
    except Exception as error:  # cuda.core raises kinds of its own, which differ between versions
        raise _refusal(source, arch, error) from error
    finally:
        program.close()
        del program  # now: cuda-core complains where the garbage collector finds it first
    return CompiledKernel(source, arch, code, time.perf_counter() - start)


def _refusal(source: KernelSource, arch: str, error: Exception) -> CudaError:
    log = str(error)
    if type(error).__name__ == "DynamicLibNotFoundError":
        return PackageError(message(f"compiling without a library: {log}", "the pinned packages", INSTALL))
    kept = keep_failed_source(source, arch, log)
    where = f"Its source is in {kept}" if kept else f"Its source, which could not be written to disk:\n{source.text}"
    text = f"NVRTC could not compile {source} for {arch}. {where}\n  Please report it with this log:\n{log}"
    return CompileError(text, log=log, source_path=str(kept) if kept else None)
