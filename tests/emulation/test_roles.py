"""Roles of PyTorch's own backward products: the order inside its nodes, which each version of PyTorch may change."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import gemmsim as gs


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


#: name -> function, operands, and (role, sum over) of the backward products: dgrad sums over N, wgrad over M.
NODES = {
    "mm": (torch.mm, [(2, 3), (3, 5)], {("dgrad", 5), ("wgrad", 2)}),
    "bmm": (torch.bmm, [(4, 2, 3), (4, 3, 5)], {("dgrad", 5), ("wgrad", 2)}),
    "linear": (F.linear, [(2, 3), (5, 3)], {("dgrad", 5), ("wgrad", 2)}),
    "linear with bias": (F.linear, [(2, 3), (5, 3), (5,)], {("dgrad", 5), ("wgrad", 2)}),
    "addmm": (torch.addmm, [(2, 5), (2, 3), (3, 5)], {("dgrad", 5), ("wgrad", 2)}),
    "baddbmm": (torch.baddbmm, [(4, 2, 5), (4, 2, 3), (4, 3, 5)], {("dgrad", 5), ("wgrad", 2)}),
    "addbmm": (torch.addbmm, [(2, 5), (4, 2, 3), (4, 3, 5)], {("dgrad", 5), ("wgrad", 2)}),
    "mv": (torch.mv, [(2, 3), (3,)], {("wgrad", 2)}),
    "addmv": (torch.addmv, [(2,), (2, 3), (3,)], {("wgrad", 2)}),
    "cdist": (lambda a, b: torch.cdist(a, b, compute_mode="use_mm_for_euclid_dist"), [(6, 3), (7, 3)],
              {("dgrad", 7), ("wgrad", 6)}),
    "conv": (F.conv1d, [(2, 3, 9), (5, 3, 3)], {("dgrad", 5), ("wgrad", 14)}),
}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_backward_products_have_the_role_of_what_they_sum_over(name):
    function, shapes, wanted = NODES[name]
    with gs.audit() as report:
        function(*(leaf(*shape) for shape in shapes)).sum().backward()
    assert {(r.role, r.shape[2]) for r in report if r.role != "fprop"} == wanted
    assert [r.role for r in report].count("fprop") == 1


@pytest.mark.parametrize("name", ["mm", "bmm", "linear", "linear with bias", "addmm", "baddbmm"])
@pytest.mark.parametrize("asked", ["dgrad", "wgrad"])
def test_the_order_in_a_node_says_it_where_sizes_are_equal(name, asked):
    """Square operands; what is multiplied tells which product it was: dgrad the second operand, wgrad the first."""
    function, shapes, _ = NODES[name]
    operands = [torch.randn(*(4 for _ in shape)) for shape in shapes]
    at = len(shapes) - 2 if "linear" not in name else 0
    first, second = operands[at], operands[at + 1]
    first.requires_grad_(asked == "dgrad")
    second.requires_grad_(asked == "wgrad")
    with gs.audit() as report:
        function(*operands).sum().backward()
    assert [r.role for r in report] == ["fprop", asked]


@pytest.mark.parametrize("name", ["mm", "bmm", "linear", "linear with bias", "baddbmm"])
def test_both_orders_of_square_products(name):
    """With the forward product unknown the order alone must say it: found by operands of distinct values."""
    function, shapes, _ = NODES[name]
    operands = [torch.full([4] * len(shape), 2.0 + i, requires_grad=True) for i, shape in enumerate(shapes)]
    at = len(shapes) - 2 if "linear" not in name else 0
    out = function(*operands).sum()
    first, second = float(operands[at].flatten()[0].detach()), float(operands[at + 1].flatten()[0].detach())
    with _Values() as seen:
        out.backward()
    for role, values in seen.found:
        assert (second if role == "dgrad" else first) in values


class _Values(gs.emulation.Recorder):
    """Roles and first values of the operands of backward products."""

    def __init__(self):
        super().__init__()
        self.found = []

    def before(self, found):
        leaf = found.leaf
        self.found.append((found.role, {float(leaf.a.flatten()[0]), float(leaf.b.flatten()[0])}))


def test_groups_of_rows():
    """The weight's gradient comes first, and is a product of two matrices whose sum is cut into groups."""
    x, w = (torch.randn(*shape, dtype=torch.bfloat16, requires_grad=True) for shape in ((16, 8), (2, 8, 32)))
    ends = torch.tensor([4, 16], dtype=torch.int32)
    with gs.audit() as report:
        torch._grouped_mm(x, w, offs=ends).float().sum().backward()
    assert [(r.role, r.shape) for r in report] == [
        ("fprop", (1, 16, 8, 32)), ("wgrad", (1, 8, 16, 32)), ("dgrad", (1, 16, 32, 8)),
    ]  # fmt: skip
    with gs.audit() as report:
        torch._grouped_mm(x.detach(), w, offs=ends).float().sum().backward()
    assert [r.role for r in report] == ["fprop", "wgrad"]


def test_a_gradient_of_one_operand_asked_of_the_engine():
    """The node has edges for both, and computes one."""
    x, w = leaf(2, 3), leaf(5, 3)
    for wanted, role in ((x, "dgrad"), (w, "wgrad")):
        with gs.audit() as report:
            torch.autograd.grad(F.linear(x, w).sum(), wanted)
        assert [r.role for r in report] == ["fprop", role]


@pytest.mark.parametrize("config", [None, "e4m3 : e5m10", [("0", ":bf16"), ("2", None)]])
@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_is_a_forward_pass(reentrant, config):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 5))
    x = leaf(2, 3)
    with gs.emulate(config), gs.audit() as report:
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    roles = [(r.module, r.role) for r in report]
    assert {r.spec == "native" for r in report if r.module == "0"} == {config is None}
    assert roles.count(("0", "fprop")) == 2 and roles.count(("0", "wgrad")) == 1 == roles.count(("2", "dgrad"))
    with gs.audit() as report:  # of functions, without a module to tell it
        checkpoint(lambda a: F.linear(a.tanh(), model[0].weight).sin(), x, use_reentrant=reentrant).sum().backward()
    assert [r.role for r in report].count("fprop") == 2


def test_a_gradient_inside_a_forward_pass_is_none():
    class Force(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(3, 4)

        def forward(self, x):
            return torch.autograd.grad(self.inner(x).sin().sum(), x, create_graph=True)[0]

    with gs.audit() as report:
        Force()(leaf(2, 3))
    assert [(r.module, r.role) for r in report] == [("inner", "fprop"), ("inner", "dgrad")]


@pytest.mark.parametrize("native", ["fprop", "dgrad", "wgrad"])
def test_a_role_without_a_spec_is_native(native):
    config = gs.emulation.Config(
        [gs.emulation.Rule("*", "*", {r: ":bf16" for r in ("fprop", "dgrad", "wgrad") if r != native})]
    )
    with gs.emulate(config), gs.audit() as report:
        F.linear(leaf(4, 4), leaf(4, 4)).sum().backward()
    assert [(r.role, r.spec == "native") for r in report] == [(r, r == native) for r in ("fprop", "dgrad", "wgrad")]


def test_backward_methods_of_others_do_not_tell():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad @ w.mT, x.mT @ grad

    with gs.audit() as report:
        Twice.apply(leaf(2, 3), leaf(3, 5)).sum().backward()
    assert [r.role for r in report] == ["fprop", "backward", "backward"]
