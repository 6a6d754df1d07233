"""Parts of ``gpu_check.py`` that measure time: products, casts, block formats, row operations, tensor cores."""

from __future__ import annotations

import contextlib
import re
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from gpu_findings import WORKERS, Findings

import gemmsim as gs
from gemmsim import tensor_quant
from gemmsim.backends import cuda
from gemmsim.formats import parse_block

LANES = 128
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


def clock_hz(driver_and_clock: str) -> float:
    """Highest clock of the multiprocessors; 1.98 GHz where nvidia-smi does not say."""
    found = re.search(r"(\d+) MHz", driver_and_clock)
    return float(found[1]) * 1e6 if found else 1.98e9


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


def block_formats(x: torch.Tensor, copy_rate: float, findings: Findings) -> None:
    """Bytes a second of each conversion over those of a copy; 0.85 is asked for."""
    for dtype in (torch.float32, torch.bfloat16):
        y = x.view(-1, 4096).to(dtype)
        for name in ("mxfp8_e4m3", "mxfp4", "nvfp4"):
            codes, values = gs.mx.encode(y, name), torch.empty_like(y)
            moved, stored = y.numel() * y.element_size(), codes.codes.numel() + codes.scales.numel()
            calls: dict[str, tuple[Callable[[], object], int]] = {
                "encode": (lambda: gs.mx.encode(y, name, out=codes[:2]), moved + stored),
                "decode": (lambda: gs.mx.decode(codes, name, out=values), moved + stored),
                "quantize": (lambda: gs.mx.quantize(y, name, out=values), 2 * moved),
                "quantize dim 0": (lambda: gs.mx.quantize(y, name, dim=0, out=values), 2 * moved),
            }
            for way, (call, size) in calls.items():
                key = f"{way} {name} {str(dtype)[6:]}"
                findings.measure("block_formats_of_copy", key, lambda: size / median_seconds(call, 10) / copy_rate)


def row_operations(findings: Findings) -> None:
    """Speed of softmax and layer norm in e5m10 steps, rows of 1024, over PyTorch's own in float32."""
    orders = {
        "sequential": gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10"),
        "tree(64)": gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10", order="tree(64)"),
    }
    norm = gs.QLayerNormFormats(*["e5m10"] * 7)
    for rows in (64, 1 << 10, 1 << 17):
        x = torch.randn(rows, 1024, device="cuda")
        softmax = median_seconds(lambda: torch.softmax(x, -1), 5)
        layer = median_seconds(lambda: torch.nn.functional.layer_norm(x, (1024,)), 5)
        calls: dict[str, tuple[Callable[[], object], float]] = {
            f"softmax {order}": (lambda formats=formats: gs.functional.qsoftmax(x, -1, formats), softmax)
            for order, formats in orders.items()
        }
        calls["layernorm sequential"] = (lambda: gs.functional.qlayernorm(x, (1024,), formats=norm), layer)
        for name, (call, native) in calls.items():
            findings.measure("rows_of_torch", f"{name}, {rows} rows", lambda: native / median_seconds(call, 5))


def _compiled(text: str, n: int) -> None:
    """One product of two n x n matrices, for its kernels; its errors come back when it is timed."""
    with contextlib.suppress(Exception):
        gs.qmatmul(torch.zeros(n, n, device="cuda"), torch.zeros(n, n, device="cuda"), text, seed=1)


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


def _product(text: str, slots: float | None, asked: float | None, peak: float, fp32: float) -> dict[str, Any]:
    n = 4096
    a, b = torch.randn(n, n, device="cuda"), torch.randn(n, n, device="cuda")
    if text.startswith("int8"):
        a, b = (a * 20).round(), (b * 20).round()
    rate = n**3 / median_seconds(lambda: gs.qmatmul(a, b, text, seed=1), 3)
    row: dict[str, Any] = {"tmacs": rate / 1e12, "of_torch_fp32": rate / fp32, "asked": asked}
    if slots is not None:
        row.update(limit=peak / slots / 1e12, share=rate * slots / peak)
    return {**row, "backend": str(gs.last_backend())[:200]}


def products(findings: Findings, driver_and_clock: str) -> None:
    """The specs of ``TIMED`` at 4096^3."""
    n = 4096
    peak = torch.cuda.get_device_properties(0).multi_processor_count * LANES * clock_hz(driver_and_clock)
    with ThreadPoolExecutor(WORKERS) as pool:  # kernels of the same layouts and tiles, compiled at once
        list(pool.map(lambda row: _compiled(row[0], n), TIMED))
    a, b = torch.randn(n, n, device="cuda"), torch.randn(n, n, device="cuda")
    fp32 = n**3 / median_seconds(lambda: torch.mm(a, b), 5)
    for text, slots, asked in TIMED:
        findings.measure("products", text, lambda: _product(text, slots, asked, peak, fp32))


def casts(findings: Findings) -> None:
    """Time of a copy over that of each cast, 2^28 elements; 0.85 is asked for. Block formats among them."""
    x = torch.randn(1 << 28, device="cuda")
    out = torch.empty_like(x)
    copy = median_seconds(lambda: out.copy_(x), 10)
    blocks_of_dmx = ("FP[1|4|3,7](_N)", "MXFP8[E4M3]{32}", "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}")
    for text in ("e4m3", "e5m10", "bf16/sr8", "supernormal(4,3)", "bfp(8,16)", "bfp(8,tensor)", *blocks_of_dmx):
        quantize = lambda: gs.quantize(x, text, out=out, seed=1)  # noqa: E731
        findings.measure("casts_of_copy", text, lambda: copy / median_seconds(quantize, 10))
    for name, call in scaled_casts(x, out).items():
        findings.measure("casts_of_copy", name, lambda: copy / median_seconds(call, 10))
    block_formats(x, 8 * x.numel() / copy, findings)


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


def timings(findings: Findings, driver_and_clock: str) -> None:
    """The overhead of a small call, products at 4096^3 against their slot limits, casts against a copy, rows."""
    findings.measure("host", "64x64 call, microseconds", small_call)
    products(findings, driver_and_clock)
    casts(findings)
    row_operations(findings)


def tensor_cores(findings: Findings) -> None:
    """Products of block formats on tensor cores, 8192^3: speed over that of cuBLAS in bfloat16; 0.7 is asked for."""
    n = 8192
    a, b = torch.randn(n, n, device="cuda"), torch.randn(n, n, device="cuda")
    x, y = a.bfloat16(), b.bfloat16()
    native = median_seconds(lambda: torch.mm(x, y.t()), 5)
    out = torch.empty(n, n, dtype=torch.bfloat16, device="cuda")

    def own(name: str) -> float:
        fmt = parse_block(name)
        left, right = gs.mx.encode(a, fmt), gs.mx.encode(b, fmt)
        packing = "bytes" if fmt.element.bits == 8 else "lo_first"
        one = cuda.Blocks(left.codes, left.scales, fmt, n, packing)
        two = cuda.Blocks(right.codes.t(), right.scales.t(), fmt, n, packing)
        return native / median_seconds(lambda: cuda.gemm_tensor_cores(one, two, out), 5)

    def by_cublas(name: str) -> float:
        with gs.cublas_acceleration(True):
            return native / median_seconds(lambda: gs.qmatmul(a, b, f"{name} : fp32"), 3)

    # The library first: a fault of a kernel of ours would take the GPU from this process.
    for way, label in ((by_cublas, "cublas_acceleration, decoding included"), (own, "gemm_tensor_cores")):
        for name in ("mxfp8_e4m3", "mxfp4", "nvfp4"):
            findings.measure("of_cublas", f"{name}, {label}", lambda: way(name))
