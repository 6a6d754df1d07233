"""Products with rounded accumulators against torch.mm in fp32 and a numpy loop over K (vectorised over the outputs).

The limit, per 16 MACs on AVX-512: torch.mm needs 1 FMA. Toward zero it is the FMA and a mask (2 instructions), to
nearest even an addition to the bits more (3; 4 with a test for midpoints where operands lead to them), at random a
number added to the bits and Philox, some 15 for 16 draws of 16 bits. Nearest rounding of what may be on midpoints
often is the FMA, an AND and an integer add for the magic number, an addition and a subtraction (5; 7 with target
subnormals and the sign of zero), rounded to odd before a second FMA, a test and a blend more (10). Registers of
binary16 from such numbers are half an FMA where the processor has AVX512-FP16. docs/design/cpu.md has the table.
Times of products are of the processor, not of the wall: one thread on a shared machine.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from harness import Report, measure, options, ratio

import gemmsim as gs
from gemmsim import reference
from gemmsim.backends import cpu

#: spec, operand format, what the row shows, least ratio to torch.mm asked with AVX-512 and with AVX2.
SPECS = [
    ("e4m3 : e5m10", "e4m3", "fused, proved exact", 0.25, 0.35),
    (":e5m10, arithmetic=fp32", "e5m10", "fused, fp32 arithmetic", 0.25, 0.35),
    (":e5m10", "e5m10", "fused, exact", 0.15, None),
    (":e5m10", None, "fused, exact, fp32 operands", 0.40, 0.20),
    (":bf16", None, "fused, exact, bf16 register", 0.40, 0.20),
    (":e5m10/rtz", None, "fused, toward zero", 0.60, 0.40),
    (":e5m10/sr16", None, "stochastic, 16 bits", 0.10, 0.06),
    (":e5m10/sr12", None, "stochastic, 12 bits", 0.10, 0.06),
    (":mul=e5m10, add=e5m10", None, "product and sum rounded", 0.12, 0.15),
    (":kahan(e5m10)", None, "compensated", 0.12, 0.06),
    ("e4m3 : exact()", "e4m3", "exact sum of e4m3", 0.30, None),
    (":exact()", "e5m10", "exact sum of e5m10", 0.05, None),
    ("e4m3 : hw(hopper, wgmma, e4m3)", "e4m3", "a chip's instruction", 0.25, 0.15),
    (":fp32", None, "sequential fp32", None, None),
]


def numpy_loop(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sequential fp16 accumulation in fp32 arithmetic, k outermost: what one writes without a library."""
    acc = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        acc = (acc + a[:, k, None] * b[k]).astype(np.float16).astype(np.float32)
    return acc


def check(spec: gs.GemmSpec, x: torch.Tensor, y: torch.Tensor) -> None:
    """A corner of the product against the exact reference (rows and columns stand for themselves)."""
    corner = reference.gemm(x[:3].tolist(), y[:, :5].tolist(), spec, seed=1)
    got = gs.qmatmul(x, y, spec, seed=1)[:3, :5]
    assert torch.equal(got, torch.tensor(corner, dtype=torch.float64).to(got.dtype)), (
        f"{spec}: not the reference's bits"
    )


def products(report: Report, n: int, rounds: int) -> None:
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(n, n, generator=g), torch.randn(n, n, generator=g)
    half_a, half_b = gs.quantize(a, "e5m10"), gs.quantize(b, "e5m10")
    loop = torch.from_numpy(numpy_loop(half_a.numpy(), half_b.numpy()))
    assert torch.equal(gs.qmatmul(half_a, half_b, ":e5m10, arithmetic=fp32"), loop), (
        "not the same bits as the numpy loop"
    )
    out = torch.empty(n, n)
    for text, operand, shows, wide, narrow in SPECS:
        asked = narrow if cpu.isa() == "avx2" else wide
        x = a if operand is None else gs.quantize(a, operand)
        y = b if operand is None else gs.quantize(b, operand)
        spec = gs.GemmSpec.of(text)
        check(spec, x, y)
        times = measure(
            {"torch.mm": lambda: torch.mm(a, b, out=out), "gemmsim": lambda: gs.qmatmul(x, y, spec, seed=1)},
            rounds=rounds,
            clock=time.process_time,
        )
        loops = measure(
            {
                "numpy": lambda: numpy_loop(half_a.numpy(), half_b.numpy()),
                "gemmsim": lambda: gs.qmatmul(x, y, spec, seed=1),
            },
            rounds=3,
            clock=time.process_time,
        )
        mine = min(times["gemmsim"])
        report.add(
            bench="gemm", n=n, threads=1, spec=spec.key, shows=shows, gmacs=n**3 / mine / 1e9,
            of_torch_mm=ratio(times, "torch.mm", "gemmsim"), asked=asked,
            over_numpy_loop=ratio(loops, "numpy", "gemmsim"), ran=str(gs.last_backend()),
        )  # fmt: skip


def threads(report: Report, n: int, rounds: int) -> None:
    a, b = torch.randn(n, n), torch.randn(n, n)

    def run(count: int, mine: bool) -> object:
        torch.set_num_threads(count)
        return gs.qmatmul(a, b, ":e5m10") if mine else torch.mm(a, b)

    runs = {
        f"{name} {count}": (lambda c=count, m=mine: run(c, m))
        for name, mine in (("gemmsim", True), ("torch", False))
        for count in (1, 2)
    }
    times = measure(runs, rounds=rounds)
    torch.set_num_threads(1)
    report.add(
        bench="threads", n=n, spec=":e5m10", speedup_of_2=ratio(times, "gemmsim 1", "gemmsim 2"), asked=1.7,
        torch_mm_speedup=ratio(times, "torch 1", "torch 2"),
    )  # fmt: skip


def overhead(report: Report, rounds: int) -> None:
    torch.set_num_threads(1)
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    runs = {"torch.matmul": lambda: torch.matmul(a, b), "gemmsim": lambda: gs.qmatmul(a, b, "e4m3 : e5m10")}
    times = measure(runs, rounds=rounds * 5, inner=1000)
    report.add(
        bench="overhead", n=8, spec="e4m3 : e5m10", microseconds=min(times["gemmsim"]) * 1e6, asked=10.0,
        median_microseconds=sorted(times["gemmsim"])[len(times["gemmsim"]) // 2] * 1e6,
        torch_microseconds=min(times["torch.matmul"]) * 1e6,
    )  # fmt: skip


def main() -> None:
    args = options(__doc__ or "")
    report = Report(args.out)
    n = 64 if args.quick else 512
    products(report, n, args.rounds)
    threads(report, 64 if args.quick else 1024, args.rounds)
    overhead(report, 1 if args.quick else args.rounds)
    report.close()


if __name__ == "__main__":
    main()
