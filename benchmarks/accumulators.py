"""Every kind of accumulator at K = 4096 on one thread, against the sequential sum in its format.

Operands are as in a layer: a normal with variance 1, b with variance 1/K; small integers for ``int``. Times are of the
processor, not of the wall: one thread on a shared machine. What a row may cost at least is in limits.py.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass

import torch
from harness import Report, measure, options, ratio
from limits import clock_ghz, limit_gmacs

import gemmsim as gs
from gemmsim import reference
from gemmsim.arithmetic.hardware import Hardware
from gemmsim.backends import cpu

K = 4096
#: Eight formats whose registers share one pass over K: nearest even, and toward zero.
NEAREST = ("e5m10", "e5m9", "e5m8", "e5m7", "e5m6", "e5m5", "e5m4", "e5m3")
CUT = tuple(f"{f}/rtz" for f in NEAREST)


@dataclass(frozen=True)
class Row:
    """An accumulator, the sequential one it is compared with, and the figure asked of an AVX-512 machine."""

    text: str
    base: str
    asked: float | None = None
    #: What ``asked`` is: GMAC/s, or the ratio to ``base``.
    figure: str = "gmacs"
    size: int = 128


def rows() -> list[Row]:
    """The table, each format's own rows together."""
    found = [Row(f, f) for f in ("e5m10", "bf16", "fp32")]
    for f in ("e5m10", "bf16", "fp32"):
        found += [
            Row(f"chunked(64, {f})", f, 0.9, "of_base"),
            Row(f"chunked(8, {f})", f, 0.9, "of_base"),
            Row(f"pairwise({f}, 1)", f, 0.7, "of_base"),
            Row(f"pairwise({f}, 16)", f, 0.7, "of_base"),
            Row(f"interleaved(16, {f})", f, 0.7, "of_base"),
            Row(f"splitk(8, {f}, {f})", f),
            Row(f"kahan({f})", f, 2.0),
            Row(f"neumaier({f})", f, 2.0),
            Row(f"two_sum({f})", f),
            Row(f"fast_two_sum({f})", f),
        ]
    return [
        *found,
        Row("exact(fp32)", "fp32", 0.05, size=64),
        Row("binned(fp32)", "fp32", size=64),
        Row("int(32)", "fp32", 5.0),
        Row("int(16, saturate)", "fp32"),
        Row("fixed(24, 12, rounding=rne)", "fp32"),
        Row(f"palette({', '.join(NEAREST)})", "e5m10", 0.8, "of_base"),
        Row(f"palette({', '.join(CUT)})", "e5m10/rtz", 0.4, "of_base"),
        Row("palette(e5m10, bf16, e6m9, e5m7, e4m3, e5m2, e8m4, fp32)", "e5m10"),
        Row("hw(hopper, wgmma, bf16)", "fp32", 1.0),
        Row("hw(hopper, wgmma, e4m3)", "fp32", 1.0),
    ]


def operands(text: str, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    if text.startswith("int("):
        return tuple(torch.randint(-8, 8, shape, generator=g).float() for shape in ((n, k), (k, n)))  # type: ignore[return-value]
    return torch.randn(n, k, generator=g), torch.randn(k, n, generator=g) / k**0.5


def check(spec: gs.GemmSpec, x: torch.Tensor, y: torch.Tensor, select: torch.Tensor | None) -> None:
    """A corner of the product against the exact reference, or the exact model of the instructions."""
    got = product(x, y, spec, select)[:2, :3]
    if isinstance(spec.accumulator, Hardware):
        want = instructions_of(spec, x[:2], y[:, :3])
        assert torch.equal(got.view(torch.int32), want.view(torch.int32)), f"{spec}: not the instructions' bits"
        return
    chosen = None if select is None else select[:2, :3]
    corner = reference.gemm(x[:2].tolist(), y[:, :3].tolist(), spec, select=chosen)
    want = torch.tensor(corner, dtype=torch.float64).to(got.dtype)
    assert torch.equal(got, want), f"{spec}: not the reference's bits"


def instructions_of(spec: gs.GemmSpec, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The chain of instructions on raw bits; K is a multiple of theirs."""
    one = spec.accumulator.instruction  # type: ignore[attr-defined]
    dtype, raw = {"bf16": (torch.bfloat16, torch.uint16), "e4m3": (torch.float8_e4m3fn, torch.uint8)}[one.a]
    c = torch.zeros(len(x), y.shape[1], dtype=torch.uint32)
    a, b = (t.to(dtype).contiguous().view(raw) for t in (x, y))
    return gs.hardware.mma(one.arch, one.name, a, b, c).view(torch.float32)


def product(x: torch.Tensor, y: torch.Tensor, spec: gs.GemmSpec, select: torch.Tensor | None) -> torch.Tensor:
    if select is None:
        return gs.qmatmul(x, y, spec)
    return gs.qmatmul(x, y, spec, select=select)


def run(report: Report, row: Row, n: int, k: int, rounds: int, ghz: float | None) -> None:
    spec, base = gs.GemmSpec.of(f":{row.text}"), gs.GemmSpec.of(f":{row.base}")
    x, y = operands(row.text, n, k)
    select = None
    if row.text.startswith("palette"):
        select = torch.randint(0, 8, (n, n), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    try:
        check(spec, x, y, select)
    except gs.UnsupportedSpec as error:
        report.add(bench="accumulators", spec=spec.key, skipped=str(error))
        return
    ran = gs.last_backend()
    runs = {"base": lambda: product(x, y, base, None), "this": lambda: product(x, y, spec, select)}
    times = measure(runs, rounds=rounds, clock=time.process_time)
    figures = {"gmacs": n * n * k / statistics.median(times["this"]) / 1e9, "of_base": ratio(times, "base", "this")}
    limit = None
    if select is None:
        limit = limit_gmacs(cpu.isa(), spec, cpu.gemm(x, y, spec, torch.empty(n, n)).how, k, ghz)
    report.add(
        bench="accumulators", spec=spec.key, base=base.key, n=n, k=k, threads=1, **figures,
        asked=row.asked, asked_of=row.figure, met=None if row.asked is None else figures[row.figure] >= row.asked,
        limit_gmacs=limit, of_limit=None if limit is None else figures["gmacs"] / limit, clock_ghz=ghz, ran=str(ran),
    )  # fmt: skip


def main() -> None:
    args = options(__doc__ or "")
    report = Report(args.out)
    torch.set_num_threads(1)
    ghz = clock_ghz()
    table = rows()
    for index, row in enumerate(table, 1):
        print(f"[{index}/{len(table)}] {row.text}", file=sys.stderr)
        run(report, row, 16 if args.quick else row.size, 64 if args.quick else K, 1 if args.quick else args.rounds, ghz)
    report.close()


if __name__ == "__main__":
    main()
