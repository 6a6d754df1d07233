"""What cuBLASLt of this machine chooses and computes, beside what gemmsim says: a part of the GPU check, or alone.

    python benchmarks/library_check.py --out results --minutes 8

In this order: the heuristic's configurations for some 40,000 shapes in each format and workspace, as tables; of every
kind of configuration some products, whose bits are compared with the plan's; the terms that split kernels lose;
arithmetic that nobody has published; the plans' specs on the GPU and on the host. Every finding is a line of
results.jsonl when it is made, a second call goes on where the first one stopped. A library that does not compute what
its plan says is a finding, not a failure; that GPU and host differ is one.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from gpu_process import gpu_is_lost
from gpu_results import Results
from library_orders import met_after, pairs_of
from library_rows import Row, kinds, read_rows
from library_shapes import shapes
from library_unmeasured import SHAPES, closest, experiments
from torch import Tensor

import gemmsim as gs

__all__ = ["FORMATS", "PART", "Sizes", "Work", "libraries", "main", "verdict"]

PART = "libraries"
_MIB = 1 << 20
#: Operands, output and flag of the calls that the heuristic is asked about.
FORMATS = (
    ("fp16", "fp16", "fp16", False),
    ("bf16", "bf16", "bf16", False),
    ("e4m3", "e4m3", "bf16", False),
    ("e4m3", "e4m3", "bf16", True),
)
_DTYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
#: Specs of each family's kind, on GPU and host.
SPECS = (
    "fp16 : splitk(9, hw(hopper, wgmma, fp16), fp32, grain=64, share=floor) -> fp16",
    "e4m3 : splitk(4, promote(hw(hopper, wgmma, e4m3), 128), fp32, grain=128, share=floor) -> fp32 -> bf16",
    "bf16 : hw(hopper, mma, bf16, first=64) -> bf16",
    "bf16 : splitk(3, hw(hopper, mma, bf16, first=64), fp32, grain=8, partial=bf16) -> bf16",
    "fp16 : splitk(3, fused(8, 25, a=fp16, first=32), fp16/via(fp32), grain=8, partial=fp32)",
    "fp16 : splitk(4, chunked(128, fp32), fp32) -> fp16",
    "fp16 : interleaved(16, chunked(32, fp32)) -> fp16",
    "fp16 : interleaved(32, fp32, halves, width=4) -> fp16",
    "fp16 : splitk(2, interleaved(8, fp32, halves, width=64), fp32) -> fp16",
    "fp16 : interleaved(40, interleaved(128, interleaved(2, fp32), halves, width=2), interleaved(128, fp32, "
    "interleaved(64, fp32, interleaved(32, fp32, interleaved(4, fp32)))), width=256) -> fp16",
    "e4m3 : interleaved(4, promote(hw(ada, mma, e4m3), 128), tree(((3+(0+2))+1)), width=64) -> fp32 -> bf16",
    "bf16 : splitk(2, interleaved(2, hw(ampere, mma, bf16), width=32), bf16/via(fp32), grain=64, partial=fp32)",
)


@dataclass(frozen=True)
class Sizes:
    """How much is asked; tests ask for less."""

    shapes: int = 40_000
    workspaces: tuple[int, ...] = (32 * _MIB, 0, _MIB, 4 * _MIB)
    of_a_kind: int = 3
    elements: int = 1 << 26  # of operands and output of a product that is compared
    edge: int = 64  # rows and columns of it that are emulated
    losses: int = 400
    exact_edge: int = 3072
    sums: tuple[tuple[int, int, int], ...] = SHAPES  # of products with random operands beside all known orders
    slices: int = 12  # the most of these orders


@dataclass
class Work:
    """One call of the part: results, the library of the process for a workspace, sizes."""

    results: Results
    library: Callable[[int], Any]
    sizes: Sizes = field(default_factory=Sizes)
    end: float = field(init=False)

    def __post_init__(self) -> None:
        self.end = self.results.end

    def share(self, of_what_is_left: float) -> None:
        """The next step has this share of the time that is left of the part."""
        now = time.monotonic()
        self.results.end = now + of_what_is_left * (self.end - now) if self.end != float("inf") else self.end

    def measure(self, key: str, work: Callable[[], Any], limit: float = 120.0) -> None:
        """A finding; what the library or PyTorch refuses is one, too, unless it took the GPU away."""

        def refused_or_done() -> Any:
            try:
                return work()
            except (gs.libraries.LibraryError, gs.libraries.UnknownPlan, RuntimeError, TypeError) as error:
                lost = gpu_is_lost()
                assert not lost, lost
                return {"refused": f"{type(error).__name__}: {' '.join(str(error).split()[:60])}"}

        self.results.measure(PART, key, refused_or_done, limit)


def table_path(work: Work, formats: tuple[str, str, str, bool], workspace: int) -> Path:
    """Where the heuristic's answers for calls of these formats are."""
    a, _, _, fast = formats
    return work.results.folder / f"cublaslt_{a}{'_fast' * fast}_{workspace >> 20}mib.jsonl.gz"


