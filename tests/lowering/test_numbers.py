"""The table of dtypes, and what a dtype holds, against PyTorch's own conversions."""

from __future__ import annotations

import math

import pytest
import torch

from gemmsim import formats
from gemmsim.backends.dtypes import DTYPES
from gemmsim.lowering.abi_constants import holds
from gemmsim.ops.cast_arguments import carrier_dtype

FORMATS = "e4m3 e5m2 e2m5 e8m0 e1m6 e6m1 binary8p1 ufixed(8,4) ufixed(8,-8) ufixed(8,-12) fixed(8,20) int8".split()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_facts_are_those_of_torch(dtype):
    facts, info = DTYPES[dtype], torch.finfo(dtype)
    assert facts.largest == info.max and 2.0**facts.emin == info.tiny and 2.0 ** (1 - facts.p) == info.eps
    assert facts.bytes == dtype.itemsize and facts.quantum == facts.emin - facts.p + 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_a_dtype_holds_what_its_conversion_keeps(name, dtype):
    fmt = formats.parse(name)
    values = [x for x in map(fmt.decode, range(1 << fmt.bits)) if math.isfinite(x)]
    kept = torch.tensor(values, dtype=torch.float64).to(dtype).double().tolist() == values
    assert holds(DTYPES[dtype], fmt) == kept


def test_no_dtype_holds_an_unbounded_grid():
    assert not any(holds(one, formats.parse("fixed(8,4,unbounded)")) for one in DTYPES.values())


def test_operands_of_large_unsigned_numbers_are_carried_in_a_wider_dtype():
    assert carrier_dtype(formats.parse("ufixed(8,-12)"), torch.float16) == torch.float32
