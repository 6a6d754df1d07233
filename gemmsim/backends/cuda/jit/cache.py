"""Finds compiled kernels in memory, else on disk, else compiles them. Several processes may share one folder.

A write makes a temporary file and renames it (``cuda.core.utils.FileStreamProgramCache``). A read checks every byte. So
there is no half-written entry, and a damaged one counts as missing. A folder that cannot be read or written costs one
warning and compile time; it never gives a wrong kernel and never an error. Nothing is created on disk before a kernel
has been compiled.
"""

from __future__ import annotations

import hashlib
import json
import struct
import threading
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import CacheWarning, CudaError, message
from .bindings import cuda_core_utils
from .cache_dir import ENVIRONMENT, cache_folder
from .compile import CompiledKernel, compile_kernel, kernel_key
from .source import KernelSource
from .toolchain import toolchain

__all__ = ["EntryInfo", "KernelCache", "kernel_cache", "pack_entry", "unpack_entry"]


class KernelCache:
    """The kernels of one folder. Safe to use from several threads.

    Example:
        >>> from gemmsim.backends import cuda
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(list(cuda.KernelCache(pathlib.Path(folder)).entries()))
        []
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._memory: dict[tuple[KernelSource, str], CompiledKernel] = {}
        self._lock = threading.Lock()
        self._key_locks: dict[tuple[KernelSource, str], threading.Lock] = {}
        self._warned = False

    def get(self, source: KernelSource, arch: str) -> CompiledKernel:
        """Return ``source`` compiled for ``arch``, from memory, disk or the compiler.

        ``seconds`` is 0 unless this call compiled it.

        Raises:
            CudaError: as ``compile_kernel`` does.
        """
        wanted = (source, arch)
        found = self._memory.get(wanted)
        if found is not None:
            return found
        with self._lock:
            lock = self._key_locks.setdefault(wanted, threading.Lock())
        with lock:  # two threads that want the same kernel compile it once
            found = self._memory.get(wanted)
            if found is None:
                found = self._read(source, arch) or self._compile(source, arch)
                self._memory[wanted] = CompiledKernel(source, arch, found.cubin, 0.0)
        return found

    def _compile(self, source: KernelSource, arch: str) -> CompiledKernel:
        compiled = compile_kernel(source, arch)
        info = EntryInfo(source.family, source.name, arch, round(compiled.seconds, 3), toolchain().digest.hex())
        try:
            self._files()[kernel_key(source, arch)] = pack_entry(compiled.cubin, info)
        except OSError as error:
            self._warn("written", error)
        return compiled

    def _read(self, source: KernelSource, arch: str) -> CompiledKernel | None:
        try:
            if not self.folder.is_dir():
                return None
            data = self._files().get(kernel_key(source, arch))
        except OSError as error:
            self._warn("read", error)
            return None
        if data is None:
            return None
        entry = unpack_entry(data)
        if entry is None:
            self._warn("read", ValueError(f"the entry of {source} for {arch} is corrupt and will be replaced"))
            return None
        return CompiledKernel(source, arch, entry[0], 0.0)

    def holds(self, source: KernelSource, arch: str) -> bool:
        """Whether the folder has ``source`` for ``arch``, where other processes can find it."""
        try:
            return self.folder.is_dir() and self._files().get(kernel_key(source, arch)) is not None
        except OSError:
            return False

    def take(self, other: KernelCache, source: KernelSource, arch: str) -> None:
        """Copy the entry of ``source`` for ``arch`` from the folder of ``other``, which compiles it if it has none.

        Raises:
            CudaError: as ``compile_kernel`` does.
            OSError: if this folder cannot be written.
        """
        key = kernel_key(source, arch)
        data = other._files().get(key)
        if data is None or unpack_entry(data) is None:
            other.get(source, arch)
            data = other._files()[key]
        self._files()[key] = data

    def _files(self) -> Any:
        return cuda_core_utils().FileStreamProgramCache(self.folder)

    def _warn(self, what: str, error: Exception) -> None:
        if self._warned:
            return
        self._warned = True
        text = (
            f"The folder of compiled kernels, {self.folder}, could not be {what} ({error}). Kernels work, but are "
            f"compiled again in every process. Set {ENVIRONMENT} to a writable folder, or run "
            "'gemmsim kernels clear'."
        )
        warnings.warn(text, CacheWarning, stacklevel=4)

    def entries(self) -> Iterator[tuple[Path, EntryInfo, int]]:
        """Yield (file, description, bytes of machine code) of each valid entry on disk, of any version of the
        package.

        Example:
            >>> from gemmsim.backends import cuda
            >>> import pathlib, tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     print(len(list(cuda.KernelCache(pathlib.Path(folder)).entries())))
            0
        """
        for path in sorted(self.folder.rglob("*")) if self.folder.is_dir() else []:
            try:
                entry = unpack_entry(path.read_bytes()) if path.is_file() else None
            except OSError:
                continue
            if entry is not None:
                yield path, entry[1], len(entry[0])

    def clear(self) -> int:
        """Remove every entry and every stored source from the folder and from memory; return the number of removed
        files.

        Only files of this package and of cuda.core are removed; other files in the folder stay.

        Raises:
            CudaError: if a file cannot be removed; those that can are gone.

        Example:
            >>> from gemmsim.backends import cuda
            >>> import pathlib, tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     print(cuda.KernelCache(pathlib.Path(folder)).clear())
            0
        """
        self._memory.clear()
        removed, kept = 0, []
        for part in ("entries", "tmp", "failed"):
            for path in sorted((self.folder / part).rglob("*"), reverse=True):
                if path.is_dir():
                    continue
                try:
                    path.unlink(missing_ok=True)
                    removed += 1
                except OSError as error:
                    kept.append(error)
        if kept:
            asked = f"removing compiled kernels: {len(kept)} of {removed + len(kept)} files stay ({kept[0]})"
            do = f"Make {self.folder} writable, or set {ENVIRONMENT} to another folder."
            raise CudaError(message(asked, "a folder that can be written", do))
        return removed


@lru_cache(maxsize=8)
def _cache_of(folder: Path) -> KernelCache:
    return KernelCache(folder)


def kernel_cache() -> KernelCache:
    """Return the cache of the folder that ``cache_folder`` returns now.

    Example:
        >>> from gemmsim.backends import cuda
        >>> type(cuda.kernel_cache()).__name__
        'KernelCache'
    """
    return _cache_of(cache_folder())


# An entry is one file. The machine code comes first, so that cuobjdump and nvdisasm can read the file directly. The
# description and a checksum over both follow, so that a damaged or truncated file is recognised, whatever wrote it.
_MAGIC = b"gemmsim\1"
_TAIL = struct.Struct("<II32s8s")  # bytes of code, bytes of description, SHA-256 of both, magic


@dataclass(frozen=True)
class EntryInfo:
    """The description of an entry, which ``gemmsim kernels list`` shows.

    ``digest`` is that of the headers and versions with which the entry was made.

    Example:
        >>> from gemmsim.backends import cuda
        >>> cuda.EntryInfo("cast", "e4m3, f32 to f32", "sm_90a", 2.5, "0" * 16).arch
        'sm_90a'
    """

    family: str
    name: str
    arch: str
    seconds: float
    digest: str


def pack_entry(cubin: bytes, info: EntryInfo) -> bytes:
    """Return the bytes of an entry."""
    body = cubin + json.dumps(asdict(info)).encode()
    tail = _TAIL.pack(len(cubin), len(body) - len(cubin), hashlib.sha256(body).digest(), _MAGIC)
    return body + tail


def unpack_entry(data: bytes) -> tuple[bytes, EntryInfo] | None:
    """Return machine code and description; None unless every byte is as ``pack_entry`` wrote it."""
    if len(data) < _TAIL.size:
        return None
    code_size, info_size, digest, magic = _TAIL.unpack(data[-_TAIL.size :])
    body = data[: -_TAIL.size]
    if magic != _MAGIC or code_size + info_size != len(body) or hashlib.sha256(body).digest() != digest:
        return None
    try:
        return body[:code_size], EntryInfo(**json.loads(body[code_size:]))
    except (ValueError, TypeError):  # an entry of another version
        return None
