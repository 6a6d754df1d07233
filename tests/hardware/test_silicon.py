"""Outputs recorded on eight NVIDIA chips, where they are at hand (they are others' and not part of this project).

The folder is the one that GEMMSIM_SILICON names, or ``shared/vectors`` next to the checkout: ``silicon.npz``, 400 rows of
each file of Khattak and Mikaitis' recordings (arXiv:2512.07004).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from support import ROOT

from gemmsim import hardware

FILE = Path(os.environ.get("GEMMSIM_SILICON", ROOT.parent / "shared" / "vectors")) / "silicon.npz"
ARCHITECTURES = {
    "V100": "volta",
    "A2": "ampere",
    "A100": "ampere",
    "Ada": "ada",
    "L40S": "ada",
    "H100": "hopper",
    "H200": "hopper",
    "B200": "blackwell",
}
FP8 = ("e4m3", "e5m2")
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
UNSIGNED = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32}

pytestmark = pytest.mark.skipif(
    not FILE.exists(), reason=f"no recorded outputs at {FILE}; GEMMSIM_SILICON names their folder"
)


def row_of(chip: str, operands: str, result: str, k: int) -> hardware.Instruction:
    """The instruction that was recorded, or one whose first step is that of ``k`` terms."""
    unit = "wgmma" if operands in FP8 and result == "f32" and chip in ("H100", "H200") else "mma"
    found = [
        row
        for row in hardware.instructions(ARCHITECTURES[chip])
        if (row.unit, row.a, row.b, row.c, row.d) == (unit, operands, operands, result, result) and k % row.k == 0
    ]
    return max(found, key=lambda row: row.k)


def codes(x: np.ndarray, kind: hardware.Operand) -> torch.Tensor:
    numbers = torch.from_numpy(np.ascontiguousarray(x))
    return (numbers.to(DTYPES[kind.name]) if kind.name in DTYPES else numbers).view(UNSIGNED[kind.width])


def compared(data: np.lib.npyio.NpzFile, name: str) -> tuple[int, int]:
    """How many outputs of a set are equal, of how many."""
    chip, operands, result = name.split("_")
    given = json.loads(str(data[f"{name}_operands"]))
    a, b = data[given["a"]], data[given["b"]]
    row = row_of(chip, operands, result, a.shape[1])
    a_kind, b_kind, c_kind, d_kind = row.operands
    start = torch.from_numpy(data[given["c"]].astype(np.int32)).view(torch.float32)
    if row.unit == "wgmma":
        start = torch.zeros_like(start)
    c = start.to(torch.float16).view(torch.uint16) if c_kind.name == "f16" else start.view(torch.uint32)
    got = hardware.mma(row.arch, row.name, codes(a, a_kind)[:, None, :], codes(b, b_kind)[:, :, None], c[:, None, None])
    want = torch.from_numpy(data[f"{name}_d"].astype(np.int32))
    found = got.view(torch.float16).float() if d_kind.name == "f16" else got.view(torch.float32)
    assert row.source.silicon and chip.replace("Ada", "RTX 1000 Ada") in row.source.chips
    return int((found.flatten().view(torch.int32) == want).sum()), len(want)


def test_every_recorded_output():
    with np.load(FILE) as data:
        names = [name.removesuffix("_operands") for name in data.files if name.endswith("_operands")]
        outcomes = {name: compared(data, name) for name in names}
    different = {name: outcome for name, outcome in outcomes.items() if outcome[0] != outcome[1]}
    assert not different, different
    assert (len(outcomes), sum(outcome[1] for outcome in outcomes.values())) == (48, 19_200)
