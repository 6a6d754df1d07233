"""Element-wise casts against copy_ and torch's own round trips, in memory that is already there.

The limit is memory: read 4 bytes, write 4 bytes per element. Streaming stores skip the read of the destination's cache
lines that copy_ pays, which is how a cast can pass it.
"""

from __future__ import annotations

import torch
from harness import Report, measure, options, ratio

import gemmsim as gs

#: cast, torch's equivalent (same bits where it exists), least ratio to copy_.
CASTS = [
    ("e5m10", lambda x: x.half().float(), 0.9),
    ("e4m3/sat", lambda x: x.clamp(-448, 448).to(torch.float8_e4m3fn).float(), 0.9),
    ("bf16", lambda x: x.bfloat16().float(), 0.9),
    ("e5m10/rtz", None, 0.9),
    ("e5m10/ftz", None, 0.9),
    ("fixed(16,8)", None, 0.9),
    ("e4m3/sr8", None, None),
]


def main() -> None:
    args = options(__doc__ or "")
    torch.set_num_threads(1)
    report = Report(args.out)
    n = 1 << (16 if args.quick else 26)
    x = torch.randn(n, generator=torch.Generator().manual_seed(0))
    out = torch.empty_like(x)
    for text, theirs, asked in CASTS:
        runs = {"copy_": lambda: out.copy_(x), "gemmsim": lambda: gs.quantize(x, text, out=out, seed=1)}
        extra = {}
        if theirs is not None:
            assert torch.equal(gs.quantize(x[: 1 << 16], text), theirs(x[: 1 << 16])), f"{text}: not torch's bits"
            small = x[: n // 16]
            room = torch.empty_like(small)
            side = measure(
                {"torch": lambda: theirs(small), "gemmsim": lambda: gs.quantize(small, text, out=room)},
                rounds=args.rounds,
            )
            extra["over_torch_round_trip"] = ratio(side, "torch", "gemmsim")
        times = measure(runs, rounds=args.rounds)
        seconds = sorted(times["gemmsim"])[args.rounds // 2]
        report.add(
            bench="quantize", cast=text, elements=n, threads=1, gbytes_per_s=8 * n / seconds / 1e9,
            of_copy=ratio(times, "copy_", "gemmsim"), asked=asked, **extra,
        )  # fmt: skip
    report.close()


if __name__ == "__main__":
    main()
