"""Functions that are no matrix products are refused, with the evidence."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import gemmsim as gs

M, N, K = 4, 5, 24


def identify(f, **more):
    return gs.identify(f, M, N, K, **more)


class Drift:
    """Other results from some call on."""

    def __init__(self, calls):
        self.calls = calls

    def __call__(self, a, b):
        self.calls -= 1
        return (a @ b) * (2.0 if self.calls < 0 else 1.0)


REFUSED = {
    "an addend": (lambda a, b: a @ b + 1, "zeros give 1 in output [0, 0]"),
    "a factor": (lambda a, b: 2 * (a @ b), "1 times 1 at term 0, zeros elsewhere, gives 2"),
    "a factor for each term": (
        lambda a, b: a @ (b * torch.arange(1, K + 1)[:, None]),
        "at term 1 and zeros elsewhere give 2",
    ),
    "too few rows": (lambda a, b: (a @ b)[:2], "returned the shape (2, 5)"),
    "nothing": (lambda a, b: None, "returned None"),
    "truth values": (lambda a, b: (a @ b) > 0, "returned torch.bool"),
    "complex numbers": (lambda a, b: (a @ b) * 1j, "returned torch.complex64"),
    "no negative results": (lambda a, b: torch.relu(a @ b), "a sum of products is -1"),
    "squares": (lambda a, b: (a @ b) ** 2, "a sum of products is -1"),
    "absolute values": (lambda a, b: a.abs() @ b, "a sum of products is"),
    "another function": (lambda a, b: torch.sin(a) @ b, "give 0.841471"),
    "NaN": (lambda a, b: torch.nan * (a @ b), "zeros give nan"),
    "random results": (lambda a, b: torch.rand(M, N), "zeros give 0."),
    "it changes its operands": (lambda a, b: a.mul_(2) @ b, "changed its operands in call"),
    "another dtype now and then": (
        lambda a, b: a @ b if a.sum() == 0 else (a @ b).half(),
        "returned torch.float32 first and torch.float16",
    ),
    "it raises": (lambda a, b: a @ b.T, "raised for operands 4x24 and 24x5 of torch.float32: RuntimeError"),
    "scales of blocks": (lambda a, b: gs.qmatmul(a, b, "mxfp8_e4m3 : fp32"), "depends on neighbouring elements"),
    "an output that is another's": (lambda a, b: (a @ b).roll(1, 0), "gives 0, and no other power of two"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_product_is_refused_with_the_evidence(name):
    f, words = REFUSED[name]
    with pytest.raises(gs.ProbeError) as caught:
        identify(f)
    assert (
        words in str(caught.value)
        and "; allowed: " in str(caught.value)
        and "\n  Give " in str(caught.value) + "\n  Give "
    )


def test_a_state_is_told_with_both_numbers():
    calls = gs.reveal(lambda a, b: a @ b, K, M=M, N=N).calls
    for late in (12, 20, calls - 1, calls + 10):
        with pytest.raises(gs.ProbeError) as caught:
            identify(Drift(late))
        assert re.search(r"changes with time|gives? 2|is 2|of products is", str(caught.value)), caught.value


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"f": 3}, "f=3; allowed: a function"),
        ({"f": torch.mm, "M": 0}, "allowed: M, N and K of 1 or more"),
        ({"f": torch.mm, "at": (4, 64)}, "at=(4, 64)"),
        ({"f": torch.mm, "device": "cdua"}, "device='cdua': Expected one of"),
        ({"f": torch.mm, "device": "cuda:99"}, "allowed: a device that this PyTorch and this machine have"),
        ({"f": torch.mm, "dtype": "fp32"}, "allowed: torch dtypes of real numbers"),
        ({"f": torch.mm, "dtype": torch.complex64}, "allowed: torch dtypes of real numbers"),
    ],
)
def test_arguments_that_mean_nothing(arguments, words):
    with pytest.raises(gs.ProbeError, match=".") as caught:
        gs.identify(**arguments)
    assert words in str(caught.value)


def test_reveal_refuses_the_same():
    with pytest.raises(gs.ProbeError, match="zeros give 1"):
        gs.reveal(lambda a, b: a @ b + 1, 8)
    with pytest.raises(gs.ProbeError, match="f=None"):
        gs.reveal(None, 8)


def test_a_spec_that_means_nothing():
    with pytest.raises(gs.SpecError):
        gs.identify(torch.mm, 4, 4, 8, spec=":chunked(0, fp32)")


def test_other_keywords_are_told_the_right_one():
    with pytest.raises(TypeError, match="spec"):
        gs.identify(torch.mm, 4, 4, 8, acc="fp16")


def test_integers_are_multiplied_as_integers():
    found = gs.identify(torch.mm, 4, 4, 24, torch.int32)
    assert found.verified and found.text == ":int(32, wrap)"
    found = gs.identify(lambda a, b: np.matmul(a.numpy(), b.numpy()), 4, 4, 24, torch.int16)
    assert found.verified and found.text == ":int(16, wrap)"


def test_operands_of_little_range_are_compared_without_an_order():
    found = gs.identify(lambda a, b: gs.qmatmul(a, b, "e2m1 : fp32"), 8, 8, 24)
    assert found.found in ("spec", "nothing", "order") and (found.verified or found.no_tree)
