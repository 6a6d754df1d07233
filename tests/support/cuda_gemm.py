"""Matrix products of the CUDA backend with their kernels run on the host; many kernels are compiled together."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends.cuda import gemm_codes, multiply
from gemmsim.backends.cuda import rows as cuda_rows
from gemmsim.backends.cuda.casts import block_float as cuda_block_float
from gemmsim.backends.cuda.casts import cast as cuda_cast
from gemmsim.backends.cuda.casts import scaled_casts as cuda_scaled_cast
from gemmsim.backends.cuda.jit.source import KernelSource
from gemmsim.backends.product import Product
from gemmsim.formats import Format
from support import traces
from support.host import host_library
from support.traces import traced

cuda_gemm = importlib.import_module("gemmsim.backends.cuda.simt.gemm")

cuda_blocks = importlib.import_module("gemmsim.backends.cuda.simt.block_scaled")
cuda_gathered = importlib.import_module("gemmsim.backends.cuda.simt.implicit_im2col")
cuda_counted = importlib.import_module("gemmsim.backends.cuda.simt.event_counting")

#: Arguments of each family's kernels, in C++ and in Python.
_RECORDS = {
    "block_float": ("BlockFloatLaunch", cuda_block_float.BlockFloatLaunch),
    "cast": ("CastArgs", cuda_cast.CastArgs),
    "gemm": ("GemmArgs", cuda_gemm.GemmArgs),
    "rows": ("rows::TileArgs", cuda_rows.TileArgs),
    "scaled_cast": ("ScaledLaunch", cuda_scaled_cast.ScaledLaunch),
}
_entries: dict[KernelSource, ctypes._CFuncPtr] = {}

_ENTRY = (
    'extern "C" int gemmsim_host_run_{i}(const void* a, unsigned x, unsigned y, unsigned z, unsigned t, size_t s, int f) {{\n'
    "    return host::run<gemmsim::{args}, kernel_{i}::gemmsim_kernel_{i}>(a, x, y, z, t, s, f);\n"
    "}}\n"
    'extern "C" unsigned gemmsim_host_args_size_{i}() {{ return sizeof(gemmsim::{args}); }}\n'
)


def _unit(sources: list[KernelSource]) -> str:
    """One translation unit with all kernels, each in a namespace of its own."""
    includes, parts = [], []
    for i, source in enumerate(sources):
        lines = source.text.splitlines()
        includes += [line for line in lines if line.startswith("#include")]
        body = "\n".join(line for line in lines if not line.startswith("#include"))
        args = _RECORDS.get(source.family, ("GemmArgs",))[0]
        parts.append(
            f"#define gemmsim_kernel gemmsim_kernel_{i}\nnamespace kernel_{i} {{\n{body}\n}}\n#undef gemmsim_kernel"
        )
        parts.append(_ENTRY.format(i=i, args=args))
    return "\n".join([*dict.fromkeys(includes), *parts])


def compile_on_host(sources: Iterable[KernelSource]) -> None:
    """Compiles what is not compiled yet."""
    new = [s for s in dict.fromkeys(sources) if s not in _entries]
    if not new or traces.current is not None:
        return
    loaded = host_library(_unit(new), "a unit of kernels")
    for i, source in enumerate(new):
        args = _RECORDS[source.family][1]
        size = getattr(loaded, f"gemmsim_host_args_size_{i}")()
        assert size == ctypes.sizeof(args), "the records of C++ and Python differ"
        _entries[source] = getattr(loaded, f"gemmsim_host_run_{i}")


@contextmanager
def _launching(function: object) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (cuda_cast, cuda_gemm, cuda_counted):
            patch.setattr(module, "launch", function)
        yield


def _run(source: KernelSource, device: torch.device, blocks: tuple[int, int, int], args: ctypes.Structure) -> None:
    if traced(source, blocks, args):
        return
    compile_on_host([source])
    shared = ctypes.c_size_t(source.shared_bytes)
    # Fewer blocks than tiles, so that blocks loop
    x = max(1, blocks[0] // 2 if source.family == "gemm" else blocks[0])
    _entries[source](ctypes.byref(args), x, *blocks[1:], source.threads, shared, int(source.family == "gemm"))


def run_rows_on_host(
    source: KernelSource, device: torch.device, blocks: tuple[int, int, int], args: ctypes.Structure
) -> None:
    """``launch`` for kernels of families ``rows``, ``block_float`` and ``scaled_cast``."""
    if traced(source, blocks, args):
        return
    compile_on_host([source])
    shared = ctypes.c_size_t(source.shared_bytes)
    fibers = source.shared_bytes > 0 or "blocks of" in source.name
    _entries[source](ctypes.byref(args), *blocks, source.threads, shared, int(fibers))


Call = tuple[Tensor, Tensor, GemmSpec, int]


def sources_of(calls: Iterable[Call], out_dtype: torch.dtype = torch.float64, **more: Tensor) -> list[KernelSource]:
    """Kernels that ``host_gemm`` needs for these products."""
    found: list[KernelSource] = []
    with _launching(lambda source, *rest: found.append(source)):
        for a, b, spec, seed in calls:
            out = torch.empty(*a.shape[:-1], b.shape[-1], dtype=out_dtype)
            cuda_gemm.gemm(a, b, spec, out, seed, **more)
    return found


def host_gemm(
    a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int = 0, *rest: Tensor | None, **more: Tensor
) -> object:
    """``gemmsim.backends.cuda.gemm`` with the kernels run on the host."""
    with _launching(_run):
        return cuda_gemm.gemm(a, b, spec, out, seed, *rest, **more)


def host_multiply(product: Product) -> object:
    """``gemmsim.backends.cuda.multiply`` with the kernels run on the host."""
    with _launching(_run), pytest.MonkeyPatch.context() as patch:
        for module in (cuda_blocks, cuda_gathered):
            patch.setattr(module, "launch", _run)
        return multiply(product)


def host_count(a: Tensor, b: Tensor, spec: GemmSpec, counts: Tensor, seed: int = 0) -> object:
    """``gemmsim.backends.cuda.count_overflows`` with the kernels run on the host."""
    with _launching(_run):
        return cuda_gemm.count_overflows(a, b, spec, counts, seed)


def counting_sources_of(calls: Iterable[Call]) -> list[KernelSource]:
    """Kernels that ``host_count`` needs for these products."""
    found: list[KernelSource] = []
    with _launching(lambda source, *rest: found.append(source)):
        for a, b, spec, seed in calls:
            cuda_gemm.count_overflows(a, b, spec, torch.zeros(*a.shape[:-1], b.shape[-1], dtype=torch.int64), seed)
    return found


def host_events(
    a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, counts: Tensor, seed: int = 0, c: Tensor | None = None
) -> object:
    """``gemmsim.backends.cuda.count_events`` with the kernels run on the host."""
    with _launching(_run):
        return cuda_counted.count_events(a, b, spec, out, counts, seed, c)


def watching_sources_of(calls: Iterable[Call], c: Tensor | None = None) -> list[KernelSource]:
    """Kernels that ``host_events`` needs for these products, into the operands' dtype."""
    found: list[KernelSource] = []
    with _launching(lambda source, *rest: found.append(source)):
        for a, b, spec, seed in calls:
            shape = (*a.shape[:-1], b.shape[-1])
            counts = torch.zeros(4, *shape, dtype=torch.int64)
            cuda_counted.count_events(a, b, spec, torch.empty(shape, dtype=a.dtype), counts, seed, c)
    return found


