"""Every output of the golden vectors, bit for bit: NaN bits too on NVIDIA, NaN as a class on AMD (README of the folder)."""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np
import pytest
import torch
from support import GOLDEN

from gemmsim import hardware

FILE = GOLDEN / "mmasim_public.npz"


@lru_cache(maxsize=1)
def arrays():
    return np.load(FILE)


def cases() -> list[dict]:
    with np.load(FILE) as data:
        return json.loads(bytes(data["meta"]))["cases"]


def keys(case: dict) -> list[str]:
    return [key for key in (case["id"], case["id"] + "L") if f"{key}_A" in arrays()]


def nan(bits: np.ndarray) -> np.ndarray:
    return np.isnan(bits.view({2: np.float16, 4: np.float32, 8: np.float64}[bits.itemsize]))


@pytest.mark.parametrize(
    "case", cases(), ids=lambda case: f"{case['id']}-{case['arch']}-{case['unit']}.{case['instr']}"
)
def test_every_output_of_the_vectors(case):
    for key in keys(case):
        a, b, c, want = (arrays()[f"{key}_{name}"] for name in "ABCD")
        scales = {}
        if case["scale"]:
            scales = {
                name: torch.from_numpy(arrays()[f"{key}_{short}"])
                for name, short in (("scale_a", "SA"), ("scale_b", "SB"))
            }
        got = hardware.mma(
            case["arch"], f"{case['unit']}.{case['instr']}", *map(torch.from_numpy, (a, b, c)), **scales
        ).numpy()
        assert got.dtype == want.dtype and got.shape == want.shape
        same = got == want
        if case["family"] == "amd":
            same |= nan(got) & nan(want)
        assert same.all(), f"{key}: {(~same).sum()} of {same.size} differ, the first at {np.argwhere(~same)[0]}"


def test_the_vectors_are_all_there():
    outputs = sum(arrays()[f"{key}_D"].size for case in cases() for key in keys(case))
    assert (len(cases()), outputs) == (198, 179_584)


def test_the_tables_name_what_the_vectors_hold():
    for case in cases():
        row = hardware.instruction(case["arch"], f"{case['unit']}.{case['instr']}")
        assert (row.k, row.c, row.d, row.block) == (case["k"], case["c"], case["d"], case["block"])
        assert row.a == (case["a_sem"] if case["a"] == "f32" else case["a"].removesuffix("x2"))
