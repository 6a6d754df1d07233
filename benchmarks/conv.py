"""A 3x3 convolution of 64 to 64 channels on 32x32, batch 32, against the product of equal size in memory: of the matrix
of windows, or of the rows whose results the gradient of the input adds where they meet.

The asked ratio is 1.25. One thread, processor time. Bits are compared before anything is timed. Memory: by how much one
call raises the peak of a process of its own, beside the sizes of the result and of the matrix of windows. Linux only.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from harness import Report, measure, options

import gemmsim as gs

#: spec, whether the ratio is asked for.
SPECS = [
    (":e5m10", 1.25),
    ("e4m3 : e5m10", 1.25),
    (":e5m10/rtz", 1.25),
    ("e4m3 : e5m10/sr8", None),
    (":fp32", None),
]
ROLES = ("fprop", "dgrad", "wgrad")


def problem(quick: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Input, weight and a gradient."""
    generator = torch.Generator().manual_seed(0)
    batch = 2 if quick else 32
    x = torch.randn(batch, 64, 32, 32, generator=generator)
    weight = torch.randn(64, 64, 3, 3, generator=generator) / 24
    return x, weight, torch.randn(batch, 64, 32, 32, generator=generator)


def windows(x: torch.Tensor) -> torch.Tensor:
    """The matrix of windows."""
    return torch.nn.functional.unfold(x, 3, padding=1).transpose(1, 2).flatten(0, 1).contiguous()


def runs_of(role: str, spec: str, quick: bool) -> tuple[object, object]:
    """The convolution of a role, and the product of the same size."""
    x, weight, g = problem(quick)
    where = ([1, 1], [1, 1], [1, 1], 1)
    gs.qconv1d(torch.ones(1, 1, 1), torch.ones(1, 1, 1), spec=":fp32")  # registers the operators
    ops = torch.ops.gemmsim
    if role == "fprop":
        a, b = windows(x), weight.flatten(1).T
        conv = lambda: ops.conv(x, weight, spec, [32, 32], *where, False, "col2im", 1)  # noqa: E731
        return conv, lambda: gs.qmatmul(a, b, spec, seed=1)
    if role == "dgrad":
        a, b = g.movedim(1, -1).flatten(0, 2).contiguous(), weight.flatten(1)
        conv = lambda: ops.conv(g, weight, spec, [32, 32], *where, True, "col2im", 1)  # noqa: E731
        return conv, lambda: gs.qmatmul(a, b, spec, seed=1)
    a, b = windows(x).T, g.transpose(0, 1).flatten(1).contiguous().T
    return lambda: ops.conv_weight(x, g, spec, [3, 3], *where, 1), lambda: gs.qmatmul(a, b, spec, seed=1)


def check(role: str, conv: torch.Tensor, product: torch.Tensor) -> None:
    """Assertion that the bits are those of the product."""
    if role == "dgrad":
        product = torch.nn.functional.fold(product.unflatten(0, (conv.shape[0], -1)).mT, (32, 32), 3, padding=1)
        assert torch.equal(conv, product), role
        return
    same = conv.flatten(1).T if role == "wgrad" else conv.movedim(1, -1).flatten(0, 2)
    assert torch.equal(same.contiguous().view(torch.int32), product.view(torch.int32)), role


def peak() -> int:
    """Largest resident size of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def grown(role: str, quick: bool) -> None:
    """Print by how much one call raises this process' peak, in bytes."""
    conv, _ = runs_of(role, ":e5m10", True)
    conv()  # the library, its tables, the allocator
    x, weight, g = problem(quick)
    where = ([1, 1], [1, 1], [1, 1], 1)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is what is there now
    before = peak()
    if role == "wgrad":
        torch.ops.gemmsim.conv_weight(x, g, ":e5m10", [3, 3], *where)
    else:
        torch.ops.gemmsim.conv(x, weight, ":e5m10", [32, 32], *where, role == "dgrad")
    print(json.dumps(peak() - before))


def main() -> None:
    args = options(__doc__ or "")
    torch.set_num_threads(1)
    report = Report(args.out)
    x, weight, _ = problem(args.quick)
    for spec, asked in SPECS:
        for role in ROLES:
            conv, product = runs_of(role, spec, args.quick)
            check(role, conv(), product())  # type: ignore[operator]
            runs = {"conv": conv, "product": product}
            times = measure(runs, rounds=args.rounds, clock=time.process_time)  # type: ignore[arg-type]
            ratio = statistics.median(c / p for c, p in zip(times["conv"], times["product"], strict=True))
            seconds = statistics.median(times["conv"])
            macs = x.numel() * 9 * 64
            report.add(
                bench="conv", role=role, spec=spec, batch=x.shape[0], threads=1, gmac_per_s=macs / seconds / 1e9,
                of_product=ratio, asked=asked,
            )  # fmt: skip
    for role in ROLES:
        command = [sys.executable, __file__, "--memory-of", role, *(["--quick"] if args.quick else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        report.add(
            bench="conv memory", role=role, batch=x.shape[0], peak_bytes=json.loads(done.stdout),
            result_bytes=4 * (weight.numel() if role == "wgrad" else x.numel()), windows_bytes=4 * 9 * x.numel(),
        )  # fmt: skip
    report.close()


if __name__ == "__main__":
    if "--memory-of" in sys.argv:
        torch.set_num_threads(1)
        grown(sys.argv[sys.argv.index("--memory-of") + 1], "--quick" in sys.argv)
    else:
        main()
