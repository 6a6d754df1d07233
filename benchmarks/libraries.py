"""``gs.scaled_mm`` beside mmaemu's function of the same name on a CPU: equal bits first, then the time of each.

Both compute float8 products as an H100 PCIe or an RTX 4060 does. Processor time of one thread, unsplit and split,
with and without fast accumulation; scales, NaN and the rounding to bfloat16 included. mmaemu (0.1.0, Apache-2.0) is no
dependency of this project: ``pip install --no-deps mmaemu==0.1.0``.

A second table is ours alone: one product by ``emulate`` with a library, and the time it takes to find a plan.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import torch
from harness import Report, measure, options

import gemmsim as gs

#: GPU, mmaemu's profile of it, M, N, K, fast accumulation, split, least ratio that is asked for (None: nothing is).
PROBLEMS: list[tuple[str, str, int, int, int, bool, Any, float | None]] = [
    ("h100-pcie", "hopper", 512, 512, 2048, True, 1, 30.0),
    ("h100-pcie", "hopper", 512, 512, 2048, False, 1, 30.0),
    ("h100-pcie", "hopper", 512, 512, 2048, False, (4, "contiguous"), 30.0),
    ("rtx4060", "ada", 512, 512, 2048, True, 1, 30.0),
    ("rtx4060", "ada", 512, 512, 2048, False, (4, "pairwise"), 30.0),
    ("h100-pcie", "hopper", 64, 2048, 1920, True, 1, None),
    ("h100-pcie", "hopper", 64, 64, 512, True, 1, None),
]
#: Calls of ours in a row, which take a fraction of the other's time.
REPEATS = 10
PLANS = 2000


def operands(M: int, N: int, K: int) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(M + N + K)
    a, b = (torch.randn(rows, K, generator=g).mul(20).clamp(-448, 448).to(torch.float8_e4m3fn) for rows in (M, N))
    a[0, 0] = float("nan")
    return a, b.t(), torch.tensor(0.013), torch.tensor(0.37)


def beside_mmaemu(report: Report, quick: bool, rounds: int) -> None:
    try:
        import mmaemu
    except ImportError:
        print("mmaemu is not installed: pip install --no-deps mmaemu==0.1.0")
        return
    for gpu, profile, M, N, K, fast, split, asked in PROBLEMS[-1:] if quick else PROBLEMS:
        given, options = operands(M, N, K), {"out_dtype": torch.bfloat16, "use_fast_accum": fast}
        library = gs.libraries.cublaslt(gpu, version="12.8", workspace=1 << 20)

        def ours(given: Any = given, options: Any = options, library: Any = library, split: Any = split) -> Any:
            return gs.scaled_mm(*given, **options, library=library, split=split)

        def theirs(given: Any = given, options: Any = options, profile: str = profile, split: Any = split) -> Any:
            return mmaemu.scaled_mm(*given, **options, profile=profile, splitk=split)

        equal = int((ours().view(torch.int16) == theirs().view(torch.int16)).sum())
        assert equal == M * N, (gpu, M, N, K, fast, split, M * N - equal)
        repeated = {"ours": lambda ours=ours: [ours() for _ in range(REPEATS)], "mmaemu": theirs}
        found = measure(repeated, rounds=rounds, clock=time.process_time)
        times = {name: sorted(seconds)[len(seconds) // 2] for name, seconds in found.items()}
        times["ours"] /= REPEATS
        ratios = sorted(b / a * REPEATS for a, b in zip(found["ours"], found["mmaemu"], strict=True))
        report.add(
            bench="libraries", op="scaled_mm", gpu=gpu, M=M, N=N, K=K, fast=fast, split=str(split), equal=equal,
            outputs=M * N, threads=1, isa=gs.backends.cpu.isa(), gmacs=M * N * K / times["ours"] / 1e9,
            mmaemu_gmacs=M * N * K / times["mmaemu"] / 1e9, ratio=ratios[len(ratios) // 2], asked=asked,
        )  # fmt: skip


def plans(report: Report) -> None:
    """Microseconds for a plan: of a shape that is new, of one that is known, and of a call under ``emulate``."""
    library = gs.libraries.cublaslt("h100", version="13.1")
    config, count = "66,,4,,,,35", PLANS
    start = time.process_time()
    for n in range(count):
        library.plan(16 + n, 64, 4096, "bf16", config=config)
    new = (time.process_time() - start) / count
    start = time.process_time()
    for n in range(count):
        library.plan(16 + n, 64, 4096, "bf16", config=config)
    known = (time.process_time() - start) / count
    a, b = torch.randn(4, 64).bfloat16(), torch.randn(64, 8).bfloat16()
    spec = "bf16 : hw(hopper, wgmma, bf16) -> bf16"
    contexts = {"library": gs.emulate(library, unknown="chain"), "spec": gs.emulate(spec)}
    times = {}
    for name, context in contexts.items():
        with context:
            a @ b
            start = time.process_time()
            for _ in range(count):
                a @ b
            times[name] = (time.process_time() - start) / count
    report.add(
        bench="libraries", op="plan", new_us=new * 1e6, known_us=known * 1e6,
        emulated_us=times["library"] * 1e6, emulated_by_spec_us=times["spec"] * 1e6,
    )  # fmt: skip


def main() -> None:
    args = options(__doc__ or "")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    report = Report(args.out)
    plans(report)
    beside_mmaemu(report, args.quick, args.rounds)
    report.close()


if __name__ == "__main__":
    main()