def record(work: Work) -> None:
    """The heuristic's configurations, in portions: a call that ends in between goes on. Whole tables are compressed."""
    for workspace in work.sizes.workspaces:
        for formats in FORMATS:
            asked = shapes(work.sizes.shapes, 16 if formats[0] in ("e4m3", "e5m2") else 1)
            packed = table_path(work, formats, workspace)
            path = packed.with_suffix("")
            portion = -(-len(asked) // 4)
            for first in range(0, len(asked), portion):

                def ask(some: Any = asked[first : first + portion], path: Path = path, call: Any = formats) -> Any:
                    before = time.perf_counter()
                    new = work.library(workspace).record(some, path, *call[:3], fast_accumulation=call[3])
                    seconds = time.perf_counter() - before
                    return {"shapes": len(some), "rows": new, "microseconds": round(1e6 * seconds / len(some), 1)}

                work.measure(f"recorded/{path.name}/{first}", ask)
            if path.exists() and not work.results.late():
                with gzip.open(packed, "wb") as file:
                    file.write(path.read_bytes())
                path.unlink()


def recorded(work: Work, workspace: int | None = None) -> list[Row]:
    """The rows of all tables, or of those of one workspace."""
    spaces = work.sizes.workspaces if workspace is None else (workspace,)
    packed = [table_path(work, formats, space) for space in spaces for formats in FORMATS]
    return [row for path in packed for one in (path, path.with_suffix("")) if one.exists() for row in read_rows(one)]


def _operands(row: Row, seed: int) -> tuple[Tensor, Tensor]:
    """(M, K) and (K, N) in the row's formats, each number with its own power of two; b is column-major for FP8."""
    g = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=g) * torch.exp2(torch.randint(-4, 5, shape, generator=g).float())

    a, b = numbers(row.M, row.K).to(_DTYPES[row.a]).cuda(), numbers(row.N, row.K).to(_DTYPES[row.b]).cuda().t()
    return a, b if row.a in ("e4m3", "e5m2") else b.contiguous()


def _run(work: Work, row: Row, a: Tensor, b: Tensor, out: str) -> Tensor:
    """The product by exactly the row's algorithm."""
    library = work.library(work.sizes.workspaces[0])
    return library.run(a, b, row.config, out=_DTYPES[out], fast_accumulation=row.fast)


def _outputs(row: Row) -> tuple[str, ...]:
    """Output formats to ask for: float32, which shows the register, where the configuration does not round to it."""
    serial = row.splits > 1 and row.config[3] in (0, 1, 4) and row.config[0] != 66
    return (row.out,) if serial else ("fp32", row.out)


def _run_widest(work: Work, row: Row, a: Tensor, b: Tensor) -> tuple[str, Tensor]:
    """The product in the first of its outputs that the library takes this algorithm for, and that output's name."""
    *first, last = _outputs(row)
    for out in first:
        try:
            return out, _run(work, row, a, b, out)
        except gs.libraries.LibraryError:
            continue
    return last, _run(work, row, a, b, last)


def compared(work: Work, row: Row) -> dict[str, Any]:
    """The bits of a product by the row's algorithm beside those of its plan, on a sample of rows and columns."""
    library, edge = work.library(work.sizes.workspaces[0]), work.sizes.edge
    a, b = _operands(row, row.K)
    out, got = _run_widest(work, row, a, b)
    call = (row.M, row.N, row.K, row.a, row.b, out)
    plan = library.plan(*call, config=row.config, fast_accumulation=row.fast)
    rows, columns = _sample(row.M, edge), _sample(row.N, edge)
    left, right = a.cpu().float()[rows], b.cpu().float()[:, columns]
    want = gs.qmatmul(left, right, plan.spec).to(got.dtype)
    some = got.cpu()[rows][:, columns]
    raw = torch.int32 if some.dtype == torch.float32 else torch.int16
    different = int((some.contiguous().view(raw) != want.contiguous().view(raw)).sum())
    return {
        "shape": [row.M, row.N, row.K], "splits": row.splits, "family": plan.family, "evidence": plan.evidence,
        "spec": plan.text, "out": out, "outputs": some.numel(), "equal": some.numel() - different,
    }  # fmt: skip


