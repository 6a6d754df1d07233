"""Scaled FP8 products beside the slow readings of sum and epilogue, code for code: every output format, specials, extremes."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from libraries.operands import operands
from libraries.readings.ada import ada
from libraries.readings.epilogue import epilogue
from libraries.readings.nvjet import nvjet
from support import LONG

import gemmsim as gs

#: Products of 16 elements each that are read.
CALLS = 1300 if LONG else 60
COUNT = 16
DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
CODES = {4: (torch.int32, 0xFFFFFFFF), 2: (torch.int16, 0xFFFF), 1: (torch.uint8, 0xFF)}
LAYOUTS = {"h100-pcie": ["contiguous"], "rtx4060": ["serial", "pairwise"]}


def scale(rng: np.random.Generator) -> np.float32:
    """Positive and negative, sometimes so that results overflow or become subnormal, sometimes zero."""
    if rng.random() < 0.05:
        return np.float32(0)
    spread = 60 if rng.random() < 0.3 else 2
    return np.float32((1 + rng.random()) * 2.0 ** int(rng.integers(-spread, spread + 1)) * rng.choice([-1, 1, 1]))


def put_specials(rng: np.random.Generator, x: np.ndarray, formats: tuple[str, str]) -> None:
    """NaN, and where the format has it infinity, in some rows of the first operand; one row of zeros."""
    x[0] = 0
    for row in range(1, 4):
        x[row, rng.integers(x.shape[1])] = np.nan if formats[0] == "e4m3" or row == 1 else rng.choice([-1, 1]) * np.inf


def register(gpu: str, a, b, formats, splits: int, layout: str | None, fast: bool) -> np.float32:
    """The sum; where IEEE 754 has none that is finite, what it has."""
    with np.errstate(invalid="ignore"):
        exact = np.multiply(a, b, dtype=np.float64)
    if not np.isfinite(exact).all():
        with np.errstate(invalid="ignore"):
            return np.float32(exact.sum())
    if gpu == "rtx4060":
        return ada(list(a), list(b), formats, splits, layout == "pairwise", fast)
    return nvjet(list(a), list(b), formats, "hopper", splits, fast)


@pytest.mark.parametrize("gpu", LAYOUTS)
def test_scaled_products_have_the_codes_of_the_readings(gpu):
    rng = np.random.default_rng(11)
    library = gs.libraries.cublaslt(gpu, version="12.8", workspace=1 << 20)
    seen: Counter[str] = Counter()
    for index in range(CALLS):
        formats = [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3")][index % 3]
        out = ["bf16", "fp32", "fp16", "e4m3", "e5m2"][index % 5]
        out = "bf16" if out == "e5m2" and "e5m2" not in formats else out
        K, fast = 16 * int(math.exp(rng.uniform(0, math.log(64)))), bool(rng.integers(2))
        splits, layout = 1, None
        if rng.random() < 0.6 and K > 256:
            splits, layout = 2 + index % 2, str(rng.choice(LAYOUTS[gpu]))
        kind = ["flat", "spread", "runs", "probe"][index % 4]
        x, y = operands(rng, kind, COUNT, K, formats)
        if index % 4 == 1:
            put_specials(rng, x, formats)
        scales = scale(rng), scale(rng)
        last = scale(rng) if out in ("e4m3", "e5m2") and index % 2 else None
        given = [torch.tensor(one) for one in scales]
        got = gs.scaled_mm(
            torch.tensor(x).to(DTYPES[formats[0]]),
            torch.tensor(y).to(DTYPES[formats[1]]).t(),
            *given,
            scale_result=None if last is None else torch.tensor(last),
            out_dtype=DTYPES[out],
            use_fast_accum=fast,
            library=library,
            split=1 if splits == 1 else (splits, layout),
        ).diagonal()
        integers, mask = CODES[got.element_size()]
        codes = [int(code) & mask for code in got.contiguous().view(integers).tolist()]
        sums = [register(gpu, a, b, formats, splits, layout, fast) for a, b in zip(x, y, strict=True)]
        wanted = [epilogue(one, *scales, out, last) for one in sums]
        assert codes == wanted, f"{formats}, K = {K}, {splits} {layout}, fast {fast}, {out}, {scales}, {last}"
        seen.update(f"{out}, {'NaN' if np.isnan(one) else 'infinite' if np.isinf(one) else 'finite'}" for one in sums)
        seen[f"split {layout}"] += splits > 1
    assert all(seen[f"{out}, {what}"] for out in DTYPES for what in ("finite", "NaN"))
    assert seen["bf16, infinite"] and all(seen[f"split {layout}"] for layout in LAYOUTS[gpu])
