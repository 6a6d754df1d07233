"""``gs.scaled_mm`` beside mmaemu's function of the same name on a CPU: equal bits first, then the time of each.

Both compute float8 products as an H100 PCIe or an RTX 4060 does. Processor time of one thread, unsplit and split,
with and without fast accumulation; scales, NaN and the rounding to bfloat16 included. mmaemu (0.1.0, Apache-2.0) is no
dependency of this project: ``pip install --no-deps mmaemu==0.1.0``.

Further tables are ours alone: each family's order beside its innermost accumulator at 128 columns, and one row; one
product by ``emulate`` with a library, and the time it takes to find a plan.
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
#: Family, its spec, the accumulator inside it, K, least share of the inner one's speed that is asked for.
FAMILIES: list[tuple[str, str, str, int]] = [
    (
        "nvjet, 4 slices",
        "fp16 : splitk(4, hw(hopper, wgmma, fp16), fp32, grain=64, share=floor)",
        "fp16 : hw(hopper, wgmma, fp16)",
        4096,
    ),
    (
        "nvjet, FP8, 4 slices",
        "e4m3 : splitk(4, promote(hw(hopper, wgmma, e4m3), 128), fp32, grain=128, share=floor)",
        "e4m3 : hw(hopper, wgmma, e4m3)",
        4096,
    ),
    (
        "nvjet, FP8, runs of runs",
        "e4m3 : chunked(1024, promote(hw(hopper, wgmma, e4m3), 128), fp32)",
        "e4m3 : hw(hopper, wgmma, e4m3)",
        4096,
    ),
    ("cutlass, first tile", "fp16 : hw(hopper, mma, fp16, first=64)", "fp16 : hw(hopper, mma, fp16)", 4100),
    (
        "cutlass, scheme 4",
        "bf16 : splitk(3, hw(hopper, mma, bf16, first=64), fp32, grain=8, partial=bf16)",
        "bf16 : hw(hopper, mma, bf16)",
        4100,
    ),
    (
        "cutlass, serial",
        "fp16 : splitk(3, fused(8, 25, a=fp16, first=32), fp16/via(fp32), grain=8, partial=fp32)",
        "fp16 : fused(8, 25, a=fp16)",
        4100,
    ),
    ("gemmsn", "fp16 : splitk(4, chunked(128, fp32), fp32)", "fp16 : fp32", 4096),
    ("gemv, 32 lanes of 4", "fp16 : interleaved(32, fp32, halves, width=4)", "fp16 : fp32", 4096),
    ("gemv, 2 slices", "fp16 : splitk(2, interleaved(8, fp32, halves, width=64), fp32)", "fp16 : fp32", 4096),
    (
        "dot, 40 blocks",
        "fp16 : interleaved(40, interleaved(128, interleaved(2, fp32), halves, width=2), interleaved(128, fp32, "
        "interleaved(64, fp32, interleaved(32, fp32, interleaved(4, fp32)))), width=256)",
        "fp16 : fp32",
        262144,
    ),
    (
        "tiles, FP8, 4 splits",
        "e4m3 : interleaved(4, promote(hw(ada, mma, e4m3), 128), tree(((3+(0+2))+1)), width=64)",
        "e4m3 : hw(ada, mma, e4m3)",
        4096,
    ),
    (
        "A100, sliced",
        "bf16 : splitk(2, interleaved(2, hw(ampere, mma, bf16), width=32), bf16/via(fp32), grain=64, partial=fp32)",
        "bf16 : hw(ampere, mma, bf16)",
        4096,
    ),
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


def families(report: Report, quick: bool, rounds: int) -> None:
    """Each family beside its innermost accumulator, 128 x K x 128, and one row times K x 1024; one thread."""
    for family, text, inner, K in FAMILIES[:1] if quick else FAMILIES:
        row: dict[str, Any] = {}
        for name, (M, k, N) in {"gmacs": (128, K, 128), "one_row": (1, min(K, 4096), 1024)}.items():
            g = torch.Generator().manual_seed(K)
            a, b = torch.randn(M, k, generator=g), torch.randn(k, N, generator=g)
            calls = {spec: lambda a=a, b=b, spec=spec: gs.qmatmul(a, b, spec) for spec in (text, inner)}
            found = measure(calls, rounds=rounds, clock=time.process_time)
            seconds = {spec: sorted(times)[len(times) // 2] for spec, times in found.items()}
            row[name] = M * k * N / seconds[text] / 1e9
            ratios = sorted(b / a for a, b in zip(found[text], found[inner], strict=True))
            row[f"{name}_of_inner"] = ratios[len(ratios) // 2]
        report.add(bench="libraries", op="family", family=family, spec=text, K=K, isa=gs.backends.cpu.isa(), **row)


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
    families(report, args.quick, args.rounds)
    beside_mmaemu(report, args.quick, args.rounds)
    report.close()


if __name__ == "__main__":
    main()