def host_codes(
    a: Tensor, b: Tensor, a_format: object, b_format: object, spec: GemmSpec, out: Tensor, *rest: int
) -> object:
    """``gemmsim.backends.cuda.simt.gemm_codes`` with the kernels run on the host."""
    with _launching(_run):
        return gemm_codes(a, b, a_format, b_format, spec, out, *rest)


def sources_of_codes(calls: Iterable[tuple[Tensor, Tensor, Format, Format, GemmSpec]]) -> list[KernelSource]:
    """Kernels for products, into float64, of codes one an entry."""
    found: list[KernelSource] = []
    with _launching(lambda source, *rest: found.append(source)):
        for a, b, fa, fb, spec in calls:
            out = torch.empty(a.shape[0], b.shape[1], dtype=torch.float64)
            x = torch.zeros(a.shape[0], a.shape[1] // (2 if fa.bits == 4 else 1), dtype=torch.uint8)
            y = torch.zeros(b.shape[0] // (2 if fb.bits == 4 else 1), b.shape[1], dtype=torch.uint8)
            gemm_codes(x, y, fa, fb, spec, out)
    return found


def host_blocks(a: object, b: object, spec: GemmSpec, out: Tensor, seed: int = 0, finish: object = None) -> object:
    """``gemmsim.backends.cuda.gemm_blocks`` with the kernels run on the host."""
    with _launching(_run), pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_blocks, "launch", _run)
        return cuda_blocks.gemm_blocks(a, b, spec, out, seed, finish)


def sources_of_blocks(calls: Iterable[tuple[object, object, GemmSpec, Tensor]]) -> list[KernelSource]:
    """Kernels that ``host_blocks`` needs for these products."""
    found: list[KernelSource] = []
    with pytest.MonkeyPatch.context() as patch:
        for module in (cuda_cast, cuda_gemm, cuda_blocks):
            patch.setattr(module, "launch", lambda source, *rest: found.append(source))
        for a, b, spec, out in calls:
            cuda_blocks.gemm_blocks(a, b, spec, out)
    return found
