"""What machine this is, whether the GPU check can run on it, and its clock while something is measured.

``python gpu_machine.py`` says so before anything is installed: exit code 2 and the reason where it cannot. Nothing of
gemmsim is needed for that, and of PyTorch only what is there.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["Clock", "NotReady", "check_ready", "code_of", "machine"]

#: PyTorch and driver that kernels of NVRTC 13 need; a GPU from the A100 on.
OLDEST_TORCH, OLDEST_CUDA, OLDEST_CAPABILITY = (2, 11), 13, (8, 0)
ROOT = Path(__file__).resolve().parent.parent


class NotReady(Exception):
    """Why the check cannot run here, and what to do."""


def _reason(asked: str, allowed: str, do: str) -> NotReady:
    return NotReady(f"{asked}; allowed: {allowed}.\n  {do}")


def _torch() -> ModuleType:
    try:
        import torch
    except Exception as error:
        raise _reason(
            f"{sys.executable} has no PyTorch that can be imported ({type(error).__name__}: {error})",
            "PyTorch 2.11 or newer, built for CUDA 13",
            "Name the Python that has it: PYTHON=/path/to/python gpu_run.sh ...",
        ) from None
    found = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if found < OLDEST_TORCH:
        raise _reason(f"PyTorch {torch.__version__}", "2.11 or newer", "Install a newer PyTorch.")
    built = torch.version.cuda
    if built is None:
        raise _reason(
            f"PyTorch {torch.__version__}, a build without CUDA",
            "a build for CUDA 13",
            "Install PyTorch for CUDA 13, or name the Python that has it: PYTHON=/path/to/python gpu_run.sh ...",
        )
    if int(built.split(".")[0]) < OLDEST_CUDA:
        do = "Install PyTorch for CUDA 13: it brings the compiler (NVRTC) that kernels are made with."
        raise _reason(f"PyTorch {torch.__version__}, built for CUDA {built}", "a build for CUDA 13", do)
    return torch


def driver_version() -> int:
    """CUDA version of the driver, 13000 for 13.0. ``NotReady`` where there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        found = ctypes.c_int()
        status = driver.cuDriverGetVersion(ctypes.byref(found))
    except (OSError, AttributeError) as error:
        raise _reason(f"no NVIDIA driver ({error})", "driver 580 or newer", "Install NVIDIA's driver.") from None
    if status != 0:
        raise _reason(
            f"an NVIDIA driver that does not answer (error {status})", "driver 580 or newer", "See nvidia-smi."
        )
    return found.value


def check_ready() -> ModuleType:
    """PyTorch, if the check can run with it on this machine. ``NotReady`` says what is in the way."""
    torch = _torch()
    version = driver_version()
    if version < 1000 * OLDEST_CUDA:
        asked = f"an NVIDIA driver for CUDA {version // 1000}.{version % 1000 // 10}"
        raise _reason(asked, "a driver for CUDA 13, 580 or newer", "Update NVIDIA's driver.")
    if not torch.cuda.is_available():
        asked = "a driver, but no GPU that PyTorch can use"
        raise _reason(asked, "an NVIDIA GPU from the A100 on", "See nvidia-smi and CUDA_VISIBLE_DEVICES.")
    capability = torch.cuda.get_device_capability(0)
    if capability < OLDEST_CAPABILITY:
        asked = f"{torch.cuda.get_device_name(0)}, of compute capability {capability[0]}.{capability[1]}"
        raise _reason(asked, "8.0 (A100) and newer", "Take another GPU; CUDA_VISIBLE_DEVICES chooses among several.")
    return torch


def said_by(*command: str) -> str:
    """What a command prints; "" where there is none of that name."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _id(torch: ModuleType) -> str:
    """The GPU's name for nvidia-smi, which counts without CUDA_VISIBLE_DEVICES."""
    uuid = getattr(torch.cuda.get_device_properties(0), "uuid", None)
    return "0" if uuid is None else f"GPU-{uuid}"


def code_of() -> str:
    """Which gemmsim this is: the bundle's digest, else the revision and whether anything was changed since."""
    bundle = os.environ.get("GEMMSIM_BUNDLE_DIGEST")
    if bundle:
        return bundle
    revision = said_by("git", "rev-parse", "--short=12", "HEAD") or "unknown"
    changed = said_by("git", "status", "--porcelain", "--untracked-files=no")
    return revision + ("+" if changed else "")


def revision_of() -> str:
    """The revision, that of the bundle where it runs from one."""
    return os.environ.get("GEMMSIM_BUNDLE_REVISION") or said_by("git", "rev-parse", "--short", "HEAD") or "unknown"


def machine() -> dict[str, Any]:
    """What the findings depend on.

    ``NotReady`` where the check cannot run, a package is missing or kernels cannot be compiled for this GPU.
    """
    torch = check_ready()
    import gemmsim as gs
    from gemmsim.backends import cuda
    from gemmsim.backends.cuda.jit.launch import device_arch

    try:
        versions, arch = cuda.toolchain().versions, device_arch(0)
    except cuda.CudaError as error:
        raise NotReady(str(error)) from None
    properties = torch.cuda.get_device_properties(0)
    query = ("--query-gpu=driver_version,clocks.max.sm,clocks.max.mem", "--format=csv,noheader,nounits")
    smi = [part.strip() for part in said_by("nvidia-smi", *query, f"--id={_id(torch)}").split(",")]
    driver, sm, memory = smi if len(smi) == 3 else ("unknown", "", "")
    return {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "arch": arch,
        "multiprocessors": properties.multi_processor_count,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "driver": driver,
        "driver_cuda": driver_version(),
        "max_sm_mhz": int(sm) if sm.isdigit() else None,
        "max_memory_mhz": int(memory) if memory.isdigit() else None,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}, glibc {platform.libc_ver()[1]}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "packages": ", ".join(f"{name} {number}" for name, number in versions),
        "gemmsim": gs.__version__,
        "revision": revision_of(),
    }


class Clock:
    """Clock of the multiprocessors, sampled by nvidia-smi while the context is open.

    ``between(begin, end)`` is the median of what was read between two times of ``time.monotonic``, in MHz; None where
    nvidia-smi is missing or was too slow.
    """

    def __init__(self, identity: str | None = None, every_ms: int = 50) -> None:
        self._times: list[float] = []
        self._clocks: list[float] = []
        self._process: subprocess.Popen[str] | None = None
        self._identity, self._every = identity, every_ms

    def __enter__(self) -> Clock:
        identity = self._identity
        if identity is None:
            import torch

            identity = _id(torch)
        query = [
            "--query-gpu=clocks.sm",
            "--format=csv,noheader,nounits",
            f"--id={identity}",
            f"--loop-ms={self._every}",
        ]
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                ["nvidia-smi", *query], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            threading.Thread(target=self._read, daemon=True).start()
        return self

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                clock = float(line)
                self._times.append(time.monotonic())
                self._clocks.append(clock)

    def between(self, begin: float, end: float) -> float | None:
        """Median clock in MHz."""
        first, last = bisect.bisect_left(self._times, begin), bisect.bisect_right(self._times, end)
        return statistics.median(self._clocks[first:last]) if last > first else None

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def main() -> int:
    """0 if the check can run here."""
    try:
        torch = check_ready()
    except NotReady as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}, Python {platform.python_version()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
