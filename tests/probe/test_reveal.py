"""The order of additions of functions, from their results."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gemmsim as gs
from gemmsim.probe.shapes import Chain, Exactly, Lanes, Pairs, Runs, Slices, Steps, tree_of
from gemmsim.probe.sum_tree import EXACT

C = Chain()
#: Spec -> its order.
ORDERS = {
    ":fp32": C,
    ":bf16": C,
    ":e5m2": C,
    ":e4m3/rtz": C,
    ":fp16/ru": C,
    ":fp32/rd": C,
    ":bf16/ro": C,
    ":mul=fp16, add=fp32": C,
    ":chunked(7, fp32)": Runs(7, C, C),
    ":chunked(8, bf16, fp32)": Runs(8, C, C),
    ":chunked(8, fp16/rtz, fp32)": Runs(8, C, C),
    ":promote(e5m7/rtz, 5)": Runs(5, C, C),
    ":pairwise(fp16)": Pairs(1, C),
    ":pairwise(fp32/rtz, 3)": Pairs(3, C),
    ":pairwise(bf16, pairs=halves)": Pairs(1, C, halves=True),
    ":interleaved(5, fp32)": Lanes(5, 1, C, C),
    ":interleaved(4, fp16, combine=pairwise, width=2)": Lanes(4, 2, C, Pairs(1, C)),
    ":splitk(3, fp32, bf16)": Slices((3,), C, C),
    ":splitk([10, 30, 9], e6m9, fp32)": Slices((10, 30, 9), C, C),
    ":kahan(bf16)": C,
    ":chunked(8, two_sum(fp16), fp16)": Runs(8, Exactly(), C),
    ":chunked(9, fp16, two_sum(fp16))": Runs(9, C, Exactly()),
    ":fused(8, 20, a=bf16)": Steps(8),
    ":fused(8, exact, fp16, a=fp16)": Steps(8, EXACT),
    "bf16 : hw(hopper, wgmma, bf16)": Steps(16),
    "e4m3 : hw(hopper, wgmma, e4m3)": Steps(32),
    ":promote(hw(ampere, mma, fp16), 32)": Runs(32, Steps(8), C),
    ":hw(ada, mma, e4m3)": None,
    "e4m3 : hw(hopper, mma, e4m3)": Steps(32, "two blocks"),
}


def by_spec(text):
    return lambda a, b: gs.qmatmul(a, b, text)


@pytest.mark.parametrize("text", ORDERS)
@pytest.mark.parametrize("K", [64, 53])
def test_the_order_of_a_spec(text, K):
    found = gs.reveal(by_spec(text), K)
    assert found.tree is not None, found.no_tree
    if ORDERS[text] is not None:
        assert found.tree == tree_of(ORDERS[text], K)[0], found.text
    assert found.tree.to_dict()["K"] == K and found.to_dict()["order"] == found.text


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (3, 5)])
def test_rows_columns_and_single_outputs_are_asked(shape):
    found = gs.reveal(by_spec(":chunked(5, fp16)"), 23, M=shape[0], N=shape[1])
    assert found.tree == tree_of(Runs(5, C, C), 23)[0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_dtypes(dtype):
    found = gs.reveal(by_spec(":interleaved(2, fp32)"), 31, dtype)
    assert found.tree == tree_of(Lanes(2, 1, C, C), 31)[0] and found.dtype == str(dtype)[6:]


def test_a_permutation_is_found():
    accumulator = gs.acc.shuffled("bf16", 7)
    order = accumulator.order(40)
    tree = gs.reveal(by_spec(accumulator), 40).tree
    node, found = tree.root, []
    while node >= tree.K:
        node, last = sorted(tree.addends(node), key=lambda one: -tree.sizes[one])
        found.append(last)
    assert [*found[:-1], *sorted([found[-1], node])] == [*order[:1:-1], *sorted(order[:2])]


def test_each_class_of_outputs_has_its_own_order():
    def halves(a, b):
        left = gs.qmatmul(a, b[:, :3], ":fp32")
        return torch.cat([left, gs.qmatmul(a, b[:, 3:], ":pairwise(fp32)")], dim=1)

    left = gs.reveal(halves, 20, M=4, N=8)
    right = gs.reveal(halves, 20, M=4, N=8, at=(2, 5))
    assert left.tree == tree_of(C, 20)[0] and right.tree == tree_of(Pairs(1, C), 20)[0]
    assert left.classes == ("12 outputs, rows 0:4 and columns 0:3", "20 outputs, rows 0:4 and columns 3:8")
    assert "2 classes" in str(left)


def test_sums_that_lose_nothing_have_no_order():
    for text in (":exact(fp32)", ":two_sum(fp32)", ":neumaier(bf16)", "int8 : int(32)"):
        found = gs.reveal(by_spec(text), 24)
        assert found.tree is None and "no term is lost" in found.no_tree and "no order shown" in str(found)
        assert found.svg().startswith("<svg")


def test_numpy_functions_take_arrays():
    assert gs.reveal(np.matmul, 9, M=2, N=2).tree.K == 9
    loop = lambda a, b: np.cumsum(a.numpy()[:, :, None] * b.numpy()[None], axis=1)[:, -1]  # noqa: E731
    assert gs.reveal(loop, 17).tree == tree_of(C, 17)[0]


def test_one_term_and_two():
    assert gs.reveal(by_spec(":fp32"), 1).text == "0" and gs.reveal(by_spec(":fp16"), 2).text == "0:2"


def test_equal_arguments_give_equal_answers():
    assert gs.reveal(by_spec(":splitk(3, fp16, fp32)"), 40) == gs.reveal(by_spec(":splitk(3, fp16, fp32)"), 40)
