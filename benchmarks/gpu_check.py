"""Everything that only a GPU can show, in one command: ``make gpu-check``, or ``python benchmarks/gpu_check.py``.

Tests marked ``gpu`` (CPU and GPU bit for bit), random products on both for a while, the thirteen probes of the chip's
own arithmetic, and timings against the limits. Writes gpu_check.json and gpu_check.md into ``--out``; the exit code is
1 if any bit differs. Each part has its share of ``--minutes``; one that fails or is late leaves the others alone.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

import gemmsim as gs
from gemmsim import tensor_quant
from gemmsim.backends import cuda
from gemmsim.formats import parse_block

HERE = Path(__file__).parent
ROOT = HERE.parent

LANES = 128
#: Kernels compiled at once: a few hundred are, at about a second of CPU each.
WORKERS = max(1, min(8, (os.cpu_count() or 2) - 1))
#: Spec; slots of a step where they are known (multiply-add lanes a cycle over them is the limit; docs/design/cuda.md);
#: the share of the limit that is asked for.
TIMED: tuple[tuple[str, float | None, float | None], ...] = (
    (":fp32", 1.1, None),
    ("bf16 : bf16", 3.0, 0.7),
    ("e4m3 : e5m10", 5.0, 0.7),
    ("fp16 : e5m10", 0.5, 0.5),
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


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    properties = torch.cuda.get_device_properties(0)
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm", "--format=csv,noheader"],
        capture_output=True,
        text=True,
    ).stdout.strip()
    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "driver_and_clock": driver,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "gemmsim": gs.__version__,
        "revision": revision.stdout.strip() or "unknown",
    }


def clock_hz(info: dict[str, Any]) -> float:
    """Highest clock of the multiprocessors; 1.98 GHz where nvidia-smi does not say."""
    found = re.search(r"(\d+) MHz", str(info["driver_and_clock"]))
    return float(found[1]) * 1e6 if found else 1.98e9


def run_tests(seconds: float) -> dict[str, Any]:
    """pytest -m gpu, and its last lines; with pytest-xdist in several processes, which compile at once."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "tests"]
    if importlib.util.find_spec("xdist") is not None:
        command += ["-n", str(WORKERS)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as late:
        text = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        return {"ok": False, "summary": f"out of time after {seconds:.0f} s", "output": text[-4000:]}
    lines = done.stdout.strip().splitlines()
    return {
        "ok": done.returncode == 0,
        "summary": lines[-1] if lines else done.stderr[-500:],
        "output": done.stdout[-8000:],
    }


def _random_spec(rng: random.Random) -> str:
    fmt = rng.choice(["e5m10", "bf16", "e4m3", "e5m2", "e6m9", "fp32", "tf32", "e3m4"])
    mode = rng.choice(["", "", "", "/rtz", "/rna", "/ru", "/rd", "/sr8", "/sr20", "/sat"])
    one = fmt + mode
    shape = rng.choice(
        ["{}", "{}", "chunked(8, {})", "pairwise({})", "interleaved(4, {})", "kahan({})", "neumaier({})"]
    )
    inside = shape.format(one)
    if shape == "{}" and rng.random() < 0.3:
        inside = f"mul={rng.choice(['e5m10', 'bf16'])}{mode if mode.startswith('/sr') else ''}, add={one}"
    return f"{rng.choice(['', 'e4m3', 'bf16', 'e5m2'])} : {inside}"


def random_products(seconds: float) -> dict[str, Any]:
    """Random specs, shapes and data on both devices until the time is over; kernels compile in several threads."""
    start, index, found = time.monotonic(), 0, []
    with ThreadPoolExecutor(WORKERS) as pool:
        while time.monotonic() - start < seconds and sum(isinstance(x, dict) for x in found) < 20:
            found += pool.map(_random_product, range(index, index + 4 * WORKERS))
            index += 4 * WORKERS
    wrong = [x for x in found if isinstance(x, dict)]
    refused = found.count("refused")
    return {"ok": not wrong, "products": len(found) - refused, "refused": refused, "different": wrong}


def _random_product(index: int) -> dict[str, Any] | str | None:
    """None where both devices agree, "refused", or what differs."""
    rng, g = random.Random(index), torch.Generator().manual_seed(index)
    text = _random_spec(rng)
    m, k, n = (rng.choice([1, 7, 33, 64, 130]) for _ in range(3))
    scale = rng.choice([1.0, 1.0, 2.0**-12, 2.0**10])
    a, b = torch.randn(m, k, generator=g) * scale, torch.randn(k, n, generator=g)
    if rng.random() < 0.2:
        a.view(-1)[0], b.view(-1)[-1] = float("inf"), float("nan")
    try:
        want = gs.qmatmul(a, b, text, seed=index)
        got = gs.qmatmul(a.cuda(), b.cuda(), text, seed=index).cpu()
    except ValueError:
        return "refused"
    if torch.equal(want.view(torch.int32), got.view(torch.int32)):
        return None
    return {"spec": text, "shape": [m, k, n], "scale": scale, "seed": index}


def probes(seconds: float) -> dict[str, Any]:
    """What the chip answers to the thirteen probes; differences are findings, not failures."""
    done = subprocess.run(
        [sys.executable, str(HERE / "probes.py"), "--on", "cuda"], capture_output=True, text=True, timeout=seconds
    )
    return {"ok": bool(done.stdout), "answers": done.stdout.splitlines(), "errors": done.stderr[-2000:]}


def instructions(seconds: float) -> dict[str, Any]:
    """Whether each matrix instruction of the chip has its model's bits. A difference is a finding: the model runs."""
    start, verdicts = time.monotonic(), []
    for spec, verdict in cuda.instruction_verdicts():
        verdicts.append({"spec": spec, "equal": verdict.equal, "words": verdict.words, "digest": verdict.digest})
        print(f"  {'equal' if verdict.equal else 'DIFFERENT'}: {spec}: {verdict.words}", flush=True)
        if time.monotonic() - start > seconds:
            break
    return {"ok": True, "verdicts": verdicts}


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


def block_formats(x: torch.Tensor, copy_rate: float) -> dict[str, float]:
    """Bytes a second of each conversion over those of a copy; 0.85 is asked for."""
    shares = {}
    for dtype in (torch.float32, torch.bfloat16):
        y = x.view(-1, 4096).to(dtype)
        for name in ("mxfp8_e4m3", "mxfp4", "nvfp4"):
            codes = gs.mx.encode(y, name)
            values = torch.empty_like(y)
            stored = codes.codes.numel() + codes.scales.numel()
            moved = y.numel() * y.element_size()
            calls: dict[str, tuple[Callable[[], object], int]] = {
                "encode": (lambda y=y, name=name, codes=codes: gs.mx.encode(y, name, out=codes[:2]), moved + stored),
                "decode": (
                    lambda name=name, codes=codes, out=values: gs.mx.decode(codes, name, out=out),
                    moved + stored,
                ),
                "quantize": (lambda y=y, name=name, out=values: gs.mx.quantize(y, name, out=out), 2 * moved),
                "quantize dim 0": (
                    lambda y=y, name=name, out=values: gs.mx.quantize(y, name, dim=0, out=out),
                    2 * moved,
                ),
            }
            for way, (call, size) in calls.items():
                shares[f"{way} {name} {str(dtype)[6:]}"] = size / median_seconds(call, 10) / copy_rate
    return shares


def tensor_cores() -> dict[str, Any]:
    """Products of block formats on tensor cores, 8192^3: speed over that of cuBLAS in bfloat16; 0.7 is asked for."""
    n = 8192
    a, b = torch.randn(n, n, device="cuda"), torch.randn(n, n, device="cuda")
    x, y = a.bfloat16(), b.bfloat16()
    native = median_seconds(lambda: torch.mm(x, y.t()), 5)
    out = torch.empty(n, n, dtype=torch.bfloat16, device="cuda")
    shares = {}
    for name in ("mxfp8_e4m3", "mxfp4", "nvfp4"):
        fmt = parse_block(name)
        left, right = gs.mx.encode(a, fmt), gs.mx.encode(b, fmt)
        packing = "bytes" if fmt.element.bits == 8 else "lo_first"
        one = cuda.Blocks(left.codes, left.scales, fmt, n, packing)
        two = cuda.Blocks(right.codes.t(), right.scales.t(), fmt, n, packing)
        shares[f"{name}, gemm_tensor_cores"] = native / median_seconds(
            lambda one=one, two=two: cuda.gemm_tensor_cores(one, two, out), 5
        )
        with gs.cublas_acceleration(True):
            shares[f"{name}, cublas_acceleration, decoding included"] = native / median_seconds(
                lambda name=name: gs.qmatmul(a, b, f"{name} : fp32"), 3
            )
    return {"ok": True, "of_cublas": shares}


def row_operations() -> dict[str, float]:
    """Speed of softmax and layer norm in e5m10 steps, rows of 1024, over PyTorch's own in float32."""
    steps = gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10")
    tree = gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10", order="tree(64)")
    norm = gs.QLayerNormFormats(*["e5m10"] * 7)
    shares = {}
    for rows in (64, 1 << 10, 1 << 17):
        x = torch.randn(rows, 1024, device="cuda")
        softmax = median_seconds(lambda x=x: torch.softmax(x, -1), 5)
        layer = median_seconds(lambda x=x: torch.nn.functional.layer_norm(x, (1024,)), 5)
        for name, formats in (("sequential", steps), ("tree(64)", tree)):
            taken = median_seconds(lambda x=x, formats=formats: gs.functional.qsoftmax(x, -1, formats), 5)
            shares[f"softmax {name}, {rows} rows"] = softmax / taken
        taken = median_seconds(lambda x=x: gs.functional.qlayernorm(x, (1024,), formats=norm), 5)
        shares[f"layernorm sequential, {rows} rows"] = layer / taken
    return shares


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


def timings(seconds: float, info: dict[str, Any]) -> dict[str, Any]:
    """Products at 4096^3 against their slot limits, casts against a copy, the overhead of a small call."""
    start = time.monotonic()
    peak = int(info["multiprocessors"]) * LANES * clock_hz(info)
    n = 4096
    a, b = torch.randn(n, n, device="cuda"), torch.randn(n, n, device="cuda")
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(WORKERS) as pool:  # kernels of the same layouts and tiles, compiled at once
        list(pool.map(lambda row: _compiled(row[0], n), TIMED))
    native = n**3 / median_seconds(lambda: torch.mm(a, b), 5)
    for text, slots, asked in TIMED:
        if time.monotonic() - start > seconds * 0.8:
            break
        x, y = (a * 20).round() if text.startswith("int8") else a, (b * 20).round() if text.startswith("int8") else b
        try:
            taken = median_seconds(lambda text=text, x=x, y=y: gs.qmatmul(x, y, text, seed=1), 3)
        except Exception as error:
            rows.append({"spec": text, "error": str(error)[:300]})
            continue
        rate = n**3 / taken
        row: dict[str, Any] = {"spec": text, "tmacs": rate / 1e12, "of_torch_fp32": rate / native, "asked": asked}
        if slots is not None:
            row.update(limit=peak / slots / 1e12, share=rate * slots / peak)
        rows.append({**row, "backend": str(gs.last_backend())[:200]})
    x = torch.randn(1 << 28, device="cuda")
    out = torch.empty_like(x)
    copy = median_seconds(lambda: out.copy_(x), 10)
    casts = {}
    blocks_of_dmx = ("FP[1|4|3,7](_N)", "MXFP8[E4M3]{32}", "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}")
    for text in ("e4m3", "e5m10", "bf16/sr8", "supernormal(4,3)", "bfp(8,16)", "bfp(8,tensor)", *blocks_of_dmx):
        casts[text] = copy / median_seconds(lambda text=text: gs.quantize(x, text, out=out, seed=1), 10)
    for name, call in scaled_casts(x, out).items():
        casts[name] = copy / median_seconds(call, 10)
    blocks = block_formats(x, 8 * x.numel() / copy)
    rows_of_torch = row_operations()
    small = torch.randn(64, 64, device="cuda")
    gs.qmatmul(small, small, "e4m3 : e5m10")
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(1000):
        gs.qmatmul(small, small, "e4m3 : e5m10")
    overhead = (time.perf_counter() - begin) / 1000
    torch.cuda.synchronize()
    return {
        "ok": True,
        "products": rows,
        "casts_of_copy": casts,
        "block_formats_of_copy": blocks,
        "rows_of_torch": rows_of_torch,
        "small_call_us": overhead * 1e6,
    }


def markdown(report: dict[str, Any]) -> str:
    """The report as a page."""
    lines = ["# GPU check", ""]
    lines += [f"* {key}: {value}" for key, value in report["machine"].items()]
    tests, products = report["tests"], report["random"]
    lines += ["", f"* tests: {'passed' if tests.get('ok') else 'FAILED'}: {tests.get('summary', tests.get('error'))}"]
    different, refused = len(products.get("different", [])), products.get("refused", 0)
    lines.append(f"* random products: {products.get('products', 0)}, different: {different}, refused: {refused}")
    lines += ["", "## What silicon answered", "", *(f"    {line}" for line in report["probes"].get("answers", []))]
    for row in report.get("instructions", {}).get("verdicts", []):
        lines.append(f"    {'equal' if row['equal'] else 'DIFFERENT'}: {row['spec']}: {row['words']}")
    timed = report["timings"]
    lines += ["", "## Timings", "", "| spec, 4096^3 | TMAC/s | slot limit | share | asked | of torch.mm fp32 |"]
    lines.append("|---|---|---|---|---|---|")
    for row in timed.get("products", []):
        if "error" in row:
            lines.append(f"| `{row['spec']}` | {row['error'].splitlines()[0]} | | | | |")
            continue
        keys = ("tmacs", "limit", "share", "asked", "of_torch_fp32")
        figures = " | ".join("" if row.get(key) is None else f"{row[key]:.2f}" for key in keys)
        lines.append(f"| `{row['spec']}` | {figures} |")
    casts = ", ".join(f"{name} {share:.2f}" for name, share in timed.get("casts_of_copy", {}).items())
    blocks = [f"| {name} | {share:.2f} |" for name, share in timed.get("block_formats_of_copy", {}).items()]
    lines += ["", "| block format | share of device copy |", "|---|---|", *blocks]
    steps = [f"| {name} | {share:.3f} |" for name, share in timed.get("rows_of_torch", {}).items()]
    lines += ["", "| rows of 1024, e5m10 steps | speed over PyTorch in float32 |", "|---|---|", *steps]
    cores = [f"| {name} | {share:.2f} |" for name, share in report.get("tensor cores", {}).get("of_cublas", {}).items()]
    lines += ["", "| product on tensor cores, 8192^3 | speed over cuBLAS in bfloat16 |", "|---|---|", *cores]
    lines += ["", f"* casts, share of device copy: {casts}", f"* call on 64x64: {timed.get('small_call_us', 0):.1f} us"]
    return "\n".join(lines) + "\n"


def part(name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """``work()``, or why it failed."""
    print(f"{name} ...", flush=True)
    start = time.monotonic()
    try:
        result = work()
    except Exception as error:
        traceback.print_exc()
        result = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    result["seconds"] = round(time.monotonic() - start, 1)
    print(f"{name}: {'ok' if result['ok'] else 'NOT OK'} ({result['seconds']} s)", flush=True)
    return result


def main(argv: list[str] | None = None) -> int:
    """0 if all bits agree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder for gpu_check.json and gpu_check.md")
    parser.add_argument("--minutes", type=float, default=8.0, help="time for all parts together")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error("no GPU that torch can use; allowed: a machine with an NVIDIA GPU and driver")
    total = options.minutes * 60
    info = machine()
    report: dict[str, Any] = {"machine": info}
    report["probes"] = part("probes", lambda: probes(0.1 * total))
    report["instructions"] = part("instructions", lambda: instructions(0.1 * total))
    report["timings"] = part("timings", lambda: timings(0.25 * total, info))
    report["random"] = part("random products", lambda: random_products(0.15 * total))
    report["tests"] = part("tests", lambda: run_tests(0.45 * total))
    report["tensor cores"] = part("tensor cores", tensor_cores)  # last: a fault there takes the GPU from this process
    options.out.mkdir(parents=True, exist_ok=True)
    for name, text in (("gpu_check.json", json.dumps(report, indent=1)), ("gpu_check.md", markdown(report))):
        partial = options.out / f".{name}.partial"
        partial.write_text(text, encoding="utf-8")
        partial.replace(options.out / name)
    print(markdown(report))
    return int(not (report["random"]["ok"] and report["tests"]["ok"]))


if __name__ == "__main__":
    sys.exit(main())
