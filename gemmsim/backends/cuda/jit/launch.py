"""Loads and launches compiled kernels on the tensor's device and torch's current stream there.

A launch allocates nothing and waits for nothing, so a CUDA graph can capture it. Loading a kernel for the first time
cannot be captured: run the operation once before the capture.
"""

from __future__ import annotations

import ctypes
import threading
from functools import lru_cache
from typing import Any

import torch

from ..errors import DriverError, message
from .arch import arch_of_capability
from .bindings import cuda_core, cuda_driver
from .cache import kernel_cache
from .source import ENTRY, KernelSource

__all__ = ["LoadedKernel", "device_arch", "launch", "loaded"]

#: Dynamic shared memory that a block may have without a request to the driver.
_PLAIN_SHARED_BYTES = 48 * 1024

_kernels: dict[tuple[KernelSource, int], LoadedKernel] = {}
_lock = threading.Lock()
_thread = threading.local()


def _check(status: Any, what: str) -> None:
    if int(status) != 0:
        name = getattr(status, "name", str(status))
        raise DriverError(f"The CUDA driver could not {what}: {name} ({int(status)}).")


@lru_cache(maxsize=64)
def device_arch(index: int) -> str:
    """Return the architecture for which kernels are compiled on device ``index``.

    Raises:
        ArchitectureError: for a device that is too old or too new.
    """
    return arch_of_capability(*torch.cuda.get_device_capability(index))


class LoadedKernel:
    """A kernel on one device, ready to be launched."""

    __slots__ = ("_driver", "_handle", "_keep", "_shared", "_threads", "device", "source")

    def __init__(self, source: KernelSource, device: int, cubin: bytes, driver: Any = None) -> None:
        """Load ``cubin``, the machine code of ``source`` for ``device``. ``DriverError`` if that fails."""
        self.source, self.device = source, device
        self._driver = driver or cuda_driver()
        self._threads, self._shared = source.threads, source.shared_bytes
        self._keep, self._handle = self._load(cubin)
        if self._shared > _PLAIN_SHARED_BYTES:
            self._allow_shared_memory()

    def _load(self, cubin: bytes) -> tuple[Any, int]:
        try:
            core = cuda_core()
            with torch.cuda.device(self.device):
                core.Device(self.device).set_current()
                code = core.ObjectCode.from_cubin(cubin)
                kernel = code.get_kernel(ENTRY)
            return (code, kernel), int(kernel.handle)
        except Exception as error:  # without a driver: SystemError, RuntimeError or AssertionError, by version
            asked = f"running {self.source} on CUDA device {self.device} ({type(error).__name__}: {error})"
            do = "Check that nvidia-smi lists the GPU and that its driver is of version 580 or newer."
            raise DriverError(message(asked, "a GPU with an NVIDIA driver for CUDA 13", do)) from error

    def _allow_shared_memory(self) -> None:
        driver = self._driver
        status, device = driver.cuDeviceGet(self.device)
        _check(status, f"find device {self.device}")
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (status,) = driver.cuKernelSetAttribute(attribute, self._shared, driver.CUkernel(self._handle), device)
        _check(status, f"give {self.source} {self._shared} bytes of shared memory per block")

    def __call__(self, blocks: tuple[int, int, int], args: ctypes.Structure) -> None:
        """Launch ``blocks`` blocks on the current stream with the record ``args``, which is copied before this
        returns.
        """
        if self.device != torch.cuda.current_device():
            with torch.cuda.device(self.device):
                self._launch(blocks, args)
        else:
            self._launch(blocks, args)

    def _launch(self, blocks: tuple[int, int, int], args: ctypes.Structure) -> None:
        _enter_context(self.device)
        stream = torch.cuda.current_stream(self.device).cuda_stream
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(args))
        (status,) = self._driver.cuLaunchKernel(
            self._handle, *blocks, self._threads, 1, 1, self._shared, stream, ctypes.addressof(parameters), 0
        )
        if int(status):
            _check(status, f"launch {self.source} with {blocks} blocks")


def _enter_context(device: int) -> None:
    """Make torch's context current in a thread that has not run anything on ``device`` yet."""
    seen = getattr(_thread, "devices", None)
    if seen is None:
        seen = _thread.devices = set()
    if device not in seen:
        cuda_core().Device(device).set_current()
        seen.add(device)


def loaded(source: KernelSource, device: int) -> LoadedKernel:
    """Return ``source`` on ``device``: compiled, read from disk or, after the first call, looked up.

    Raises:
        CudaError: if it cannot be compiled or loaded.
    """
    found = _kernels.get((source, device))
    if found is None:
        cubin = kernel_cache().get(source, device_arch(device)).cubin
        with _lock:
            found = _kernels.get((source, device))
            if found is None:
                found = _kernels[source, device] = LoadedKernel(source, device, cubin)
    return found


def launch(source: KernelSource, device: torch.device, blocks: tuple[int, int, int], args: ctypes.Structure) -> None:
    """Run ``source`` on ``device`` and torch's current stream there.

    Raises:
        CudaError: if it cannot be compiled, loaded or launched.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    loaded(source, index)(blocks, args)
