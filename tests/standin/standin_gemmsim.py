"""The CUDA backend on a GPU that is none: plans, arguments, compiling, caching and loading are its own; a launch is
noted and does nothing, and the result is what the CPU backend gives.

So what surrounds the kernels is tried, and every kernel that would run is known. What kernels compute is not: the tests
that run their text on the host do that.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import torch
from standin_settings import settings
from standin_torch import capturing, host

_local = threading.local()
_lock = threading.Lock()
_known: set[tuple[str, str]] = set()
_lost = False


def where() -> str:
    """What is running: the test, or the part of a program."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    return test.rpartition(" (")[0] or os.environ.get("GEMMSIM_STANDIN_WHERE", "")


def record(source) -> None:
    """Notes that ``source`` was launched: its text once in each process, and where it was launched from."""
    folder = settings().record
    if not folder:
        return
    digest = hashlib.sha256(source.text.encode()).hexdigest()[:24]
    with _lock:
        lines = []
        if ("", digest) not in _known:
            lines.append({"kernel": digest, **dataclasses.asdict(source)})
        if (where(), digest) not in _known:
            lines.append({"where": where(), "uses": digest})
        _known.update((("", digest), (where(), digest)))
        if lines:
            Path(folder).mkdir(parents=True, exist_ok=True)
            with open(Path(folder) / f"{os.getpid()}.jsonl", "a", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)


class Driver:
    """cuda.bindings.driver, of which a launch needs one function; a context that was lost stays lost."""

    class CUfunction_attribute:
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8

    def CUkernel(self, handle):
        return handle

    def cuDeviceGet(self, index):
        return 0, index

    def cuKernelSetAttribute(self, *arguments):
        return (0,)


def _named(part: str, source) -> bool:
    return bool(part) and part in str(source)


def _launch(self, blocks, args) -> None:
    """LoadedKernel.__call__."""
    global _lost
    launch = importlib.import_module("gemmsim.backends.cuda.jit.launch")
    record(self.source)
    names = getattr(_local, "names", None)
    if names is not None:
        names.append(str(self.source))
    if _named(settings().slow_kernel, self.source):
        time.sleep(settings().slow)
    if _named(settings().faults, self.source):
        _lost = True
    if _lost:
        _check_lost()
    if _named(settings().fails, self.source):
        raise launch.DriverError(
            f"The CUDA driver could not launch {self.source} with {blocks} blocks: stand-in (701)."
        )


def _check_lost(*args) -> None:
    if _lost:
        raise RuntimeError("CUDA error: an illegal memory access was encountered (stand-in)")


def _spoil(tensors) -> None:
    """One wrong bit in the first element of each."""
    for x in tensors:
        if x.numel():
            x.reshape(-1)[:1].view(torch.uint8)[:1].bitwise_xor_(1) if x.is_contiguous() else x.flatten()[:1].add_(1)


def answered(real, answer, results):
    """``real`` (whose launches do nothing), then ``answer`` with the same arguments; ``results``: what it writes."""

    @functools.wraps(real)
    def call(*args, **kwargs):
        outer, _local.names = getattr(_local, "names", None), []
        try:
            run = real(*args, **kwargs)
            names = _local.names
        finally:
            _local.names = outer
        if not settings().answers or isinstance(run, _refusal()):
            return run

        def give():
            with host():
                found = answer(*args, **kwargs)
                if any(settings().wrong and settings().wrong in name for name in names):
                    _spoil(results(args, kwargs))
                return found

        graph = capturing()
        if graph is not None and not getattr(_in_operator(), "depth", 0):
            graph.add(give)
        found = give()
        return found if isinstance(run, int) and isinstance(found, int) else run

    return call


def _in_operator():
    return importlib.import_module("standin_torch")._local


def _refusal() -> type:
    return importlib.import_module("gemmsim.lowering.refusal").Refusal


def _at(position: int, name: str):
    return lambda args, kwargs: [kwargs[name] if name in kwargs else args[position]]


def _number(scale) -> float:
    return 1.0 if scale is None else float(scale)


def _finish(raw, finish, out) -> None:
    cast_into = importlib.import_module("gemmsim.backends.convert").cast_into
    importlib.import_module("gemmsim.backends.epilogue_passes").finish_into(raw, finish, out, cast_into)


def _product(cpu, a, b, spec, out, seed=0, c=None, select=None, finish=None, row=0):
    """A product and what follows it. Where the CPU refuses data, a GPU, which cannot, gives NaN."""
    raw = out if finish is None else torch.empty(out.shape, dtype=finish.work)
    try:
        cpu.gemm(a, b, spec, raw, seed, c, select, row=row)
    except ValueError:
        raw.fill_(torch.nan)
    if finish is not None:
        _finish(raw, finish, out)


def _by_instruction(cpu, product):
    """A product by the device's own instruction, which has the bits of its model."""
    answer = _coded_product(cpu) if product.is_coded else functools.partial(_product, cpu)
    answer(product.a, product.b, product.spec, product.out, product.seed, finish=product.finish, row=product.row)


def _gathered(cpu, a, b, spec, out, where, seed=0, c=None, finish=None):
    raw = out if finish is None else torch.empty_strided(out.shape, out.stride(), dtype=finish.work)
    cpu.gathered_gemm(a, b, spec, raw, where, seed, c)
    if finish is not None:
        _finish(raw, finish, out)


def _scaled_blocks(cpu, x, grid, size, scale, amax, out):
    second = 0.0
    if amax is not None and scale == "e4m3":  # as tensor_quant.eager.second_scale
        second = float(amax.to(torch.float32) / torch.full_like(amax, grid.high * 448.0, dtype=torch.float32))
    return cpu.scaled_blocks(x, grid, size, scale, second, out)


def _tensor_cores(a, b, out):
    """The product of values in float64."""
    mx = importlib.import_module("gemmsim.mx")
    values = []
    for x, dim in ((a, -1), (b, -2)):
        scale = {"tensor_scale": x.tensor_scale} if x.format.tensor_scale else {}
        fmt = x.format
        values.append(mx.decode((x.codes, x.scales), fmt, dim=dim, size=x.size, packing=x.packing, **scale).double())
    out.copy_(values[0] @ values[1])


def _answers(cpu):
    """Of each function of the backend: what gives the result, and which arguments hold it."""
    return {
        "quantize": (cpu.quantize, _at(2, "out")),
        "quantize_tensor": (cpu.quantize_tensor, _at(2, "out")),
        "gemm": (functools.partial(_product, cpu), _at(3, "out")),
        "instruction": (functools.partial(_by_instruction, cpu), lambda args, kwargs: [args[0].out]),
        "gathered_gemm": (functools.partial(_gathered, cpu), _at(3, "out")),
        "count_overflows": (cpu.count_overflows, _at(3, "counts")),
        "lookup_gemm": (cpu.lookup_gemm, _at(3, "out")),
        "count_lookup_overflows": (cpu.count_lookup_overflows, _at(3, "counts")),
        "encode_blocks": (
            lambda *args: cpu.encode_blocks(*args[:6], _number(*args[6:] or (None,))),
            lambda args, kwargs: args[2:4],
        ),
        "decode_blocks": (lambda *args: cpu.decode_blocks(*args[:6], _number(*args[6:] or (None,))), _at(3, "out")),
        "quantize_blocks": (lambda *args: cpu.quantize_blocks(*args[:4], _number(*args[4:] or (None,))), _at(2, "out")),
        "run_rows": (cpu.run_rows, lambda args, kwargs: args[2]),
        "affine_cast": (cpu.affine_cast, _at(4, "out")),
        "scaled_cast": (lambda *args, watch=True, **more: cpu.scaled_cast(*args, **more), _at(2, "out")),
        "scaled_blocks": (lambda *args, check=True: _scaled_blocks(cpu, *args), _at(5, "out")),
        "gemm_tensor_cores": (_tensor_cores, _at(2, "out")),
        "exact_sums": (lambda a, b, out, units, lsbs: out.copy_(a.double() @ b.double()), _at(2, "out")),
    }


def _equal(problem):
    """A comparison of an instruction with its model, neither of which was computed."""

    def side(compute):
        def call():
            outer, _local.names = getattr(_local, "names", None), []
            try:
                with_memory = compute()
                wrong = any(settings().wrong and settings().wrong in name for name in _local.names)
            finally:
                _local.names = outer
            return torch.full_like(with_memory, float(wrong))

        return call

    return dataclasses.replace(problem, native=side(problem.native), model=side(problem.model))


def _ones(codes, k, side):
    """check_operands._Codes.lines without drawing, which takes seconds: nothing is computed of these numbers."""
    return torch.full((64, k), codes.code(1.0), dtype=torch.int64)


def _coded_product(cpu):
    """cuda.gemm_coded, whose operands the CPU takes apart itself."""

    def answer(a, b, spec, out, seed=0, finish=None, row=0):
        raw = torch.empty(out.shape, dtype=out.dtype if finish is None else finish.work)
        cpu.gemm_coded(a, b, spec, raw, seed, row=row)
        if finish is not None:
            _finish(raw, finish, out)
        else:
            out.copy_(raw)

    return answer


def _library_products() -> None:
    """cuBLAS."""
    run = importlib.import_module("gemmsim.backends.cublas.run")

    def product(a, b, out, native):
        how = f"cublasGemmEx, compute type {native.compute.name}" if native.call == "gemm_ex" else native.call
        if not settings().answers:
            return f"{how}: nothing"
        with host():
            wide = torch.int32 if native.call == "int_mm" else torch.float64
            out.copy_(torch.matmul(a.to(wide), b.to(wide)))
        return f"{how}: a stand-in"

    def noted(a, b, out, native):
        graph = capturing()
        if graph is not None and not getattr(_in_operator(), "depth", 0):
            graph.add(lambda: product(a, b, out, native))
        return product(a, b, out, native)

    run._cublas_call = run._torch_call = noted
    run.library_refuses = lambda: None


def _mainloops(cpu) -> None:
    """CUTLASS' kernels, whose tensor maps a driver makes and whose machine code says how it is to be launched."""
    importlib.import_module("gemmsim.backends.cuda.tensor_cores.cutlass_params").encode_map = lambda *arguments: bytes(
        128
    )
    module = importlib.import_module("gemmsim.backends.cuda.tensor_cores.cutlass_mainloop")
    if not settings().compile:
        module.check_kernel = lambda collective, arch: None

    arithmetic = importlib.import_module("gemmsim.arithmetic")

    def answer(a, b, spec, out, seed, collective):
        names = [{"f16": "fp16"}.get(name, name) for name in (collective.a, collective.b)]
        chain = arithmetic.Hardware("hopper", "wgmma", *names)
        if collective.promoted:
            chain = arithmetic.Promote(chain, collective.promoted)
        _product(cpu, a, b, dataclasses.replace(spec, accumulator=chain), out, seed)

    module.gemm_collective = answered(module.gemm_collective, answer, _at(3, "out"))


def install() -> None:
    """Changes gemmsim in this process, just after ``gemmsim.backends.cuda`` was imported."""
    if not settings().gpu or not settings().cuda:
        return
    launch = importlib.import_module("gemmsim.backends.cuda.jit.launch")
    cuda = importlib.import_module("gemmsim.backends.cuda")
    cpu = importlib.import_module("gemmsim.backends.cpu")
    launch.cuda_driver = Driver
    launch.cuda_core = lambda: SimpleNamespace(Device=lambda index: SimpleNamespace(set_current=lambda: None))
    launch.LoadedKernel._load = lambda self, cubin: (None, 1)
    launch.LoadedKernel.__call__ = _launch
    if not settings().compile:
        launch.kernel_cache = lambda: SimpleNamespace(get=lambda source, arch: SimpleNamespace(cubin=b""))
        for module in ("tensor_cores.self_check", "tensor_cores.self_check_report"):
            importlib.import_module(f"gemmsim.backends.cuda.{module}").kernel_cache = launch.kernel_cache
    _mainloops(cpu)
    torch.cuda.synchronize = _check_lost
    products = importlib.import_module("gemmsim.backends.cuda.products")

    def replace(name, function):
        """In the package, and where products of all kinds find it."""
        for module in (cuda, products):
            if hasattr(module, name):
                setattr(module, name, function)

    for name, (answer, results) in _answers(cpu).items():
        replace(name, answered(getattr(cuda, name), answer, results))
    cast = importlib.import_module("gemmsim.backends.cuda.casts.cast")
    cast.quantize = cast.CONVERSIONS.quantize = cuda.quantize
    importlib.import_module("gemmsim.backends.cuda.tensor_cores.wgmma_block_scaled").decode_blocks = cuda.decode_blocks
    verdict_for = importlib.import_module("gemmsim.backends.cuda.tensor_cores.self_check").verdict_for
    for module in ("tensor_cores.route", "tensor_cores.self_check_report"):
        importlib.import_module(f"gemmsim.backends.cuda.{module}").verdict_for = lambda device, arch, source, problems: (
            verdict_for(device, arch, source, map(_equal, problems))
        )
    importlib.import_module("gemmsim.backends.cuda.tensor_cores.self_check_inputs")._Codes.lines = _ones
    replace("gemm_coded", answered(cuda.gemm_coded, _coded_product(cpu), _at(3, "out")))
    replace("count_coded_overflows", answered(cuda.count_coded_overflows, cpu.count_coded_overflows, _at(3, "counts")))
    _library_products()
