"""Exact and integer registers inside runs, tables of products, lists of values: against what they stand for.

One thread, times of the processor. Each row is compared with the exact reference on a corner before it is timed.
``of_base``: against the same order with fp64 inside, or the ordinary product of the same operands.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass

import torch
from harness import Report, measure, options, ratio

import gemmsim as gs
from gemmsim import reference


@dataclass(frozen=True)
class Row:
    """A spec, what it is timed against, and the GMAC/s asked of it on one core (of an AVX-512 machine)."""

    text: str
    base: str
    asked: float | None = None
    size: int = 128
    k: int = 1024


def rows() -> list[Row]:
    """The table; ``lookup`` rows have an exact multiplier of int8, so that they equal their base bit for bit."""
    int8 = gs.formats.parse("int8")
    values = [int8.decode(code) for code in range(256)]
    gs.acc.table([[x * y for y in values] for x in values], "int8", name="benchmark_int8")
    found = [
        Row("e4m3 : chunked(64, exact(fp32))", "e4m3 : chunked(64, fp64, fp32)", 0.89),
        Row("e4m3 : chunked(8, exact(fp32))", "e4m3 : chunked(8, fp64, fp32)", 0.89),
        Row("e4m3 : pairwise(exact(fp32), 8)", "e4m3 : chunked(8, fp64, fp32)"),
        Row("e4m3 : chunked(16, exact(e5m10/sr8))", "e4m3 : chunked(16, fp64, e5m10/sr8)"),
        Row("mxfp8_e4m3 : scaled(exact(fp32))", "mxfp8_e4m3 : scaled(fp64)"),
        Row("int8 : chunked(4, int(20), fixed(24,0))", "int8 : chunked(4, fp64, fixed(24,0))", 0.89),
        Row("int8 : pairwise(int(32, overflow=saturate), 16)", "int8 : chunked(16, fp64, fp64)"),
    ]
    for register in ("fp32", "int(32)", "e5m10", "chunked(64, e5m10)"):
        found.append(Row(f":lookup(benchmark_int8, {register})", f"int8 : {register}", 1.0, size=256))
    return [*found, Row("posit(8,2) : fp32", "e4m3 : fp32"), Row("e4m3 : posit(8,2)", "e4m3 : e4m3", size=64, k=128)]


def operands(text: str, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    if "int8" in text:
        return torch.randint(-128, 128, (n, k), generator=g).float(), torch.randint(
            -128, 128, (k, n), generator=g
        ).float()
    return torch.randn(n, k, generator=g), torch.randn(k, n, generator=g) / k**0.5


def run(report: Report, row: Row, n: int, k: int, rounds: int) -> None:
    spec, base = gs.GemmSpec.of(row.text), gs.GemmSpec.of(row.base)
    x, y = operands(row.text, n, k)
    corner = torch.tensor(reference.gemm(x[:2, :64].tolist(), y[:64, :3].tolist(), spec, seed=1), dtype=torch.float64)
    assert torch.equal(gs.qmatmul(x[:2, :64], y[:64, :3], spec, seed=1), corner.float()), f"{spec}: other bits"
    if "lookup" in row.text:
        same = (gs.qmatmul(x, y, one).view(torch.int32) for one in (spec, base))  # bits: sums may be NaN
        assert torch.equal(*same), f"{spec}: not the ordinary product"
    runs = {"base": lambda: gs.qmatmul(x, y, base, seed=1), "this": lambda: gs.qmatmul(x, y, spec, seed=1)}
    times = measure(runs, rounds=rounds, clock=time.process_time)
    gmacs = n * n * k / statistics.median(times["this"]) / 1e9
    report.add(
        bench="extensions", spec=spec.key, base=base.key, n=n, k=k, threads=1, gmacs=gmacs,
        of_base=ratio(times, "base", "this"), asked=row.asked, met=None if row.asked is None else gmacs >= row.asked,
        ran=str(gs.last_backend()),
    )  # fmt: skip


def main() -> None:
    args = options(__doc__ or "")
    report = Report(args.out)
    torch.set_num_threads(1)
    for row in rows():
        print(row.text, file=sys.stderr)
        run(report, row, 16 if args.quick else row.size, 64 if args.quick else row.k, 1 if args.quick else args.rounds)
    report.close()


if __name__ == "__main__":
    main()
