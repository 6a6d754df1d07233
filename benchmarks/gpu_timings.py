"""Parts of the GPU check that measure time: products, casts, block formats, row operations, tensor cores.

Beside everything stands what the chip does by itself in the same run: torch.matmul, cuBLAS, a device copy. The clock is
sampled while something is measured, so that a share of the limit is one of the clock that there was.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from gpu_kernels import WORKERS
from gpu_machine import Clock
from gpu_results import Results
from gpu_trace import planning

import gemmsim as gs
from gemmsim import tensor_quant
from gemmsim.backends import cuda
from gemmsim.backends.encoded_operand import Coded
from gemmsim.formats import parse_block

LANES = 128
#: Elements of the casts that are timed: 1 GiB of float32.
CAST_ELEMENTS = 1 << 28
#: Rows and columns of the products that are timed.
N = 4096
#: Spec; slots of a step where they are known (multiply-add lanes a cycle over them is the limit; docs/design/cuda.md);
#: the share of the limit that is asked for.
TIMED: tuple[tuple[str, float | None, float | None], ...] = (
    (":fp32", 1.1, None),
    ("e4m3 : e6m9", 3.0, 0.7),  # on grid: no range steps
    (":e5m10, arithmetic=fp32", 5.0, 0.7),  # in range: with the register's subnormals
    ("fp16 : e5m10", 0.5, 0.5),  # packed, as the next two
    ("e4m3 : e5m10", 0.5, 0.5),
    ("bf16 : bf16", 0.5, 0.5),
    (":e5m10", None, None),
    (":e5m10/rtz", None, None),
    (":e5m10/sr8", None, None),
    (":chunked(64, e5m10)", None, None),
    ("bf16 : kahan(bf16)", None, None),
    ("int8 : int(32)", None, None),
    ("hw(hopper, wgmma, e4m3)", None, None),
    ("mxfp8_e4m3 : fp32", 1.1, None),
    ("mxfp8_e4m3 : scaled(fp32)", None, None),
    ("nvfp4/tensor : scaled(fp32)", None, None),
)


#: Casts that are timed, the last three blocks of d-Matrix formats; block formats; rows of the row operations.
CASTS = (
    "e4m3", "e5m10", "bf16/sr8", "supernormal(4,3)", "bfp(8,16)", "bfp(8,tensor)",
    "FP[1|4|3,7](_N)", "MXFP8[E4M3]{32}", "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}",
)  # fmt: skip
BLOCKS = ("mxfp8_e4m3", "mxfp4", "nvfp4")
WAYS = ("encode", "decode", "quantize", "quantize dim 0")
ROWS = (64, 1 << 10, 1 << 17)
ROW_CALLS = ("softmax sequential", "softmax tree(64)", "layernorm sequential")
#: Specs that cuBLAS takes, under ``cublas_acceleration``.
ACCELERATED = ("fp16 : fp16", "bf16 : fp32", "e4m3 : fp32", "mxfp8_e4m3 : fp32", "int8 : int(32)")
OWN, LIBRARY = "gemm_tensor_cores", "cublas_acceleration, decoding included"
#: Specs that CUTLASS' mainloop takes, under ``cutlass_acceleration``, and the dtype that holds their operands.
COLLECTIVE = {"bf16 : fp32": "bf16", "e4m3 : fp32": "fp32"}
_NATIVE = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
#: What follows from seconds and the clock in MHz.
Figures = Callable[[float, float | None], dict[str, Any]]


def median_seconds(call: Callable[[], object], repeats: int) -> float:
    """Median time between events around one call each, after three calls of warming up."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        call()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last) * 1e-3)
    return statistics.median(times)


