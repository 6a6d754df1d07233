"""``torch.set_flush_denormal``, which holds in the calling thread alone, changes no bit of what surrounds a product."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import gemmsim as gs

pytestmark = pytest.mark.skipif(
    not torch.set_flush_denormal(False), reason="this processor cannot flush subnormals to zero"
)
TINY = 2.0**-135
F = functional


def full(*shape):
    return torch.full(shape, TINY)


def emulated(function):
    def call(*operands):
        with gs.emulate(":fp32"):
            return function(*operands)

    return call


EYE = torch.eye(64)
CASES = {
    "qlinear": (lambda x, w, b: gs.qlinear(x, w, b, ":fp32"), (full(4096, 64), EYE, full(64))),
    "qlinear with a cast behind": (
        lambda x, w, b: gs.qlinear(x, w, b, gs.QAffineFormats("fp32", "fp32", output_quant="fp32/rtz")),
        (full(4096, 64), EYE, full(64)),
    ),
    "qmatmul with scaling": (
        lambda x, w: gs.qmatmul(x, w, gs.recipes.hopper_fp8()), (full(512, 64), EYE),
    ),
    "qconv2d": (
        lambda x, w, b: gs.qconv2d(x, w, b, spec=":fp32"), (full(2, 64, 16, 16), EYE[..., None, None], full(64)),
    ),
    "qconv_transpose2d": (
        lambda x, w, b: gs.qconv_transpose2d(x, w, b, spec=":fp32"),
        (full(2, 64, 16, 16), EYE[..., None, None].expand(64, 64, 2, 2), full(64)),
    ),
    "qlayernorm": (
        lambda x, w, b: gs.qlayernorm(x, (64,), w, b, spec="fp32"), (full(512, 64), torch.ones(64), full(64)),
    ),
    "qadd": (lambda x, y: gs.qadd(x, y, "fp32", "fp32"), (full(512, 64), full(512, 64))),
    "linear under emulation": (emulated(F.linear), (full(4096, 64), EYE, full(64))),
    "addmm under emulation": (emulated(torch.addmm), (full(64), full(4096, 64), EYE)),
    "conv2d under emulation": (emulated(F.conv2d), (full(2, 64, 16, 16), EYE[..., None, None], full(64))),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::gemmsim.FormatsWarning")
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_those_without_the_mode(name):
    function, operands = CASES[name]
    shape = function(*operands).shape
    incoming, found, threads = full(*shape), [], torch.get_num_threads()
    leaves = [t.clone().requires_grad_() for t in operands]
    try:
        for flush in (False, True):
            for count in (1, 2):
                torch.set_num_threads(count)
                torch.set_flush_denormal(flush)
                with torch.no_grad():
                    plain = function(*operands)
                y = function(*leaves)
                found.append((plain, y.detach(), *torch.autograd.grad(y, leaves, incoming)))
                assert gs.ops.subnormals.are_flushed() == flush  # put back
                torch.set_flush_denormal(False)
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


def test_the_mode_is_put_back_after_an_error():
    torch.set_flush_denormal(True)
    try:
        with pytest.raises(gs.ShapeError):
            gs.qmatmul(torch.ones(2, 3), torch.ones(2, 3), ":fp32")
        assert gs.ops.subnormals.are_flushed()
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("name", ["qlinear", "qconv_transpose2d"])
def test_operators_of_compiled_code_keep_subnormals(name):
    function, operands = CASES[name]
    if name == "qconv_transpose2d":  # whose bias compiled code adds by an operator of PyTorch's
        function, operands = (lambda x, w: CASES[name][0](x, w, None)), operands[:2]
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    want = compiled(*operands)
    torch.set_flush_denormal(True)
    try:
        got = compiled(*operands)
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(got, want) == (
        name != "qmatmul with scaling"
    )  # powers of two are multiplied around the operator
