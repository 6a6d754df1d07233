"""Launching, with a driver made of Python: which calls are made, in which order, with which bytes.

No GPU is needed, and none of this shows that a GPU likes it: the tests marked ``gpu`` do.
"""

from __future__ import annotations

import ctypes
import types
from typing import Any

import pytest
import torch

from gemmsim.backends import cuda
from gemmsim.backends.cuda import KernelSource
from gemmsim.backends.cuda.casts import cast as cuda_cast
from gemmsim.backends.cuda.jit import launch
from gemmsim.formats import parse_cast


class Args(ctypes.Structure):
    _fields_ = [("pointer", ctypes.c_void_p), ("count", ctypes.c_uint64)]


class FakeDriver:
    """Records what cuda.bindings.driver is asked; ``status`` is what launches return."""

    CUfunction_attribute = types.SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="max dynamic shared")

    def __init__(self) -> None:
        self.status = 0
        self.calls: list[tuple[Any, ...]] = []

    def CUkernel(self, handle):
        return ("kernel", handle)

    def cuDeviceGet(self, index):
        return 0, ("device", index)

    def cuKernelSetAttribute(self, *arguments):
        self.calls.append(("attribute", *arguments))
        return (0,)

    def cuLaunchKernel(self, handle, x, y, z, tx, ty, tz, shared, stream, parameters, extra):
        record = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))[0]
        args = Args.from_buffer_copy(ctypes.string_at(record, ctypes.sizeof(Args)))
        self.calls.append(("launch", handle, (x, y, z), (tx, ty, tz), shared, stream, args.pointer, args.count, extra))
        return (self.status,)


@pytest.fixture
def gpu(monkeypatch):
    """Two devices, streams numbered 100 + device, and a log of every change of the current device."""
    state = types.SimpleNamespace(current=0, log=[], driver=FakeDriver())

    class Guard:
        def __init__(self, device):
            self.device = device

        def __enter__(self):
            self.before, state.current = state.current, self.device
            state.log.append(("enter", self.device))

        def __exit__(self, *error):
            state.current = self.before
            state.log.append(("leave", self.device))

    class Device:
        def __init__(self, index):
            self.index = index

        def set_current(self):
            state.current = self.index
            state.log.append(("context", self.index))

    kernel = types.SimpleNamespace(handle=0xABC)
    code = types.SimpleNamespace(get_kernel=lambda name: kernel if name == "gemmsim_kernel" else None)
    core = types.SimpleNamespace(Device=Device, ObjectCode=types.SimpleNamespace(from_cubin=lambda cubin: code))
    monkeypatch.setattr(launch, "cuda_core", lambda: core)
    monkeypatch.setattr(launch, "cuda_driver", lambda: state.driver)
    monkeypatch.setattr(launch, "_thread", types.SimpleNamespace())
    monkeypatch.setattr(launch, "_kernels", {})
    monkeypatch.setattr(torch.cuda, "device", Guard)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: state.current)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: types.SimpleNamespace(cuda_stream=100 + index))
    monkeypatch.setattr(launch, "device_arch", lambda index: "sm_90a")
    compiled = types.SimpleNamespace(cubin=b"code")
    state.wanted = []
    cache = types.SimpleNamespace(get=lambda source, arch: state.wanted.append((source.name, arch)) or compiled)
    monkeypatch.setattr(launch, "kernel_cache", lambda: cache)
    return state


def source(shared: int = 0) -> KernelSource:
    return KernelSource("test", "kernel", f"text {shared}", threads=128, shared_bytes=shared)


def test_a_launch_passes_one_record_on_the_current_stream(gpu):
    launch.launch(source(), torch.device("cuda", 0), (7, 2, 1), Args(pointer=0x1234, count=2**40))
    assert gpu.driver.calls == [("launch", 0xABC, (7, 2, 1), (128, 1, 1), 0, 100, 0x1234, 2**40, 0)]


def test_a_device_that_is_not_current_is_entered_and_left(gpu):
    launch.launch(source(), torch.device("cuda", 1), (1, 1, 1), Args())
    assert gpu.driver.calls[-1][5] == 101 and gpu.current == 0
    gpu.log.clear()
    launch.launch(source(), torch.device("cuda", 1), (1, 1, 1), Args())
    assert gpu.log == [("enter", 1), ("leave", 1)], "the second time only the guard is left"


def test_a_device_without_index_is_the_current_one(gpu):
    gpu.current = 1
    launch.launch(source(), torch.device("cuda"), (1, 1, 1), Args())
    assert gpu.driver.calls[-1][5] == 101


def test_a_kernel_is_loaded_once_for_each_device(gpu):
    for index in (0, 1, 0, 1):
        launch.launch(source(), torch.device("cuda", index), (1, 1, 1), Args())
    assert gpu.wanted == [("kernel", "sm_90a")] * 2 and len(gpu.driver.calls) == 4


def test_more_than_48_kilobytes_of_shared_memory_are_asked_for(gpu):
    launch.launch(source(48 * 1024), torch.device("cuda", 0), (1, 1, 1), Args())
    assert [call[0] for call in gpu.driver.calls] == ["launch"]
    launch.launch(source(100_000), torch.device("cuda", 0), (1, 1, 1), Args())
    asked = ("attribute", "max dynamic shared", 100_000, ("kernel", 0xABC), ("device", 0))
    assert gpu.driver.calls[1] == asked and gpu.driver.calls[2][4] == 100_000


def test_a_failed_launch_is_an_error_that_names_the_kernel(gpu):
    gpu.driver.status = 701
    with pytest.raises(cuda.DriverError, match=r"launch test<kernel> with \(1, 1, 1\) blocks.*701"):
        launch.launch(source(), torch.device("cuda", 0), (1, 1, 1), Args())


@pytest.mark.cuda
def test_the_driver_has_what_is_asked_of_it():
    """Names only: the functions load libcuda when they are called."""
    from gemmsim.backends.cuda.jit.bindings import cuda_core, cuda_driver

    for name in ("cuLaunchKernel", "cuKernelSetAttribute", "cuDeviceGet", "CUkernel"):
        assert callable(getattr(cuda_driver(), name))
    assert cuda_driver().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES is not None
    assert callable(cuda_core().ObjectCode.from_cubin) and callable(cuda_core().Device)


@pytest.mark.gpu
@pytest.mark.parametrize("text", ["e4m3", "e5m10/sr8", "bf16/rtz", "e8m0", "fixed(8,4)"])
def test_casts_on_the_gpu_have_the_bits_of_the_cpu(text):
    from support import assert_bitwise_equal

    from gemmsim.backends import cpu

    cast = parse_cast(text)
    x = torch.randn(100_003, generator=torch.Generator().manual_seed(1)) * 300
    want, got = torch.empty_like(x), torch.empty_like(x, device="cuda")
    cpu.quantize(x, cast, want, 5)
    cuda_cast.quantize(x.cuda(), cast, got, 5)
    assert_bitwise_equal(got.cpu(), want, context=text)
    strided = torch.empty(2, 100_003, device="cuda").t()[:, 1]
    cuda_cast.quantize(x.cuda(), cast, strided, 5)
    assert_bitwise_equal(strided.cpu(), want, context=f"{text} strided")


@pytest.mark.gpu
def test_a_launch_can_be_captured_in_a_graph_and_follows_the_stream():
    cast = parse_cast("e4m3")
    x, out = torch.randn(4096, device="cuda"), torch.empty(4096, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        cuda_cast.quantize(x, cast, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cuda_cast.quantize(x, cast, out)
    x.copy_(torch.full_like(x, 1.3))
    graph.replay()
    assert bool((out == 1.25).all())
