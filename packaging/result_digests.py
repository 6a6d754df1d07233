"""Prints digests of what the installed gemmsim computes, for each instruction set of this machine that it has.

    python packaging/result_digests.py

Two installations whose digests are equal gave the same bits for every product and cast below. The output is JSON:
{"gemmsim": folder, "build": compiler, "library": SHA-256, "digests": {instruction set: {case: digest}}}.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

import gemmsim as gs
from gemmsim.backends import cpu
from gemmsim.backends.cpu import shared_library

SPECS = (
    *(":fp32", ":fp16", ":bf16", ":e5m10", ":e5m10/sr", ":e5m10/rz", ":bf16/sr", ":e8m20", ":e11m40", ":exact()"),
    *("e4m3 : fp32", "e4m3 : e5m10", "e5m2 : chunked(64, e5m10) -> bf16", "int8 : int32"),
    *(":chunked(8, e5m10)", ":chunked(32, e5m10/rz)", ":interleaved(16, e5m10)", ":pairwise(e5m10)"),
    *(":kahan(bf16)", ":kahan(bf16/sr)", "mxfp8_e4m3 : fp32", "mxfp4 : fp32", "nvfp4 : fp32"),
    *("e4m3/sat : hw(h100, wgmma, e4m3)", "e4m3/sat : promote(hw(h100, wgmma, e4m3), 128)"),
)
SHAPES = ((1, 64, 8), (1, 515, 33), (3, 31, 5), (64, 512, 128), (130, 100, 7))
CASTS = ("e4m3", "e5m2/rz", "e4m3/sr", "bf16", "bf16/sr", "e5m10", "e2m1/sr", "int8", "fixed(8,4)")
#: Exponents of the random values: everyday ones, and ones that overflow and underflow.
SPREADS = (2.0, 40.0)


def values(rows: int, columns: int, spread: float, seed: int) -> torch.Tensor:
    """Return random numbers of both signs whose exponents are spread out."""
    generator = torch.Generator().manual_seed(seed)
    mantissas = torch.randn(rows, columns, generator=generator)
    return mantissas * torch.exp2(torch.randn(rows, columns, generator=generator) * spread)


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def cases() -> Iterator[tuple[str, str]]:
    """Yield the name of each case and the digest of its result, on the instruction set in use."""
    for spread in SPREADS:
        for m, k, n in SHAPES:
            a, b = values(m, k, spread, seed=k), values(k, n, spread, seed=n)
            for spec in SPECS:
                yield f"{spec} {m}x{k}x{n} 2^{spread:g}", digest(gs.qmatmul(a, b, spec, seed=7))
        x = values(37, 320, spread, seed=1)
        for name in CASTS:
            yield f"cast {name} 2^{spread:g}", digest(gs.quantize(x, name, seed=7))


def measured() -> dict[str, dict[str, str]]:
    """Return the digests by instruction set, for those that this machine and this build have."""
    found = {}
    for isa in cpu.ISAS:
        try:
            cpu.set_isa(isa)
        except cpu.LibraryError:
            continue
        found[isa] = dict(cases())
    return found


def main() -> int:
    library = next(path for path in shared_library._candidates() if path.exists())
    answer = {
        "gemmsim": str(Path(gs.__file__).parent),
        "build": shared_library.build_info(),
        "library": hashlib.sha256(library.read_bytes()).hexdigest(),
        "digests": measured(),
    }
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
