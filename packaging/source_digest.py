"""The digest of everything that the CPU library is compiled from: a wheel records it, `make` compares it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["RECORDED_AS", "sources", "source_digest"]

#: The name of the digest's file in a wheel's dist-info folder.
RECORDED_AS = "library_sources.sha256"


def sources(root: Path) -> Iterator[Path]:
    """Yield the build files and C++ files of the tree at ``root``, by name; other files cannot change the library."""
    yield root / "CMakeLists.txt"
    kernels = (root / "cutlass_kernels").rglob("*")
    yield from sorted(path for path in kernels if path.is_file() and path.suffix != ".md")
    yield root / "packaging" / "old_libraries.h"


def source_digest(root: Path) -> str:
    """Return one SHA-256 over the names and contents of ``sources(root)``."""
    digest = hashlib.sha256()
    for path in sources(root):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{content}  {path.relative_to(root).as_posix()}\n".encode())
    return digest.hexdigest()
