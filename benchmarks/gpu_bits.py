"""Parts of ``gpu_check.py`` that compare bits: probes, matrix instructions, random products."""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from gpu_findings import WORKERS, Findings

import gemmsim as gs
from gemmsim.backends import cuda

#: Enough to see what they have in common.
MOST_DIFFERENCES = 20


def probes(findings: Findings) -> None:
    """What the chip answers to the thirteen probes; differences are findings, not failures."""
    command = [sys.executable, str(Path(__file__).with_name("probes.py")), "--on", "cuda"]
    done = subprocess.run(command, capture_output=True, text=True)
    findings.update(ok=bool(done.stdout), answers=done.stdout.splitlines(), stderr=done.stderr[-2000:])


def instructions(findings: Findings) -> None:
    """Whether each matrix instruction of the chip has its model's bits. A difference is a finding: the model runs."""
    verdicts = findings["verdicts"] = []
    for spec, verdict in cuda.instruction_verdicts():
        verdicts.append({"spec": spec, "equal": verdict.equal, "words": verdict.words, "digest": verdict.digest})
        print(f"  {'equal' if verdict.equal else 'DIFFERENT'}: {spec}: {verdict.words}", flush=True)
        findings.save()
        if findings.late():
            findings["errors"]["verdicts"] = f"the time was over after {len(verdicts)}"
            break


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


def random_products(findings: Findings) -> None:
    """Random specs, shapes and data on both devices until the time is over; kernels compile in several threads."""
    findings.update(products=0, refused=0, different=[])
    first = 0
    with ThreadPoolExecutor(WORKERS) as pool:
        while not findings.late() and len(findings["different"]) < MOST_DIFFERENCES:
            for outcome in pool.map(random_product, range(first, first + 4 * WORKERS)):
                findings["products"] += outcome != "refused"
                findings["refused"] += outcome == "refused"
                if isinstance(outcome, dict):
                    findings["different"].append(outcome)
                    findings["ok"] = False
            first += 4 * WORKERS
            findings.save()
    if findings["products"] == 0:
        findings.update(ok=False)
        findings["errors"]["products"] = "none was compared"


def _bits_or_error(a: torch.Tensor, b: torch.Tensor, text: str, seed: int) -> torch.Tensor | str:
    try:
        return gs.qmatmul(a, b, text, seed=seed).cpu().view(torch.int32)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:600]


def random_product(index: int, device: str = "cuda") -> dict[str, Any] | str | None:
    """None where both devices agree, "refused" where neither computes it, or what differs."""
    rng, g = random.Random(index), torch.Generator().manual_seed(index)
    text = _random_spec(rng)
    m, k, n = (rng.choice([1, 7, 33, 64, 130]) for _ in range(3))
    scale = rng.choice([1.0, 1.0, 2.0**-12, 2.0**10])
    a, b = torch.randn(m, k, generator=g) * scale, torch.randn(k, n, generator=g)
    if rng.random() < 0.2:
        a.view(-1)[0], b.view(-1)[-1] = float("inf"), float("nan")
    want = _bits_or_error(a, b, text, index)
    got = _bits_or_error(a.to(device), b.to(device), text, index)
    found: dict[str, Any] = {"spec": text, "shape": [m, k, n], "scale": scale, "seed": index}
    if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor):
        return None if torch.equal(want, got) else {**found, "elements": int((want != got).sum())}
    if isinstance(want, str) and isinstance(got, str):
        return "refused"
    errors = {"cpu": want, "gpu": got}  # one computes what the other does not
    return {**found, **{where: error for where, error in errors.items() if isinstance(error, str)}}
