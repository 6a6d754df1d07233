"""Finds and loads the C library once, when it is first needed."""

from __future__ import annotations

import ctypes
import platform
import sys
import threading
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64
from pathlib import Path

from gemmsim._paths import package_folders
from gemmsim.formats.errors import shown

from .. import environment
from . import signals
from .ctypes_structs import GEMM_CALL, CastRecord, EventRecord, GatherRecord, GemmSpecPart, LookupRecord, QuantizeArgs

__all__ = ["ISAS", "LibraryError", "build_info", "isa", "library", "library_path", "set_isa"]

#: Instruction sets, the widest of an architecture first. On x86-64 a machine has some of the first three, and
#: ``baseline``. aarch64 has ``neon``, and every other architecture has ``baseline``.
ISAS = ("avx512fp16", "avx512", "avx2", "neon", "baseline")

_ABI = 7
_lock = threading.Lock()
_loaded: ctypes.CDLL | None = None


class LibraryError(RuntimeError):
    """The compiled CPU library is missing, has another version, or does not support the requested instruction set.

    Example:
        >>> from gemmsim.backends import cpu
        >>> cpu.set_isa("avx1024")
        Traceback (most recent call last):
            ...
        gemmsim.backends.cpu.shared_library.LibraryError: Instruction set 'avx1024' cannot be used: it is ...
    """


def _candidates() -> list[Path]:
    name = {"win32": "gemmsim_cpu.dll", "darwin": "libgemmsim_cpu.dylib"}.get(sys.platform, "libgemmsim_cpu.so")
    return [folder / "lib" / name for folder in package_folders()]


def _open(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise LibraryError(
            f"gemmsim's CPU library at {path} cannot be loaded: {error}. {_remedy(str(error))}"
        ) from error


def _remedy(message: str) -> str:
    """Return what to do about a message of the loader."""
    here = f"{platform.system()} on {platform.machine()}"
    if "libgomp" in message:
        return (
            "It runs its threads with the OpenMP library libgomp.so.1. PyTorch's own wheels bring one; this PyTorch "
            "does not. Install libgomp (Debian, Ubuntu: apt-get install libgomp1; conda: conda install libgomp)."
        )
    if "GLIBC" in message or "CXXABI" in message:
        return (
            "It was compiled for newer system libraries than this machine has. Build it here: "
            "`pip install --no-deps --force-reinstall --no-binary gemmsim gemmsim` (needs GCC or Clang)."
        )
    if any(
        words in message for words in ("file too short", "ELF class", "ELF header", "cannot open shared object file")
    ):
        return f"The file is damaged or was built for another platform than {here}. Install gemmsim again."
    return f"This machine is {here}. Install gemmsim again, with this machine's Python."


def _load() -> ctypes.CDLL:
    found = [path for path in _candidates() if path.exists()]
    if not found:
        raise LibraryError(
            f"gemmsim's CPU library is not installed (looked for {', '.join(map(str, _candidates()))}). "
            "It is built when the package is installed: run `pip install .` in the source folder (needs GCC or Clang)."
        )
    lib = _open(found[0])
    lib.gemmsim_abi.argtypes = [POINTER(c_int64)]
    sizes = (c_int64 * 3)()
    version = lib.gemmsim_abi(sizes)
    gemm_args = GEMM_CALL.size + ctypes.sizeof(GemmSpecPart)
    expected = [ctypes.sizeof(CastRecord), gemm_args, ctypes.sizeof(QuantizeArgs)]
    if version != _ABI or list(sizes) != expected:
        raise LibraryError(
            f"gemmsim's CPU library at {found[0]} has ABI {version} with records {list(sizes)}; this Python code needs "
            f"ABI {_ABI} with {expected}. Install the package again so that both come from one version."
        )
    lib.gemmsim_isa.restype = c_char_p
    lib.gemmsim_build.restype = c_char_p
    lib.gemmsim_kernel_rule.argtypes = [c_int32, c_int32]
    lib.gemmsim_kernel_rule.restype = c_char_p
    lib.gemmsim_set_isa.argtypes = [c_char_p]
    lib.gemmsim_gemm.argtypes = [c_char_p]  # packed bytes
    lib.gemmsim_gemm.restype = c_int64
    lib.gemmsim_gathered_gemm.argtypes = [c_char_p, POINTER(GatherRecord)]
    lib.gemmsim_gathered_gemm.restype = c_int64
    lib.gemmsim_lookup_gemm.argtypes = [c_char_p, POINTER(LookupRecord)]
    lib.gemmsim_lookup_gemm.restype = c_int64
    lib.gemmsim_counted_gemm.argtypes = [c_char_p, POINTER(EventRecord)]
    lib.gemmsim_counted_gemm.restype = c_int64
    lib.gemmsim_quantize.argtypes = [POINTER(QuantizeArgs)]
    lib.gemmsim_quantize.restype = c_int
    signals.listen(lib)
    wanted = environment.text(environment.ISA)
    if wanted is not None:
        _select(lib, wanted.lower())
    return lib


def _select(lib: ctypes.CDLL, name: str) -> None:
    status = lib.gemmsim_set_isa(name.encode())
    if status:
        reason = {
            2: "this machine does not have it",
            3: "this build has only the machine's widest set and the baseline (install with GEMMSIM_ISAS=all for all)",
        }.get(status, "it is not a known name")
        raise LibraryError(
            f"Instruction set {shown(name)} cannot be used: {reason}. Allowed: {', '.join(ISAS)} (as far as the "
            f"machine has them). Unset {environment.ISA} to use the widest."
        )


def library() -> ctypes.CDLL:
    """Return the loaded library, which the first call loads.

    Raises:
        LibraryError: if it is missing, from another version, or GEMMSIM_ISA names an unusable instruction set.
    """
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _load()
    return _loaded


def isa() -> str:
    """Return the instruction set in use: one of ``ISAS``.

    Example:
        >>> from gemmsim.backends import cpu
        >>> cpu.isa() in cpu.ISAS
        True
    """
    return str(library().gemmsim_isa().decode())


def set_isa(name: str) -> None:
    """Use another instruction set from now on, for the whole process. All give the same bits; tests check that.

    Raises:
        LibraryError: for an unknown name or one this machine does not have.

    Example:
        >>> from gemmsim.backends import cpu
        >>> before = cpu.isa()
        >>> cpu.set_isa("baseline"), cpu.isa(), cpu.set_isa(before)
        (None, 'baseline', None)
    """
    _select(library(), name)


def build_info() -> str:
    """Return the name of the compiler that built the library.

    Example:
        >>> from gemmsim.backends import cpu
        >>> isinstance(cpu.build_info(), str)  # such as 'GNU 12.2.0'
        True
    """
    return str(library().gemmsim_build().decode())


def library_path() -> str:
    """Return the file that the library was loaded from."""
    return str(library()._name)
