"""``count_overflows`` says where it does not count: at sums of partial sums in a fixed-point format."""

from __future__ import annotations

import warnings

import pytest
import torch

import gemmsim as gs

A, B = torch.full((2, 8), 255.0), torch.full((8, 2), 127.0)


@pytest.mark.parametrize("spec", ["uint8*int8 : adder_tree([17,18],19)", "chunked(4, int(16), fixed(20,0))"])
def test_sums_of_partial_sums_that_are_not_counted_are_named(spec):
    with pytest.warns(gs.FormatsWarning, match=r"partial sums are added in fixed\(.*not counted"):
        gs.count_overflows(A, B, spec)


@pytest.mark.parametrize(
    "spec", ["int(16)", "int(16, saturate)", gs.acc.fixed(16, 0), "chunked(4, int(16), fp32)"], ids=str
)
def test_accumulators_that_count_do_not_warn(spec):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gs.count_overflows(A, B, spec)
