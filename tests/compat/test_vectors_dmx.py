"""Block floating point against values stored from d-Matrix's compressor and QPyTorch (tests/golden/README.md)."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from support import GOLDEN, assert_values_equal

import gemmsim as gs
from gemmsim.formats import BlockFloatFormat, Sharing, parse_rounding

_SHORTHAND = re.compile(r"BFP\[(\d+)\|8\]\{(\d+)\}\((.)N\)")


def load(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / name) as stored:
        return {key: stored[key] for key in stored.files}


DMX, QPYTORCH = load("dmx_formats.npz"), load("qpytorch_nearest.npz")
#: A block of one element is a float there, without the clamp.
BLOCKS = [row for row in json.loads(str(DMX["index_json"])) if _SHORTHAND.fullmatch(row[2]) and "{1}" not in row[2]]
SHARED = [row for row in json.loads(str(QPYTORCH["index_json"])) if row[2] == "block_quantize"]


def mask(stored: dict[str, np.ndarray], key: str) -> torch.Tensor | None:
    """Where that system agrees with the definition."""
    if f"{key}__exact" not in stored:
        return None
    found = np.unpackbits(stored[f"{key}__exact"])[: stored[key].size].astype(bool)
    return torch.from_numpy(found).view(stored[key].shape)


@pytest.mark.parametrize("key, given, text, dim", BLOCKS, ids=[f"{row[0]}-{row[2]}" for row in BLOCKS])
def test_blocks_are_those_of_dmx(key, given, text, dim):
    bits, size, symmetric = _SHORTHAND.fullmatch(text).groups()
    fmt = BlockFloatFormat(int(bits), int(size), dim, symmetric=symmetric == "S", keep_infinity=True)
    got = gs.quantize(torch.from_numpy(DMX[given]), fmt)
    assert_values_equal(got, torch.from_numpy(DMX[key]), mask(DMX, key), context=str(fmt))


@pytest.mark.parametrize("key, given, function, kwargs", SHARED, ids=[row[0] for row in SHARED])
def test_shared_exponents_are_those_of_qpytorch(key, given, function, kwargs):
    """Its ties go toward +infinity."""
    whole = kwargs["dim"] == -1
    sharing = Sharing.TENSOR if whole else Sharing.INDEX
    dim = 0 if whole else kwargs["dim"]
    fmt = BlockFloatFormat(kwargs["wl"], dim=dim, sharing=sharing, rounding=parse_rounding("half_up"))
    got = gs.quantize(torch.from_numpy(QPYTORCH[given]), fmt)
    assert_values_equal(got, torch.from_numpy(QPYTORCH[key]), mask(QPYTORCH, key), context=str(fmt))
