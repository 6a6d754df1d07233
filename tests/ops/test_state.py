"""What ran: ``last_backend`` and ``explain``; and that using formats does not load the operators."""

from __future__ import annotations

import threading

import torch
from support.fork import run_forked

import gemmsim as gs


def test_last_backend_names_operator_spec_and_plan():
    a, b = torch.randn(4, 5), torch.randn(5, 6)
    gs.qmatmul(a, b, "bf16 : fp16")
    record = gs.last_backend()
    assert (record.op, record.backend, record.spec) == ("matmul", "cpu", "e8m7 : e5m10")
    assert "cpu/" in record.plan and record.spec in str(record)
    gs.quantize(a, "e4m3/rtz")
    assert (gs.last_backend().op, gs.last_backend().spec) == ("quantize", "e4m3/rtz")
    gs.qmatmul(a[:0], b, ":e5m10")
    assert "no elements" in gs.last_backend().plan


def test_last_backend_tells_when_pytorch_computed():
    x, w = torch.randn(4, 5, requires_grad=True), torch.randn(6, 5)
    gs.qlinear(x, w, None, gs.QAffineFormats(bwd_mac="e5m10"))
    assert gs.last_backend().backend == "torch"


def test_last_backend_belongs_to_the_thread():
    gs.quantize(torch.ones(3), "e4m3")
    seen = []
    thread = threading.Thread(target=lambda: seen.append(gs.last_backend()))
    thread.start()
    thread.join()
    assert seen == [None] and gs.last_backend() is not None


def test_last_backend_of_a_batched_stochastic_call_is_the_spec_that_was_asked():
    gs.qmatmul(torch.randn(2, 4, 5), torch.randn(5, 6), "e4m3/sr8 : e5m10", seed=1)
    assert gs.last_backend().spec == "e4m3/sr8 : e5m10"
    gs.qmatmul(torch.randn(4, 5, requires_grad=True), torch.randn(5, 6), "e4m3 : e5m10")
    assert gs.last_backend().spec == "e4m3 : e5m10"


def test_explain_says_what_and_where():
    text = gs.explain("e4m3 : e5m10/sr8")
    assert "e4m3" in text and "8 random bits" in text and "cpu: yes" in text
    refused = gs.explain(":sequential(e5m10, init=c_first)")
    assert "cpu: " in refused
    formats = gs.explain(gs.QAffineFormats("e5m10", weight_quant="e4m3"))
    assert "fprop" in formats and "PyTorch's own" in formats and "weight_quant='e4m3'" in formats


def test_the_operators_are_registered_when_first_used_and_no_sooner():
    code = """
import torch, gemmsim as gs
registered = lambda: hasattr(torch.ops.gemmsim, "matmul")
gs.formats.parse("e4m3"), gs.GemmSpec.parse("e4m3 : e5m10"), gs.acc.sequential("e5m10")
assert not registered()
import gemmsim.backends.cpu.shared_library as library
gs.QAffineFormats("e5m10")
assert not registered()
gs.qmatmul
assert registered() and library._loaded is None
gs.quantize(torch.ones(1), "e4m3")
assert library._loaded is not None
"""
    done = run_forked(code)
    assert done.returncode == 0, done.stderr
