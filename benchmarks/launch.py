"""Time of the host from a call to the driver's launch, without a GPU: the driver is stubbed.

``python benchmarks/launch.py --out launch.jsonl`` measures small calls on CPU tensors that the CUDA backend is made to
take: everything a call does on the host, checks, plan, arguments, lookup of the kernel, but what the driver and
PyTorch's CUDA parts (current device, current stream) would take. And lookups of compiled kernels: in memory, on disk.
Medians of many calls.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import torch
from harness import Report, options

import gemmsim as gs
from gemmsim.backends import cuda, route
from gemmsim.backends.cuda import KernelCache, KernelSource
from gemmsim.backends.cuda.jit import launch
from gemmsim.backends.cuda.jit.cache import EntryInfo, pack_entry
from gemmsim.backends.cuda.jit.compile import kernel_key
from gemmsim.backends.cuda.jit.toolchain import toolchain
from gemmsim.ops import quantize_eager

#: What is called, on 64 x 64 float32 tensors x and w, a bias, formats; most microseconds that are asked for.
X, W, BIAS = torch.randn(64, 64), torch.randn(64, 64), torch.randn(64)
CALLS: dict[str, tuple[Callable[[], object], float | None]] = {
    "qmatmul e4m3 : e5m10": (lambda: gs.qmatmul(X, W, "e4m3 : e5m10"), 15.0),
    "qmatmul : bf16/sr8, seed": (lambda: gs.qmatmul(X, W, ":bf16/sr8", seed=3), None),
    "qmatmul : interleaved(4, e5m10)": (lambda: gs.qmatmul(X, W, ":interleaved(4, e5m10)"), None),
    "qlinear e4m3 : e5m10, bias": (lambda: gs.qlinear(X, W, BIAS, "e4m3 : e5m10"), None),
    "quantize e4m3": (lambda: gs.quantize(X, "e4m3"), None),
}
MEMORY_US, DISK_MS = 20.0, 5.0


class Driver:
    """A driver whose launches do nothing."""

    CUfunction_attribute = types.SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=0)

    def cuLaunchKernel(self, *arguments: object) -> tuple[int]:
        return (0,)

    def cuDeviceGet(self, index: int) -> tuple[int, int]:
        return 0, index

    def CUkernel(self, handle: int) -> int:
        return handle

    def cuKernelSetAttribute(self, *arguments: object) -> tuple[int]:
        return (0,)


@contextlib.contextmanager
def stubbed() -> Iterator[None]:
    """The CUDA backend for CPU tensors, with a driver, device and stream that do nothing, and kernels without code."""
    stream = types.SimpleNamespace(cuda_stream=0)
    core = types.SimpleNamespace(Device=lambda index: types.SimpleNamespace(set_current=lambda: None))
    cache = types.SimpleNamespace(get=lambda source, arch: types.SimpleNamespace(cubin=b""))
    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (launch, "cuda_core", lambda: core),
            (launch, "cuda_driver", Driver),
            (launch, "kernel_cache", lambda: cache),
            (launch, "device_arch", lambda index: "sm_90a"),
            (launch, "_kernels", {}),
            (launch.LoadedKernel, "_load", lambda self, cubin: (None, 1)),
            (torch.cuda, "current_device", lambda: 0),
            (torch.cuda, "current_stream", lambda index: stream),
            (route, "backend_of", lambda x: cuda),
            (quantize_eager, "backend_of", lambda x: cuda),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


def median_us(call: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median and lowest decile of microseconds of a call, of samples of 20 calls each."""
    for _ in range(50):
        call()
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(20):
            call()
        samples.append((time.perf_counter() - start) / 20 * 1e6)
    samples.sort()
    return statistics.median(samples), samples[len(samples) // 10]


def lookups(report: Report, repeats: int) -> None:
    """A kernel found in memory, and one found on disk by a process that has not read it yet."""
    with tempfile.TemporaryDirectory() as folder:
        cache = KernelCache(Path(folder))
        sources = [KernelSource("test", f"kernel {i}", f"// {i}\n", threads=1) for i in range(repeats)]
        cubin = bytes(60_000)
        for source in sources:
            info = EntryInfo("test", source.name, "sm_90a", 0.0, toolchain().digest.hex())
            cache._files()[kernel_key(source, "sm_90a")] = pack_entry(cubin, info)
        times = []
        for source in sources:
            start = time.perf_counter()
            cache.get(source, "sm_90a")
            times.append(time.perf_counter() - start)
        report.add(
            bench="launch", call="lookup on disk, 60 kB", driver="stubbed", us=round(statistics.median(times) * 1e6, 1),
            asked_us=DISK_MS * 1e3,
        )  # fmt: skip
        again = itertools.cycle(sources)
        memory, low = median_us(lambda: cache.get(next(again), "sm_90a"), repeats)
        report.add(
            bench="launch", call="lookup in memory", driver="stubbed", us=round(memory, 2),
            us_lowest_tenth=round(low, 2), asked_us=MEMORY_US,
        )  # fmt: skip


def main() -> None:
    args = options(__doc__ or "")
    torch.set_num_threads(1)
    report, repeats = Report(args.out), 50 if args.quick else 1000
    with stubbed():
        for name, (call, asked) in CALLS.items():
            median, low = median_us(call, repeats)
            assert name.startswith("quantize") or str(gs.last_backend().plan).startswith("cuda: gemm<"), name
            report.add(
                bench="launch", call=f"{name}, 64^3", driver="stubbed", us=round(median, 2),
                us_lowest_tenth=round(low, 2), asked_us=asked,
            )  # fmt: skip
    lookups(report, min(repeats, 200))
    report.close()


if __name__ == "__main__":
    main()