def _sample(size: int, most: int) -> Tensor:
    """Up to ``most`` indices below ``size``, the first and last among them."""
    return torch.linspace(0, size - 1, min(size, most)).round().long().unique()


def families(work: Work) -> None:
    """Of every kind of configuration that was recorded some products, their bits beside the plan's."""
    chosen = kinds(recorded(work), work.sizes.of_a_kind, work.sizes.elements)
    for index in range(work.sizes.of_a_kind):  # one of each kind first
        for kind, rows in chosen.items():
            if index < len(rows):
                row = rows[index]
                key = f"compared/{kind}/{row.M}x{row.N}x{row.K}, {row.splits}"
                work.measure(key, lambda row=row: compared(work, row))


def lost(work: Work) -> None:
    """Sums of ones by split kernels whose tail is shorter than the number of slices: some lose it."""
    rows = [row for row in recorded(work) if row.config[0] == 66 and row.splits > 1 and row.size <= work.sizes.elements]
    short = [row for row in rows if 0 < row.K % (128 if row.a == "e4m3" else 64) < row.splits]
    short.sort(key=lambda row: (row.splits <= 64, row.size))  # the unmeasured ones, of more than 64 slices, first
    for row in short[: work.sizes.losses]:
        work.measure(f"lost/{row.a}/{row.M}x{row.N}x{row.K}, {row.splits}", lambda row=row: terms_lost(work, row))


def terms_lost(work: Work, row: Row) -> dict[str, Any]:
    """How many terms of K the row's algorithm leaves out, and how many its plan says."""
    one = torch.ones(1, 1)
    a = one.to(_DTYPES[row.a]).cuda().expand(row.M, row.K).contiguous()
    b = one.to(_DTYPES[row.b]).cuda().expand(row.N, row.K).contiguous().t()
    got = _run(work, row, a, b if row.a in ("e4m3", "e5m2") else b.contiguous(), "fp32")
    library = work.library(work.sizes.workspaces[0])
    call = (row.M, row.N, row.K, row.a, row.b, "fp32")
    plan = library.plan(*call, config=row.config, fast_accumulation=row.fast)
    found = [row.K - int(value) for value in (got.min(), got.max())]
    return {"shape": [row.M, row.N, row.K], "splits": row.splits, "lost": found, "planned": plan.lost}


def unknown_orders(work: Work) -> None:
    """Which terms meet before others in kernels without a rule, such as ALGO_ID 41 and 56."""
    for row in _without_plan(work)[:6]:

        def ask(row: Row = row) -> dict[str, Any]:
            def product(a: Tensor, b: Tensor) -> Tensor:
                one, other = a.to(_DTYPES[row.a]).cuda(), b.to(_DTYPES[row.b]).cuda().contiguous()
                return _run_widest(work, row, one, other)[1]

            pairs = pairs_of(row.K)
            return {"config": list(row.config), "met": met_after(product, (row.M, row.N, row.K), row.a, pairs)}

        work.measure(f"orders/{row.kind}/{row.M}x{row.N}x{row.K}", ask)


def _without_plan(work: Work) -> list[Row]:
    """The smallest row of each kind without a plan, in 16 bits; of 64 terms or more where there is one."""
    library, found = work.library(work.sizes.workspaces[0]), {}
    for row in sorted(recorded(work, work.sizes.workspaces[0]), key=lambda row: (row.K < 64, row.size)):
        if row.a in ("e4m3", "e5m2") or row.kind in found or row.size > work.sizes.elements:
            continue
        try:
            library.plan(row.M, row.N, row.K, row.a, row.b, row.out, config=row.config)
        except gs.libraries.UnknownPlan:
            found[row.kind] = row
    return list(found.values())


