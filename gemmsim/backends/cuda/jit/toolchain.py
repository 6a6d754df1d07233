"""The compiler and its headers: where they lie, their versions, and one digest of all that goes into a kernel.

NVRTC and every header come from Python packages (the extra ``gemmsim[cuda]``): no nvcc, no CUDA toolkit, no driver.
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

#: The packages of the extra, in the versions they were checked in together (docs/design/cuda.md). Other versions are
#: used if they are what is installed.
PACKAGES = {
    "cuda-core": "1.2.2",
    "cuda-bindings": "13.0.3",
    "cuda-pathfinder": "1.9.0",
    "nvidia-cuda-nvrtc": "13.0.88",
    "nvidia-cuda-runtime": "13.0.96",
    "nvidia-cuda-cccl": "13.0.85",
    "nvidia-cutlass": "4.2.0.0",
}

#: Those whose versions are part of every cache key: the compiler, and the headers that are not digested themselves. The
#: others call the compiler and the driver, and are not the same for every version of Python.
_IN_MACHINE_CODE = ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-cccl", "nvidia-cutlass")

#: A file of each include folder, and the package that brings it.
_NVIDIA_HEADERS = {"cccl/cuda/std/cstdint": "nvidia-cuda-cccl", "cuda_runtime_api.h": "nvidia-cuda-runtime"}


@dataclass(frozen=True)
class Toolchain:
    """What kernels are compiled with. ``digest``: of our headers and of the versions of compiler and other headers."""

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
    """Folder of gemmsim's own device sources: beside the package in a source tree, inside it when installed.

    Raises:
        PackageError: if neither holds them.
    """
    # A source tree comes first: an editable install has a copy, which goes stale when a header is edited.
    candidates = [folder.parent / "cutlass_kernels" for folder in package_folders()]
    candidates += [folder / "cutlass_kernels" for folder in package_folders()]
    for root in candidates:
        if (root / "include" / "gemmsim" / "types.h").is_file():
            return root
    asked = f"gemmsim's kernel sources (looked in {', '.join(map(str, candidates))})"
    raise PackageError(message(asked, "a complete installation", "Install gemmsim again."))


def _own_headers(root: Path) -> Iterator[Path]:
    """The headers a kernel may include, in a fixed order. Those of the CPU library are not among them."""
    yield from sorted(path for path in root.rglob("*.h") if path.relative_to(root).parts[0] != "cpu")


def _package_folders(module: str) -> list[Path]:
    spec = importlib.util.find_spec(module)
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def nvidia_folders() -> list[Path]:
    """Where NVIDIA's CUDA 13 packages put their files, in the order of ``sys.path``.

    Several where packages were installed in several places: PyTorch's for all users and the rest for one user, or in a
    folder of its own.
    """
    try:
        return _package_folders("nvidia.cu13")
    except ModuleNotFoundError:
        return []


def _nvidia_includes() -> tuple[Path, ...]:
    """The include folders of CCCL and of the runtime: one where they were installed in one place."""
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
    """The installed toolchain; found once for each process.

    Raises:
        PackageError: if a package or header is missing; the message names the extra.
    """
    versions, root, nvidia = _versions(), header_root(), _nvidia_includes()
    # CUTLASS includes CCCL both as <cuda/std/...> and as <cccl/cuda/std/...>: the two folders must be of one package,
    # so that CCCL's comes first.
    dirs = (root / "include", root, _cutlass_include(), *nvidia, nvidia[0] / "cccl")
    digest = hashlib.sha256()
    for path in _own_headers(root):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    digest.update(repr([(package, found) for package, found in versions if package in _IN_MACHINE_CODE]).encode())
    return Toolchain(tuple(map(str, dirs)), versions, digest.digest())
