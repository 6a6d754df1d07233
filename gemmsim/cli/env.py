"""``gemmsim env``: what this installation runs on, as lines to paste into a bug report.

The lines name folders (the package, its CPU library, the cache of GPU kernels) and the variables of ``VARIABLES`` that
are set, and no other part of the environment.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import gemmsim as gs
from gemmsim.backends import cpu
from gemmsim.backends import environment as variables
from gemmsim.backends.cuda import PACKAGES as CUDA_PACKAGES
from gemmsim.backends.cuda import CudaError, cache_folder

from .console import say, say_json
from .installation import how_installed
from .machine import processor, system

PACKAGES = (
    *("numpy", "typer", "rich", "matplotlib", "scikit-learn", "safetensors", "transformers"),
    *("distributed", "onnx", "onnxscript"),
)

#: Variables that change which kernel runs, how many threads compute, or what PyTorch's own products compute.
VARIABLES = (
    *variables.VARIABLES,
    *("GEMMSIM_RUN", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE"),
    *("OMP_PROC_BIND", "KMP_AFFINITY", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR"),
    *("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"),
    *("NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "CUBLAS_EMULATE_SINGLE_PRECISION"),
    *("CUBLAS_EMULATE_DOUBLE_PRECISION", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "XDG_CACHE_HOME"),
)


def environment(*, check: bool, as_json: bool) -> bool:
    """Prints ``facts``, one line each or as JSON; with ``check`` what comparing the kernels found. False for a
    difference."""
    if as_json:
        return _environment_json(check)
    found = facts()
    width = max(map(len, found))
    for name, value in found.items():
        say(f"{name:<{width}}  {value}")
    if not check:
        return True
    from .self_test import check_kernels

    return check_kernels()


def _environment_json(check: bool) -> bool:
    found: dict[str, Any] = dict(facts())
    if check:
        from .self_test import compared

        sets, count, wrong = compared()
        found["check"] = {"instruction sets": sets, "compared": count, "differences": wrong}
    say_json(found)
    return not (check and wrong)


def facts() -> dict[str, str]:
    """The lines of ``gemmsim env``. A library that cannot be loaded is a fact as well, not an error."""
    return {
        "gemmsim": gs.__version__,
        "installed": how_installed(),
        "package": str(Path(gs.__file__).parent),
        **_cpu_library(),
        "python": f"{platform.python_version()} ({platform.python_implementation()}, {platform.python_compiler()})",
        **_pytorch(),
        **{package: _version(package) for package in PACKAGES},
        **system(),
        **processor(),
        "threads": f"{torch.get_num_threads()}, and {torch.get_num_interop_threads()} for independent operators",
        **_gpus(),
        **{package: _version(package) for package in CUDA_PACKAGES},
        "cache folder": _cache(),
        **{f"${name}": os.environ[name] for name in VARIABLES if name in os.environ},
    }


def _cpu_library() -> dict[str, str]:
    from .self_test import instruction_sets

    return {
        "cpu library": _or_reason(cpu.library_path),
        "cpu library built by": _or_reason(cpu.build_info),
        "cpu instruction sets": _or_reason(lambda: ", ".join(instruction_sets())),
        "cpu instruction set": _or_reason(cpu.isa),
    }


def _pytorch() -> dict[str, str]:
    built = torch.version.cuda or torch.version.hip
    kind = "CUDA" if torch.version.cuda else "ROCm"
    return {
        "torch": torch.__version__,
        "torch build": f"{f'{kind} {built}' if built else 'without CUDA'}, commit {torch.version.git_version}",
        "torch cpu capability": torch.backends.cpu.get_cpu_capability(),
    }


def _gpus() -> dict[str, str]:
    if not torch.cuda.is_available():
        return {"gpu": "none that torch can use", "gpu driver": _driver()}
    names = {}
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        size = f"{found.total_memory / 2**30:.1f} GiB"
        name = f"{found.name}, sm_{found.major}{found.minor}, {found.multi_processor_count} multiprocessors, {size}"
        names["gpu" if index == 0 else f"gpu {index}"] = name
    return {**names, "gpu driver": _driver()}


def _driver() -> str:
    """The NVIDIA driver's first line about itself, which Linux alone has."""
    try:
        return Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0].strip()
    except (OSError, IndexError):
        return "none found"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _or_reason(read: Callable[[], str]) -> str:
    try:
        return read()
    except cpu.LibraryError as error:
        return f"not available: {error}"


def _cache() -> str:
    try:
        folder = cache_folder()
    except CudaError as error:
        return f"not available: {error}"
    return f"{folder}{'' if folder.is_dir() else ' (does not exist yet)'}"