class Timer:
    """Measures into a part; what an earlier call of the check has measured is not measured again."""

    def __init__(self, results: Results, clock: Clock, machine: dict[str, Any], part: str = "timings") -> None:
        self.results, self.clock, self.part = results, clock, part
        self.max_mhz = machine.get("max_sm_mhz") or 1980.0
        self.lanes = LANES * torch.cuda.get_device_properties(0).multi_processor_count

    def time(self, table: str, name: str, call: Callable[[], object], repeats: int, figures: Figures) -> None:
        """The median seconds of ``call``, the clock meanwhile (MHz) and ``figures(seconds, clock)`` as a finding."""

        def work() -> dict[str, Any]:
            call()  # compiled and loaded
            torch.cuda.synchronize()
            begin = time.monotonic()
            seconds = median_seconds(call, repeats)
            clock = self.clock.between(begin, time.monotonic())
            return {"seconds": seconds, "clock_mhz": clock, **figures(seconds, clock)}

        self.results.measure(self.part, f"{table}/{name}", work)

    def native(self, name: str, figure: str = "seconds") -> float:
        """Of a finding of the table "native". ``KeyError`` where it failed: then so does what is compared with it."""
        found = self.results.run.findings.get((self.part, f"native/{name}"))
        if found is None or not found.ok:
            raise KeyError(f"{name} was not measured")
        return float(found.value[figure])

    def moved(self, table: str, name: str, call: Callable[[], object], size: int, asked: float | None) -> None:
        """A call that moves ``size`` bytes, beside the device copy."""

        def figures(seconds: float, clock: float | None) -> dict[str, Any]:
            rate = size / seconds
            return {"bytes_per_second": rate, "of_copy": rate / self.native("copy", "bytes_per_second"), "asked": asked}

        self.time(table, name, call, 10, figures)


def _nothing(seconds: float, clock: float | None) -> dict[str, Any]:
    return {}


def _macs(seconds: float, clock: float | None) -> dict[str, Any]:
    return {"tmacs": N**3 / seconds / 1e12}


def block_formats(x: torch.Tensor, timer: Timer) -> None:
    """Conversions of block formats; 0.85 of a copy's bytes a second is asked for."""
    for dtype in (torch.float32, torch.bfloat16):
        y = x.view(-1, 4096).to(dtype)
        for name in BLOCKS:
            codes, values = gs.mx.encode(y, name), torch.empty_like(y)
            moved, stored = y.numel() * y.element_size(), codes.codes.numel() + codes.scales.numel()
            calls: dict[str, tuple[Callable[[], object], int]] = {
                "encode": (lambda: gs.mx.encode(y, name, out=codes[:2]), moved + stored),
                "decode": (lambda: gs.mx.decode(codes, name, out=values), moved + stored),
                "quantize": (lambda: gs.mx.quantize(y, name, out=values), 2 * moved),
                "quantize dim 0": (lambda: gs.mx.quantize(y, name, dim=0, out=values), 2 * moved),
            }
            for way, (call, size) in calls.items():
                timer.moved("block formats", f"{way} {name} {str(dtype)[6:]}", call, size, 0.85)


def row_operations(timer: Timer) -> None:
    """Softmax and layer norm in e5m10 steps, rows of 1024, beside PyTorch's own in float32."""
    orders = {
        "sequential": gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10"),
        "tree(64)": gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10", order="tree(64)"),
    }
    norm = gs.QLayerNormFormats(*["e5m10"] * 7)
    for rows in ROWS:
        x = torch.randn(rows, 1024, device="cuda")
        timer.time("native", f"torch softmax, {rows} rows", lambda: torch.softmax(x, -1), 5, _nothing)
        layer_norm = torch.nn.functional.layer_norm
        timer.time("native", f"torch layernorm, {rows} rows", lambda: layer_norm(x, (1024,)), 5, _nothing)
        calls: dict[str, Callable[[], object]] = {
            f"softmax {order}": (lambda formats=formats: gs.functional.qsoftmax(x, -1, formats))
            for order, formats in orders.items()
        }
        calls["layernorm sequential"] = lambda: gs.functional.qlayernorm(x, (1024,), spec=norm)
        for name, call in calls.items():
            peer = f"torch {name.split()[0]}, {rows} rows"
            timer.time("rows", f"{name}, {rows} rows", call, 5, lambda s, c: {"of_torch": timer.native(peer) / s})


