"""The folder of compiled kernels on disk, and of the sources that did not compile."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path

from ... import environment
from ..errors import CudaError, message
from .source import KernelSource

__all__ = ["ENVIRONMENT", "cache_folder", "keep_failed_source"]

ENVIRONMENT = environment.CACHE_DIR


def cache_folder() -> Path:
    """Return ``$GEMMSIM_CACHE_DIR``, else ``gemmsim`` in the user's cache folder. Nothing is created.

    The user's cache folder is ``$XDG_CACHE_HOME`` or ``~/.cache`` on Linux, ``~/Library/Caches`` on macOS,
    ``%LOCALAPPDATA%`` on Windows.

    Raises:
        CudaError: where that takes a home folder and there is none, as in a container under a user without a name.

    Example:
        >>> from gemmsim.backends import cuda
        >>> cuda.cache_folder().is_absolute()  # such as /home/ada/.cache/gemmsim
        True
    """
    try:
        return _cache_folder(environment.text(ENVIRONMENT))
    except RuntimeError as error:
        asked = f"a folder for compiled kernels in a home folder that cannot be found ({error})"
        do = f"Set {ENVIRONMENT} to a writable folder."
        raise CudaError(message(asked, "a user with a home folder, or a named folder", do)) from error


def _cache_folder(chosen: str | None) -> Path:
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "gemmsim" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "gemmsim"
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that relative paths must be ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "gemmsim"


def keep_failed_source(source: KernelSource, arch: str, log: str) -> Path | None:
    """Write ``source`` and the compiler's ``log`` for a bug report. Return the file, or None if it cannot be
    written.
    """
    digest = hashlib.sha256(source.text.encode()).hexdigest()[:12]
    name = re.sub(r"[^0-9A-Za-z_.]+", "_", str(source)).strip("_")
    commented = "".join(f"// {line}\n" for line in log.splitlines())
    try:
        path = cache_folder() / "failed" / f"{name[:80]}-{digest}-{arch}.cu"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{source.text}\n// {source} for {arch}\n{commented}", encoding="utf-8")
    except (OSError, CudaError):
        return None
    return path
