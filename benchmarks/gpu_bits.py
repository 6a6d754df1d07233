"""Parts of the GPU check that compare bits: probes, matrix instructions, random products."""

from __future__ import annotations

import contextlib
import json
import lzma
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import probes as chip
import torch
from gpu_kernels import WORKERS
from gpu_process import gpu_is_lost
from gpu_results import Results
from gpu_trace import launched, planning

import gemmsim as gs
from gemmsim import hardware
from gemmsim.backends import cuda

__all__ = [
    "Draw",
    "draw",
    "probes",
    "random_product",
    "random_products",
    "read_draws",
    "verdicts",
    "write_draws",
]

#: Enough to see what they have in common.
MOST_DIFFERENCES = 20
#: Random products without a list of them.
DRAWS = 200


def probes(results: Results, undecided: bool = False) -> None:
    """What the chip answers to each probe, or to each that no recording has settled; a difference is a finding about
    the chip, not a failure."""
    for name, probe in chip.named().items():
        if (probe in hardware.UNDECIDED) != undecided:
            continue

        def ask(probe: chip.Probe = probe) -> dict[str, Any]:
            verdict, code = chip.answer_of(probe, "cuda")
            found = {"question": probe.question, "instruction": probe.instruction, "answer": verdict}
            return found if code is None else {**found, "value": chip.show(code, probe), "else": probe.otherwise}

        results.measure("undecided" if undecided else "probes", name, ask)


def verdicts(results: Results) -> None:
    """Whether each matrix instruction of the chip has its model's bits. A difference is a finding: the model runs."""
    for spec, make in cuda.instruction_questions().items():

        def ask(make: Any = make) -> dict[str, Any]:
            verdict = make()
            lost = gpu_is_lost()  # a fault is a failure, and the verdict on the next would be its consequence
            assert not lost, f"{verdict.words}; {lost}"
            return {"equal": verdict.equal, "words": verdict.words, "digest": verdict.digest}

        results.measure("verdicts", spec, ask, limit=180.0)


@dataclass(frozen=True)
class Draw:
    """A random product: which numbers it has follows from ``seed``."""

    seed: int
    spec: str
    m: int
    k: int
    n: int
    scale: float
    special: bool

    def operands(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(M, K) and (K, N), float32; with ``special`` an infinity and a NaN."""
        g = torch.Generator().manual_seed(self.seed)
        a, b = torch.randn(self.m, self.k, generator=g) * self.scale, torch.randn(self.k, self.n, generator=g)
        if self.special:
            a.view(-1)[0], b.view(-1)[-1] = float("inf"), float("nan")
        return a, b


def _random_spec(rng: random.Random) -> str:
    fmt = rng.choice(["e5m10", "bf16", "e4m3", "e5m2", "e6m9", "fp32", "tf32", "e3m4"])
    mode = rng.choice(["", "", "", "/rtz", "/rna", "/ru", "/rd", "/sr8", "/sr20", "/sat"])
    one = fmt + mode
    shape = rng.choice(
        ["{}", "{}", "chunked(8, {})", "pairwise({})", "interleaved(4, {})", "kahan({})", "neumaier({})"]
    )
    inside = shape.format(one)
    if shape == "{}" and rng.random() < 0.3:
        inside = f"mul={rng.choice(['e5m10', 'bf16'])}{mode if mode.startswith('/sr') else ''}, add={one}"
    return f"{rng.choice(['', 'e4m3', 'bf16', 'e5m2'])} : {inside}"


def draw(index: int) -> Draw:
    """Random product number ``index``."""
    rng = random.Random(index)
    spec = _random_spec(rng)
    m, k, n = (rng.choice([1, 7, 33, 64, 130]) for _ in range(3))
    scale = rng.choice([1.0, 1.0, 2.0**-12, 2.0**10])
    return Draw(index, spec, m, k, n, scale, rng.random() < 0.2)


def write_draws(path: Path, found: list[Draw]) -> None:
    """``found`` as the file ``path``, so that another version of Python or of this file takes the same ones."""
    text = "".join(json.dumps(asdict(one)) + "\n" for one in found)
    path.write_bytes(lzma.compress(text.encode()))


def read_draws(path: Path) -> list[Draw]:
    """The random products of a file, in its order."""
    return [Draw(**json.loads(line)) for line in lzma.decompress(path.read_bytes()).decode().splitlines()]


def draws(path: Path | None) -> Iterator[Draw]:
    """Those of the file, or the first ``DRAWS``."""
    yield from (draw(index) for index in range(DRAWS)) if path is None else read_draws(path)


def random_products(results: Results, path: Path | None = None) -> None:
    """Random specs, shapes and data on both devices; kernels that are not there yet are compiled for many at a time."""
    todo = [one for one in draws(path) if not results.has("random", str(one.seed))]
    with ThreadPoolExecutor(WORKERS) as pool:
        for first in range(0, len(todo), 4 * WORKERS):
            different = sum(not found.ok for found in results.run.part("random").values())
            if results.late() or different >= MOST_DIFFERENCES:
                return
            some = todo[first : first + 4 * WORKERS]
            list(pool.map(_prepared, some))
            for one in some:
                results.measure("random", str(one.seed), lambda one=one: random_product(one))


def _prepared(one: Draw) -> None:
    """Brings the kernels of a product into memory; its errors come back when it is compared."""
    with planning(), contextlib.suppress(Exception):
        a, b = one.operands()
        gs.qmatmul(a.cuda(), b.cuda(), one.spec, seed=one.seed)


def _bits_or_error(a: torch.Tensor, b: torch.Tensor, one: Draw) -> torch.Tensor | str:
    try:
        return gs.qmatmul(a, b, one.spec, seed=one.seed).cpu().view(torch.int32)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:600]


def random_product(one: Draw, device: str = "cuda") -> str:
    """ "equal" where both devices agree, "refused" where neither computes it; ``AssertionError`` says what differs."""
    a, b = one.operands()
    want = _bits_or_error(a, b, one)
    with launched() as names:
        got = _bits_or_error(a.to(device), b.to(device), one)
    if isinstance(want, str) and isinstance(got, str):
        return "refused"
    where = f"{one.spec!r}, {one.m} x {one.k} x {one.n}, scale {one.scale}, seed {one.seed}, kernels {names}"
    assert not isinstance(got, str), f"only the CPU computes {where}: {got}"
    assert not isinstance(want, str), f"only the GPU computes {where}: {want}"
    assert torch.equal(want, got), f"{int((want != got).sum())} of {want.numel()} results differ: {where}"
    return "equal"
