"""Finds the compiler and its headers, their versions, and one digest of everything that goes into a kernel.

NVRTC and every header come from Python packages (the extra ``gemmsim[cuda]``). There is no need for nvcc, a CUDA
toolkit or a driver.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from gemmsim._paths import package_folders

from ..errors import INSTALL, PackageError, message

__all__ = ["PACKAGES", "Toolchain", "header_root", "nvidia_folders", "toolchain"]

#: The packages of the extra, in the versions that were checked together (docs/design/cuda.md). Other installed versions
#: are used as they are.
PACKAGES = {
    "cuda-core": "1.2.2",
    "cuda-bindings": "13.0.3",
    "cuda-pathfinder": "1.9.0",
    "nvidia-cuda-nvrtc": "13.0.88",
    "nvidia-cuda-runtime": "13.0.96",
    "nvidia-cuda-cccl": "13.0.85",
    "nvidia-cutlass": "4.2.0.0",
}

#: Packages whose versions are part of every cache key: the compiler, and headers that are not digested themselves. The
#: other packages call the compiler and the driver; their versions differ between versions of Python.
_IN_MACHINE_CODE = ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-cccl", "nvidia-cutlass")

#: A file of each include folder, and the package that contains it.
_NVIDIA_HEADERS = {"cccl/cuda/std/cstdint": "nvidia-cuda-cccl", "cuda_runtime_api.h": "nvidia-cuda-runtime"}


@dataclass(frozen=True)
class Toolchain:
    """The compiler and headers for kernels.

    ``digest`` is that of gemmsim's own headers and of the versions of the compiler and the other headers.
    """

    include_dirs: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]
    digest: bytes


def _versions() -> tuple[tuple[str, str], ...]:
    found, missing = [], []
    for package in PACKAGES:
        try:
            found.append((package, version(package)))
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        asked = f"the CUDA backend without {', '.join(missing)}"
        raise PackageError(message(asked, "all packages of the extra gemmsim[cuda]", INSTALL))
    return tuple(found)


def header_root() -> Path:
    """Return the folder of gemmsim's own device sources: next to the package in a source tree, in it when installed.

    Raises:
        PackageError: if neither holds them.
    """
    # A source tree comes first, because the copy of an editable install is out of date after an edit of a header.
    candidates = [folder.parent / "cutlass_kernels" for folder in package_folders()]
    candidates += [folder / "cutlass_kernels" for folder in package_folders()]
    for root in candidates:
        if (root / "include" / "gemmsim" / "types.h").is_file():
            return root
    asked = f"gemmsim's kernel sources (looked in {', '.join(map(str, candidates))})"
    raise PackageError(message(asked, "a complete installation", "Install gemmsim again."))


def _own_headers(root: Path) -> Iterator[Path]:
    """Yield the headers that a kernel may include, in a fixed order, without those of the CPU library."""
    yield from sorted(path for path in root.rglob("*.h") if path.relative_to(root).parts[0] != "cpu")


def _package_folders(module: str) -> list[Path]:
    spec = importlib.util.find_spec(module)
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def nvidia_folders() -> list[Path]:
    """Return the folders where NVIDIA's CUDA 13 packages put their files, in the order of ``sys.path``.

    There are several where packages were installed in several places: PyTorch's for all users and the rest for one
    user, or in a separate folder.
    """
    try:
        return _package_folders("nvidia.cu13")
    except ModuleNotFoundError:
        return []


def _nvidia_includes() -> tuple[Path, ...]:
    """Return the include folders of CCCL and of the runtime: one folder if they were installed in one place."""
    includes = [folder / "include" for folder in nvidia_folders()]
    found = []
    for name, package in _NVIDIA_HEADERS.items():
        holder = next((include for include in includes if (include / name).is_file()), None)
        if holder is None:
            looked = ", ".join(map(str, includes)) or "nvidia/cu13/include, which no folder of sys.path has"
            asked = f"{package} without its header {name} (looked in {looked})"
            raise PackageError(message(asked, "the pinned packages of gemmsim[cuda]", INSTALL))
        found.append(holder)
    return tuple(dict.fromkeys(found))


def _cutlass_include() -> Path:
    includes = [folder / "source" / "include" for folder in _package_folders("cutlass_library")]
    for include in includes:
        if (include / "cute" / "tensor.hpp").is_file():
            return include
    asked = f"nvidia-cutlass without its headers (looked in {', '.join(map(str, includes)) or 'cutlass_library'})"
    raise PackageError(message(asked, "the pinned packages of gemmsim[cuda]", INSTALL))


@lru_cache(maxsize=1)
def toolchain() -> Toolchain:
    """Return the installed toolchain, which is searched once for each process.

    Raises:
        PackageError: if a package or header is missing; the message names the extra.
    """
    versions, root, nvidia = _versions(), header_root(), _nvidia_includes()
    # CUTLASS includes CCCL both as <cuda/std/...> and as <cccl/cuda/std/...>. The two folders must belong to one
    # package, so CCCL's folder comes first.
    dirs = (root / "include", root, _cutlass_include(), *nvidia, nvidia[0] / "cccl")
    digest = hashlib.sha256()
    for path in _own_headers(root):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    digest.update(repr([(package, found) for package, found in versions if package in _IN_MACHINE_CODE]).encode())
    return Toolchain(tuple(map(str, dirs)), versions, digest.digest())
