"""The fast path: how many functions of the package a small product calls, and which way each call takes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from support import assert_bitwise_equal
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import gemmsim as gs
from gemmsim.ops.product import fast_path

A, B = torch.randn(8, 8, generator=torch.Generator().manual_seed(1)), torch.eye(8)
PACKAGE = str(Path(gs.__file__).parent)
#: Functions of the package that a repeated product may call. Calls cost more than a small product does.
MOST = 12


def calls_of(function) -> int:
    """How many functions of the package one call of ``function`` enters."""
    found = []

    def profile(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            found.append(frame.f_code.co_name)

    function()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return len(found)


@pytest.mark.parametrize("spec", [":e5m10", gs.GemmSpec.of(":e5m10")], ids=str)
def test_calls_of_a_repeated_product(spec):
    assert calls_of(lambda: gs.qmatmul(A, B, spec)) <= MOST


class Dispatched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_ways():
    plain, casts = (gs.QAffineFormats.of(text).plan for text in (":e5m10", "e4m3 : e5m10"))
    scaled = gs.QAffineFormats(fprop=":e5m10", input_quant="e4m3").plan
    weight = B.clone().requires_grad_()
    assert fast_path.way_of(plain, A, B, None) == fast_path.KERNEL
    assert fast_path.way_of(scaled, A, B, None) == fast_path.STEPS
    assert fast_path.way_of(plain, A, weight, None) == fast_path.NODE
    assert fast_path.way_of(casts, A, weight, None) == fast_path.STEPS_BELOW_NODE
    assert fast_path.way_of(plain, A, weight, None, torch.zeros(1)) == fast_path.STEPS_BELOW_NODE
    with Functions():
        assert fast_path.way_of(plain, A, B, None) == fast_path.OPERATOR
        assert fast_path.way_of(plain, A, weight, None) == fast_path.FUNCTION


def test_observed_products_take_the_operator():
    want = gs.qmatmul(A, B, "e4m3 : e5m10")
    with Dispatched() as mode:
        got = gs.qmatmul(A, B, "e4m3 : e5m10")
    assert "gemmsim.matmul.default" in mode.seen
    assert_bitwise_equal(got, want)


@pytest.mark.parametrize(
    "a, b",
    [
        (A.to(torch.bfloat16), B),
        (A[:0], B),
        (A[:, :0], B[:0]),
        (A.expand(2, 8, 8), B),
        (A.expand(2, 8, 8), B.expand(2, 8, 8)),
    ],
    ids=["dtypes", "empty", "no terms", "broadcast", "batch"],
)
@pytest.mark.parametrize("spec", ["e4m3 : e5m10", ":e5m10/sr8", "mxfp8_e4m3 : fp32"])
def test_the_fast_path_has_the_bits_of_the_operator(a, b, spec):
    got = gs.qmatmul(a, b, spec, seed=3)
    with Dispatched():
        want = gs.qmatmul(a, b, spec, seed=3)
    assert got.dtype == want.dtype
    assert_bitwise_equal(got, want)


def test_arguments_are_checked():
    with pytest.raises(gs.SeedError):
        gs.qmatmul(A, B, ":e5m10", row=False)
    with pytest.raises(gs.SeedError):
        gs.qmatmul(A, B, ":e5m10", seed=-1)
    with pytest.raises(gs.ShapeError):
        gs.qmatmul(A, B[:4], ":e5m10")
