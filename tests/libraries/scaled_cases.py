"""Calls of ``scaled_mm`` with operands made of whole numbers, and what mmaemu 0.1.0 gives for them.

``python tests/libraries/scaled_cases.py`` writes ``scaled_results.json`` again, where mmaemu is installed.
"""

from __future__ import annotations

import base64
import json
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

STORED = Path(__file__).parent / "scaled_results.json"
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
DTYPES = {"e4m3": E4M3, "e5m2": E5M2, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
#: GPU -> mmaemu's name of it, and how its library splits K.
GPUS = {
    "h100-pcie": ("hopper", (1, (2, "contiguous"), (5, "contiguous"))),
    "rtx4060": ("ada", (1, (2, "serial"), (5, "pairwise"), (4, "pairwise"))),
}
PAIRS = (("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"))


class Case(NamedTuple):
    """A call: GPU, sizes, formats of operands and result, accumulation, split, whether operands have NaN and infinity."""

    gpu: str
    M: int
    N: int
    K: int
    a: str
    b: str
    out: str
    fast: bool
    split: Any
    specials: bool
    last: bool

    def __str__(self) -> str:
        return "-".join(map(str, self)).replace(" ", "")


class Call(NamedTuple):
    """The tensors of a case."""

    input: torch.Tensor
    mat2: torch.Tensor
    scale_a: torch.Tensor
    scale_b: torch.Tensor
    last: torch.Tensor | None


def cases(M: int, N: int, lengths: tuple[int, ...]) -> Iterator[Case]:
    """Every GPU, accumulation, split, pair of formats and output, lengths of K in turn."""
    count = 0
    for gpu, (_, splits) in GPUS.items():
        for a, b in PAIRS:
            for out in ("fp32", "bf16", "fp16", "e4m3", *(("e5m2",) if a != b else ())):
                for fast in (True, False):
                    for split in splits:
                        K = lengths[count % len(lengths)]
                        count += 1
                        yield Case(gpu, M, N, K, a, b, out, fast, split, count % 3 == 0, count % 2 == 0)


def _mixed(seed: int, count: int) -> np.ndarray:
    """Numbers of 64 bits that look random (splitmix64)."""
    with np.errstate(over="ignore"):
        x = (np.arange(count, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _operand(seed: int, rows: int, K: int, name: str, specials: bool) -> torch.Tensor:
    """Codes of all exponents; in a few rows NaN, and infinities where the format has them."""
    codes = (_mixed(seed, rows * K) & np.uint64(0xFF)).astype(np.uint8).reshape(rows, K)
    if seed % 2:  # without the largest numbers, beside which others vanish
        codes &= np.uint8(0xBF)
    magnitudes, sign = codes & np.uint8(0x7F), codes & np.uint8(0x80)
    highest = 0x7E if name == "e4m3" else 0x7B  # the largest finite number
    codes = np.minimum(magnitudes, np.uint8(highest)) | sign
    if specials:
        codes[1, K // 2] = 0x7F
        codes[2, :] = 0
        codes[3, 0], codes[3, K - 1] = (0x7E, 0xFE) if name == "e4m3" else (0x7C, 0xFC)
        codes[4, K - 1] = 0xFE if name == "e4m3" else 0xFC
    return torch.from_numpy(codes).view(DTYPES[name])


def call_of(case: Case) -> Call:
    """The tensors of a case, the same on every machine."""
    seed = zlib.crc32(str(case).encode()) & 0xFFFF
    factors = (_mixed(seed + 7, 3) >> np.uint64(40)).astype(np.float64)  # 24 bits: all of float32's
    scales = [torch.tensor(f * 2.0**e, dtype=torch.float32) for f, e in zip(factors, (-28, -31, -24), strict=True)]
    if seed % 5 == 0:
        scales[0] = -scales[0]
    a = _operand(seed, case.M, case.K, case.a, case.specials)
    b = _operand(seed + 1, case.N, case.K, case.b, case.specials and seed % 2 == 0)
    return Call(a, b.t(), scales[0], scales[1], scales[2] if case.last else None)


def by_mmaemu(case: Case) -> torch.Tensor:
    """What mmaemu's public function gives."""
    import mmaemu

    call = call_of(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: torch.Tensor = mmaemu.scaled_mm(
            *call[:4],
            scale_result=call.last,
            out_dtype=DTYPES[case.out],
            use_fast_accum=case.fast,
            splitk=case.split,
            profile=GPUS[case.gpu][0],
        )
    return found


def stored_cases() -> list[Case]:
    """The cases whose results are stored: K of whole tiles, and with a last tile of 16 to 112 terms."""
    return list(cases(8, 16, (768, 656, 1040, 1024, 720)))


def stored() -> dict[str, torch.Tensor]:
    """Case -> result."""
    found = {}
    data = json.loads(STORED.read_text(encoding="utf-8"))
    for case in stored_cases():
        raw = zlib.decompress(base64.b64decode(data["results"][str(case)]))
        found[str(case)] = torch.frombuffer(bytearray(raw), dtype=DTYPES[case.out]).reshape(case.M, case.N)
    return found


def _write() -> None:
    results = {}
    for case in stored_cases():
        raw = by_mmaemu(case).contiguous().view(torch.uint8).numpy().tobytes()
        results[str(case)] = base64.b64encode(zlib.compress(raw, 9)).decode()
    text = json.dumps({"made by": "mmaemu 0.1.0 (Apache-2.0)", "results": results}, indent=0)
    STORED.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    _write()
