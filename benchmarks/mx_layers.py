"""Layers in block formats beside PyTorch's: one training step and one inference call. JSON lines on stdout.

    python benchmarks/mx_layers.py [--sizes 512,1024] [--threads 1]

Each line has seconds and their ratio to ``torch.nn.Linear`` in float32 on the same machine. Results are compared with
the same products of quantised operands before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

import gemmsim as gs

FORMATS = ("mxfp8_e4m3", "mxfp4", "nvfp4")


def seconds(call: Callable[[], object], repeats: int = 5) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def step(layer: nn.Module, x: torch.Tensor) -> Callable[[], object]:
    def run() -> None:
        layer.zero_grad(set_to_none=True)
        layer(x).sum().backward()

    return run


def check(layer: nn.Module, weight: torch.Tensor, x: torch.Tensor, fmt: str) -> None:
    left, right = gs.mx.quantize(x.detach(), fmt), gs.mx.quantize(weight.detach(), fmt)
    want = gs.qmatmul(left, right.t(), ": fp32")
    if not torch.equal(layer(x), want):
        raise SystemExit(f"{type(layer).__name__} in {fmt} differs from the product of its quantised operands")


def measure(size: int, threads: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(size, size, requires_grad=True)
    plain = nn.Linear(size, size, bias=False)
    base_step, base_call = seconds(step(plain, x)), seconds(lambda: plain(x.detach()))
    for fmt in FORMATS:
        trained = gs.mx.MXLinear.from_float(plain, fmt)
        frozen = gs.mx.MXInferenceLinear.from_float(plain, fmt)
        check(trained, plain.weight, x, fmt)
        check(frozen, plain.weight, x, fmt)
        rows = (("step", seconds(step(trained, x)), base_step), ("inference", seconds(lambda: frozen(x)), base_call))
        for what, taken, base in rows:
            line = {"what": what, "format": fmt, "size": size, "threads": threads, "seconds": taken, "torch": base}
            print(json.dumps({**line, "times_torch": round(taken / base, 2)}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="512,1024")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for size in map(int, options.sizes.split(",")):
        measure(size, options.threads)
    return 0


if __name__ == "__main__":
    sys.exit(main())
