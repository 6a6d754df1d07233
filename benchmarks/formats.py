"""Casts to block floating point, supernormal floats and old binary8 formats against copy_, into memory that is there.

Each reads and writes 4 bytes an element, as copy_ does, so the ratio is one of times. The bits of the first elements
are compared with the exact reference before anything is timed.
"""

from __future__ import annotations

import torch
from harness import Report, measure, options

import gemmsim as gs
from gemmsim.formats import BlockFloatFormat, parse
from gemmsim.reference import quantize, quantize_block_float

#: format, least ratio to copy_, None where nothing is asked.
FORMATS = [
    ("bfp(8,64)", 0.5),
    ("bfp(8,16)", None),
    ("bfp(4,32)", None),
    ("bfp(8,tensor)", None),
    ("bfp(8,64)/rtz", None),
    ("bfp(8,64)/sr16", None),
    ("supernormal(4,3)", None),
    ("supernormal(4,3)/sr16", None),
    ("binary8(3)", None),
    ("binary8(3)/ftz", None),
    ("binary8(3,unsigned)", None),
    ("e4m3/rnd", None),
]


def check(x: torch.Tensor, name: str) -> None:
    """Assertion that the first elements have the reference's values."""
    part, fmt = x[:2048], parse(name) if name.startswith("bfp") else name
    got = gs.quantize(part, name, seed=1).double().tolist()
    seed = gs.ops.derive_seed(1, 0)
    if isinstance(fmt, BlockFloatFormat):
        assert got == quantize_block_float(part.tolist(), part.shape, fmt, seed), name
    else:
        want = torch.tensor(quantize(part.tolist(), name, seed), dtype=torch.float64)
        assert torch.equal(torch.tensor(got, dtype=torch.float64).nan_to_num(7.0), want.nan_to_num(7.0)), name


def main() -> None:
    args = options(__doc__ or "")
    torch.set_num_threads(1)
    report = Report(args.out)
    n = 1 << (16 if args.quick else 24)
    x = torch.randn(n, generator=torch.Generator().manual_seed(0))
    out = torch.empty_like(x)
    for name, asked in FORMATS:
        check(x, name)
        runs = {"copy_": lambda: out.copy_(x), "quantize": lambda name=name: gs.quantize(x, name, out=out)}
        times = measure(runs, rounds=args.rounds)
        ratios = sorted(a / b for a, b in zip(times["copy_"], times["quantize"], strict=True))
        seconds = sorted(times["quantize"])[len(ratios) // 2]
        report.add(
            bench="formats", format=name, elements=n, threads=1, gbytes_per_s=8 * n / seconds / 1e9,
            of_copy=ratios[len(ratios) // 2], asked=asked,
        )  # fmt: skip
    report.close()


if __name__ == "__main__":
    main()