def wide_vectors(work: Work) -> None:
    """Vectors by option 10 above the largest output that has a plan: how many lanes they have."""
    rows = [row for row in recorded(work, work.sizes.workspaces[0]) if (row.config[0], row.config[5]) == (13, 10)]
    wide = [row for row in rows if row.M * row.N > 4096 and row.K >= 256 and row.size <= work.sizes.elements]
    for row in sorted(wide, key=lambda row: row.M * row.N)[:: max(1, len(wide) // 20)]:

        def ask(row: Row = row) -> dict[str, Any]:
            a, b = _operands(row, row.K)
            sampled = _sample(row.M, 64), _sample(row.N, 64)
            got = _run_widest(work, row, a, b)[1].cpu()[sampled[0]][:, sampled[1]]
            specs = [f"{row.a} : interleaved({lanes}, fp32, halves, width=4)" for lanes in range(4, 65, 2)]
            return {"shape": [row.M, row.N, row.K], **closest(got, a.cpu()[sampled[0]], b.cpu()[:, sampled[1]], specs)}

        work.measure(f"wide vectors/{row.a}/{row.M}x{row.N}x{row.K}", ask)


def unmeasured(work: Work) -> None:
    """Arithmetic that nobody has published (library_unmeasured)."""
    for name, ask in experiments(work.sizes.exact_edge, work.sizes.sums, work.sizes.slices).items():
        work.measure(f"unmeasured/{name}", ask)


def backends(work: Work) -> None:
    """The specs of plans on the GPU and on the host: equal, or a failure."""
    for spec in SPECS:
        work.results.measure(PART, f"backends/{spec}", lambda spec=spec: both(spec), limit=240.0)


def both(spec: str) -> dict[str, int]:
    """``AssertionError`` where GPU and host differ."""
    g = torch.Generator().manual_seed(9)
    a, b = (torch.randn(shape, generator=g) for shape in ((40, 1000), (1000, 24)))
    host, device = gs.qmatmul(a, b, spec), gs.qmatmul(a.cuda(), b.cuda(), spec).cpu()
    different = int((host.view(torch.int32) != device.view(torch.int32)).sum())
    assert not different, f"{different} of {host.numel()} results differ: {spec}"
    return {"outputs": host.numel()}


def verdict(results: Results) -> dict[str, dict[str, int]]:
    """By family: products whose every bit was the plan's, products, outputs equal, outputs; and what was refused."""
    found: dict[str, dict[str, int]] = {}
    for key, one in results.run.part(PART).items():
        if not key.startswith("compared/") or not isinstance(one.value, dict):
            continue
        if "refused" in one.value:
            refused = found.setdefault("no plan, or refused", {"products": 0})
            refused["products"] += 1
            continue
        row = found.setdefault(one.value["family"], {"equal": 0, "products": 0, "outputs_equal": 0, "outputs": 0})
        row["equal"] += one.value["equal"] == one.value["outputs"]
        row["products"] += 1
        row["outputs_equal"] += one.value["equal"]
        row["outputs"] += one.value["outputs"]
    return found


def libraries(results: Results, library: Callable[[int], Any] | None = None, sizes: Sizes | None = None) -> None:
    """The whole part. ``library``: a library for a workspace in bytes (that of the process)."""
    work = Work(results, functools.cache(library or of_process), sizes or Sizes())
    work.measure("the library", lambda: {"library": str(work.library(work.sizes.workspaces[0]))})
    known = results.run.part(PART).get("the library")
    if known is not None and isinstance(known.value, dict) and "library" in known.value:
        steps: tuple[tuple[float, Callable[[Work], None]], ...] = (
            (0.15, record), (0.5, families), (0.2, lost), (0.2, unknown_orders), (0.2, wide_vectors), (0.7, unmeasured),
        )  # fmt: skip
        for share, step in steps:
            work.share(share)
            step(work)
    work.share(1.0)
    backends(work)
    results.add(PART, "verdict", verdict(results))


#: Profile that says what configurations mean, by compute capability, where this GPU or version was not measured.
PROFILES = {
    (8, 9): ("rtx4060", "12.8"),
    (9, 0): ("h100", "13.1"),
    (10, 0): ("gb200", "13.1"),
    (10, 3): ("gb300", "13.1"),
}


def of_process(workspace: int) -> Any:
    """cuBLASLt of this process; with the nearest profile where it was not measured itself."""
    try:
        return gs.libraries.here(workspace=workspace)
    except gs.libraries.LibraryError:
        near = PROFILES.get(torch.cuda.get_device_capability())
        if near is None:
            raise
        return gs.libraries.here(*near, workspace=workspace)


def main(argv: Sequence[str] | None = None) -> int:
    """0 if GPU and host agree, 1 if not, 2 if it cannot run here, 3 if the time was over before the end."""
    from gpu_machine import NotReady, check_ready, code_of, machine

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("gpu_results"), help="folder of results.jsonl and the tables")
    parser.add_argument("--minutes", type=float, default=8.0)
    options = parser.parse_args(argv)
    try:
        check_ready()
        results = Results(options.out)
        results.begin(machine(), code_of())
    except NotReady as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    results.end = time.monotonic() + 60 * options.minutes
    libraries(results)
    for family, counts in verdict(results).items():
        print(f"{family}: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    if any(not one.ok for one in results.run.part(PART).values()):
        return 1
    return 3 if results.late() else 0


if __name__ == "__main__":
    sys.exit(main())