def scaled_casts(x: torch.Tensor, out: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Calibrated casts as CPU benchmarks have them: 0.8 of a copy per tensor, 0.7 per channel, 0.5 in blocks."""
    m, o = x.view(-1, 4096), out.view(-1, 4096)
    amax, channel, column = x.abs().amax(), m.abs().amax(1, keepdim=True), m.abs().amax(0, keepdim=True)
    fake, dynamic = tensor_quant.fake_tensor_quant, tensor_quant.dynamic_block_quant
    return {
        "int8 per tensor": lambda: fake(x, amax, out=out),
        "int8 per channel": lambda: fake(m, channel, out=o),
        "int8 last axis": lambda: fake(m, column, out=o),
        "scaled e4m3": lambda: tensor_quant.scaled_e4m3(x, amax, 4, 3, out=out),
        "int8 block 32": lambda: dynamic(x, 32, None, None, 8, None, nonfinite_amax="propagate", out=out),
        "mxfp8 block 32, rounded up": lambda: dynamic(x, 32, out=out),
        "nvfp4 block 16, two levels": lambda: dynamic(x, 16, amax, None, (2, 1), (4, 3), out=out),
    }


def _operands(text: str) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = torch.randn(N, N, device="cuda"), torch.randn(N, N, device="cuda")
    return ((a * 20).round(), (b * 20).round()) if text.startswith("int8") else (a, b)


def _planned(text: str) -> None:
    """Makes the kernels of a product ready; its errors come back when it is timed."""
    with planning(), contextlib.suppress(Exception):
        gs.qmatmul(*_operands(text), text, seed=1)


def _share(timer: Timer, slots: float | None, seconds: float, clock: float | None) -> dict[str, Any]:
    """The limit of the slots at the clock that was sampled, else at the highest, and the share of it."""
    if slots is None:
        return {}
    limit = timer.lanes * 1e6 * (clock or timer.max_mhz) / slots
    return {"limit_tmacs": limit / 1e12, "share": N**3 / seconds / limit}


def products(timer: Timer) -> None:
    """The specs of ``TIMED`` at 4096^3 beside torch.matmul in three dtypes, and native types on cuBLAS."""
    with ThreadPoolExecutor(WORKERS) as pool:  # what is not compiled yet
        list(pool.map(lambda row: _planned(row[0]), TIMED))
    for name, dtype in _NATIVE.items():
        a, b = (x.to(dtype) for x in _operands(name))
        timer.time("native", f"torch.matmul {name}", lambda: torch.matmul(a, b), 5, _macs)
    for text, slots, asked in TIMED:
        a, b = _operands(text)

        def figures(seconds: float, clock: float | None) -> dict[str, Any]:
            return {
                **_macs(seconds, clock),
                **_share(timer, slots, seconds, clock),
                "asked": asked,
                "of_torch_fp32": timer.native("torch.matmul fp32") / seconds,
                "of_torch_bf16": timer.native("torch.matmul bf16") / seconds,
                "backend": str(gs.last_backend())[:200],
            }

        timer.time("products", text, lambda: gs.qmatmul(a, b, text, seed=1), 3, figures)
    for text in ACCELERATED:
        a, b = _operands(text)
        timer.time(
            "cublas", text, lambda: _accelerated(a, b, text), 5,
            lambda s, c: {**_macs(s, c), "backend": str(gs.last_backend())[:200]},
        )  # fmt: skip


def _accelerated(a: torch.Tensor, b: torch.Tensor, text: str) -> torch.Tensor:
    with gs.cublas_acceleration(True):
        return gs.qmatmul(a, b, text, seed=1)


def casts(timer: Timer) -> None:
    """Casts of 2^28 elements beside a copy of them; 0.85 is asked for. Block formats among them."""
    x = torch.randn(CAST_ELEMENTS, device="cuda")
    out = torch.empty_like(x)
    size = 2 * x.numel() * x.element_size()
    timer.time("native", "copy", lambda: out.copy_(x), 10, lambda s, c: {"bytes_per_second": size / s})
    for text in CASTS:
        timer.moved("casts", text, lambda: gs.quantize(x, text, out=out, seed=1), size, 0.85)
    for name, call in scaled_casts(x, out).items():
        timer.moved("casts", name, call, size, None)
    block_formats(x, timer)


def expected() -> dict[str, tuple[str, ...]]:
    """The names of what is timed, by table; those of tensor cores under "tensor cores"."""
    small = torch.ones(4096)
    return {
        "products": tuple(text for text, _, _ in TIMED),
        "cublas": ACCELERATED,
        "casts": (*CASTS, *scaled_casts(small, small)),
        "block formats": tuple(
            f"{way} {name} {dtype}" for dtype in ("float32", "bfloat16") for name in BLOCKS for way in WAYS
        ),
        "rows": tuple(f"{call}, {rows} rows" for rows in ROWS for call in ROW_CALLS),
        "collective": tuple(COLLECTIVE),
        "tensor cores": tuple(f"{name}, {label}" for label in (LIBRARY, OWN) for name in BLOCKS),
    }


def small_call() -> float:
    """Microseconds of the host for a product of 64 x 64, its launch included; nothing waits for the GPU."""
    small = torch.randn(64, 64, device="cuda")
    gs.qmatmul(small, small, "e4m3 : e5m10")
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(1000):
        gs.qmatmul(small, small, "e4m3 : e5m10")
    overhead = (time.perf_counter() - begin) / 1000
    torch.cuda.synchronize()
    return overhead * 1e6


def timings(results: Results, machine: dict[str, Any]) -> None:
    """The overhead of a small call, products at 4096^3 against their slot limits, casts against a copy, rows."""
    results.measure("timings", "host/64x64 call", lambda: {"microseconds": small_call()})
    with Clock() as clock:
        timer = Timer(results, clock, machine)
        for table, work in (("products", products), ("casts", casts), ("rows", row_operations)):
            with results.guard("timings", f"{table}: operands"):
                work(timer)


def collective(results: Results, machine: dict[str, Any]) -> None:
    """CUTLASS' mainloop (Hopper): whether its bits are the model's; its speed at 4096^3 beside cuBLAS with the same
    operands and casts, of which 0.8 is asked for. Nothing on another GPU."""
    questions = cuda.collective_questions()
    for spec, ask in questions.items():

        def answer(ask: Callable[[], cuda.Verdict] = ask) -> dict[str, Any]:
            found = ask()
            return {"equal": found.equal, "words": found.words, "digest": found.digest}

        results.measure("tensor cores", f"mainloop/{spec}", answer, limit=180.0)
    with Clock() as clock:
        timer = Timer(results, clock, machine, "tensor cores")
        for text, dtype in COLLECTIVE.items() if questions else ():
            a, b = (x.to(_NATIVE[dtype]) for x in _operands(text))
            columns = b.t().contiguous().t()  # terms side by side, as both libraries like them
            timer.time("native", f"cublas {text}", lambda: _accelerated(a, columns, text), 5, _macs)

            def figures(seconds: float, clock: float | None, text: str = text) -> dict[str, Any]:
                of_cublas = timer.native(f"cublas {text}") / seconds
                backend = str(gs.last_backend())[:200]
                return {**_macs(seconds, clock), "of_cublas": of_cublas, "asked": 0.8, "backend": backend}

            timer.time("collective", text, lambda: _by_cutlass(a, columns, text), 5, figures)


def _by_cutlass(a: torch.Tensor, b: torch.Tensor, text: str) -> torch.Tensor:
    with gs.cutlass_acceleration():
        return gs.qmatmul(a, b, text, seed=1)


def tensor_cores(results: Results, machine: dict[str, Any]) -> None:
    """Products of block formats on tensor cores, 8192^3, beside cuBLAS in bfloat16; 0.7 of its speed is asked for. Then
    CUTLASS' mainloop."""
    n, peer = 8192, "torch.matmul bf16, 8192^3"
    a, b = torch.randn(n, n, device="cuda"), torch.randn(n, n, device="cuda")
    x, y = a.bfloat16(), b.bfloat16()
    out = torch.empty(n, n, dtype=torch.bfloat16, device="cuda")

    def own(name: str) -> Callable[[], object]:
        fmt = parse_block(name)
        left, right = gs.mx.encode(a, fmt), gs.mx.encode(b, fmt)
        packing = "bytes" if fmt.element.bits == 8 else "lo_first"
        one, two = (Coded(t.codes, t.scales, fmt, -1, n, packing) for t in (left, right))
        turned = two.transposed
        return lambda: cuda.gemm_tensor_cores(one, turned, out)

    # The library first: a fault of a kernel of ours would take the GPU from this process.
    ways: list[tuple[str, Callable[[str], Callable[[], object]], float | None]] = [
        (LIBRARY, lambda name: lambda: _accelerated(a, b, f"{name} : fp32"), None),
        (OWN, own, 0.7),
    ]
    with Clock() as clock:
        timer = Timer(results, clock, machine, "tensor cores")
        timer.time("native", peer, lambda: torch.mm(x, y.t()), 5, lambda s, c: {"tmacs": n**3 / s / 1e12})
        for label, way, asked in ways:
            for name in BLOCKS:

                def figures(seconds: float, clock: float | None) -> dict[str, Any]:
                    of_cublas = timer.native(peer) / seconds
                    return {"tmacs": n**3 / seconds / 1e12, "of_cublas_bf16": of_cublas, "asked": asked}

                with results.guard("tensor cores", f"{name}, {label}: operands"):
                    timer.time("block formats", f"{name}, {label}", way(name), 5, figures)
    with results.guard("tensor cores", "collective: operands"):
        collective(results, machine)
