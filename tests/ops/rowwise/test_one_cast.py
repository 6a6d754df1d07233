"""One cast for every step: ``spec="e5m10"`` wherever formats of steps are taken."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim import nn as qnn

STEPS = ("fwd_acc", "fwd_mul", "fwd_div", "fwd_sqrt", "bwd_acc", "bwd_mul", "bwd_div")
SPELLED_OUT = {
    "softmax": gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10", bwd_add="e5m10", bwd_mul="e5m10"),
    "norm": gs.QLayerNormFormats(**dict.fromkeys(STEPS, "e5m10")),
    "gate": gs.QGELUFormats("e5m10", "e5m10", "e5m10", "e5m10"),
}
OPERATIONS = {
    "qsoftmax": ("softmax", lambda x, f: gs.qsoftmax(x, -1, f)),
    "qlayernorm": ("norm", lambda x, f: gs.qlayernorm(x, [12], spec=f)),
    "qrmsnorm": ("norm", lambda x, f: gs.qrmsnorm(x, [12], spec=f)),
    "qgroupnorm": ("norm", lambda x, f: gs.qgroupnorm(x, 2, spec=f)),
    "qgelu": ("gate", gs.qgelu),
    "qsilu": ("gate", gs.qsilu),
    "QSoftmax": ("softmax", lambda x, f: qnn.QSoftmax(-1, spec=f)(x)),
    "QLayerNorm": ("norm", lambda x, f: qnn.QLayerNorm(12, spec=f)(x)),
    "QGELU": ("gate", lambda x, f: qnn.QGELU(spec=f)(x)),
}


def derived(call, x, formats):
    leaf = x.clone().requires_grad_()
    y = call(leaf, formats)
    y.sin().sum().backward()
    return y.detach(), leaf.grad


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_name_is_that_cast_at_every_step(name):
    kind, call = OPERATIONS[name]
    x = torch.randn(3, 4, 12, generator=torch.Generator().manual_seed(7))
    for formats in ("e5m10", gs.formats.FP16):
        for got, want in zip(derived(call, x, formats), derived(call, x, SPELLED_OUT[kind]), strict=True):
            assert_bitwise_equal(got, want)


@pytest.mark.parametrize("name", ["qsoftmax", "qlayernorm", "qgelu"])
def test_a_name_compiles_whole(name):
    call = OPERATIONS[name][1]
    x = torch.randn(3, 4, 12, generator=torch.Generator().manual_seed(8))
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: call(x, "e5m10/rtz"), fullgraph=True, backend="aot_eager")
    assert_bitwise_equal(compiled(x), call(x, "e5m10/rtz"))


@pytest.mark.parametrize("formats", [["e5m10"], 3, "e5m10x", ":e5m10", gs.QAttentionFormats()], ids=repr)
@pytest.mark.parametrize("name", OPERATIONS)
def test_anything_else_is_refused_by_name(name, formats):
    with pytest.raises(gs.FormatError, match="allowed"):
        OPERATIONS[name][1](torch.randn(3, 4, 12), formats)


def test_attention_wants_its_parts_named():
    x = torch.randn(2, 4, 8)
    with pytest.raises(gs.FormatError, match="QAttentionFormats"):
        gs.qattention(x, x, x, spec=":e5m10")
    named = gs.QAttentionFormats(":e5m10", "e5m10", ":e5m10")
    assert named == gs.QAttentionFormats(":e5m10", SPELLED_OUT["softmax"], ":e5m10")
    assert torch.isfinite(gs.qattention(x, x, x, spec=named)).all()
