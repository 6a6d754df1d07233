"""Products whose additions are counted, beside the products alone: GMAC/s of processor time on one thread, their ratio.

Equality of the values, and of the counts with the reference's on a small product, is checked before anything is timed.
"""

from __future__ import annotations

import statistics
import time

import torch
from harness import Report, measure, options, ratio

import gemmsim as gs
from gemmsim import reference

#: Spec and the least ratio that is asked of it; None: of interest only.
ROWS: dict[str, float | None] = {
    ":e5m10": 0.25,
    ":bf16": 0.25,
    ":e5m10/rtz": 0.25,
    ":e5m10/sr16": 0.25,
    "chunked(64, e5m10)": 0.25,
    "pairwise(e5m10)": 0.25,
    "kahan(e5m10)": 0.25,
    ":fp32": 0.25,
    "bf16 : e5m10": 0.25,
    "e4m3 : e5m10": 0.25,
    ":e5m10/ru": None,
    "neumaier(e5m10)": None,
}


def check(spec: str) -> None:
    """Counts of a small product against the reference's."""
    a, b = torch.randn(3, 70), torch.randn(70, 17)
    found = gs.count_events(a, b, spec, seed=1)
    want = reference.count_events(a.tolist(), b.tolist(), spec, 1)
    for name in ("swamped", "inexact", "underflow", "overflow"):
        assert getattr(found, name).tolist() == [[getattr(x, name) for x in row] for row in want], (spec, name)


def main() -> None:
    args = options(__doc__ or "")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    m, k, n = (16, 64, 16) if args.quick else (64, 1024, 128)
    a, b = torch.randn(m, k), torch.randn(k, n)
    report = Report(args.out)
    for spec, asked in ROWS.items():
        check(spec)
        assert torch.equal(gs.count_events(a, b, spec, seed=1).out, gs.qmatmul(a, b, spec, seed=1)), spec
        runs = {
            "product": lambda spec=spec: gs.qmatmul(a, b, spec, seed=1),
            "counted": lambda spec=spec: gs.count_events(a, b, spec, seed=1),
        }
        times = measure(runs, rounds=1 if args.quick else args.rounds, clock=time.process_time)
        speeds = {f"{name}_gmacs": m * k * n / statistics.median(found) / 1e9 for name, found in times.items()}
        share = ratio(times, "product", "counted")
        met = None if asked is None else share >= asked
        report.add(
            bench="events", spec=spec, m=m, k=k, n=n, threads=1, of_product=share, asked=asked, met=met, **speeds
        )  # fmt: skip
    report.close()


if __name__ == "__main__":
    main()
