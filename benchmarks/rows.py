"""Softmax and layer norm in e5m10 steps against the same steps composed of PyTorch operations, one column at a time.

The composition rounds with ``.half().float()``, which for steps of e5m10 operands is one rounding (24 >= 2 * 11 + 2
bits), and is vectorised over rows: its time is that of 1024 dispatched steps until rows fill the caches, so the ratio
falls with the number of rows. The results are compared bit for bit before anything is timed. Processor time of one
thread.
"""

from __future__ import annotations

import time

import torch
from harness import Report, measure, options

import gemmsim as gs

FORMAT = "e5m10"
#: operation, rows, least ratio that is asked for, None where nothing is.
PROBLEMS = [
    ("softmax", 8, 50.0),
    ("layernorm", 8, 50.0),
    ("softmax", 1, None),
    ("softmax", 64, None),
    ("softmax", 1024, None),
    ("layernorm", 1, None),
    ("layernorm", 64, None),
    ("layernorm", 1024, None),
]
COLUMNS = 1024
EPS = 2.0**-17
#: Calls of ours in a row: one takes a hundredth of the other's time, most of it spent on refilling caches.
REPEATS = 20


def rounded(x: torch.Tensor) -> torch.Tensor:
    return x.half().float()


def ordered_sum(terms: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(terms[:, 0])
    for k in range(terms.shape[1]):
        total = rounded(total + terms[:, k])
    return total[:, None]


def composed_softmax(x: torch.Tensor) -> torch.Tensor:
    offset = rounded(x - x.amax(-1, keepdim=True))
    e = rounded(offset.double().exp().float())
    return e / ordered_sum(e)


def composed_layernorm(x: torch.Tensor) -> torch.Tensor:
    """Mean and variance as a loop over columns that keeps no rounded matrix, as the steps are written."""
    count = float(x.shape[1])
    mean = rounded(ordered_sum(x) / count)
    total = torch.zeros_like(mean[:, 0])
    for k in range(x.shape[1]):
        s = rounded(x[:, k] - mean[:, 0])
        total = rounded(total + rounded(s * s))
    variance = rounded(total[:, None] / count)
    std = rounded(rounded(variance + EPS).double().sqrt().float())  # some float32 roots are not correctly rounded
    return rounded(rounded(rounded(x - mean) / std))


def main() -> None:
    args = options(__doc__ or "")
    torch.set_num_threads(1)
    report = Report(args.out)
    softmax, norm = gs.QSoftmaxFormats(*[FORMAT] * 3), gs.QLayerNormFormats(*[FORMAT] * 4)
    for name, rows, asked in PROBLEMS[: 2 if args.quick else None]:
        x = rounded(torch.randn(rows, COLUMNS, generator=torch.Generator().manual_seed(0)))
        ours, theirs = {
            "softmax": (lambda: gs.qsoftmax(x, -1, softmax), lambda: composed_softmax(x)),
            "layernorm": (lambda: gs.qlayernorm(x, COLUMNS, eps=EPS, spec=norm), lambda: composed_layernorm(x)),
        }[name]
        assert torch.equal(ours(), theirs()), name
        repeated = {"ours": lambda: [ours() for _ in range(REPEATS)], "composed": theirs}
        found = measure(repeated, rounds=args.rounds, clock=time.process_time)
        times = {key: sorted(seconds)[len(seconds) // 2] for key, seconds in found.items()}
        times["ours"] /= REPEATS
        report.add(
            bench="rows", op=name, rows=rows, columns=COLUMNS, format=FORMAT, threads=1, isa=gs.backends.cpu.isa(),
            ns_per_element=times["ours"] / x.numel() * 1e9, ratio=times["composed"] / times["ours"], asked=asked,
        )  # fmt: skip
    report.close()


if __name__ == "__main__":
    main()
