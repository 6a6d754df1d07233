"""What an audit sees: every product of a run, its place, role and arithmetic, and what it refuses when strict."""

from __future__ import annotations

import json
import threading

import pytest
import torch
from emulation.compiling import graphs
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as hooks

import gemmsim as gs
from gemmsim.emulation import Report

SPEC = "e4m3 : e5m10"


class Mixed(nn.Module):
    """Convolution, linear layers, products of activations."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.ReLU())
        self.left, self.right = nn.Linear(4, 6, bias=False), nn.Linear(4, 6)

    def forward(self, x):
        x = self.stem(x).mT
        return torch.softmax(self.left(x) @ self.right(x).mT, -1) @ x


def encoder():
    return nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, dropout=0.0)


def state():
    """What contexts change in PyTorch, and must put back."""
    known = (hooks._global_forward_pre_hooks, hooks._global_forward_hooks, hooks._global_forward_hooks_always_called)
    return [dict(one) for one in known], torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = state()
    yield
    assert state() == before


def test_records_of_a_native_model():
    report = gs.audit(Mixed(), torch.randn(2, 3, 5))
    places = [(r.module, r.op, r.role, r.shape) for r in report if r.role == "fprop"]
    assert places == [
        ("stem.0", "aten.convolution", "fprop", (1, 10, 9, 4)),
        ("left", "aten.mm", "fprop", (1, 10, 4, 6)),
        ("right", "aten.mm", "fprop", (1, 10, 4, 6)),
        ("", "aten.bmm", "fprop", (2, 5, 6, 5)),
        ("", "aten.bmm", "fprop", (2, 5, 5, 4)),
    ]
    assert all(r.spec == "native" and r.dtype == torch.float32 for r in report)
    backward = {(r.module, r.role) for r in report if r.role != "fprop"}
    pairs = {(module, role) for module in ("left", "right", "") for role in ("dgrad", "wgrad")}
    assert backward == pairs | {("stem.0", "wgrad")}
    assert len(report.native) == len(report) == 14 and not report.emulated and report.emulated_share == 0
    assert report.total_macs == sum(r.macs for r in report)


@pytest.mark.parametrize("audit_first", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_both_orders_and_both_times_of_the_backward_pass(audit_first, inside):
    model, x = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), torch.randn(5, 4, requires_grad=True)
    rules = [("0", SPEC), ("2", None)]
    if audit_first:
        with gs.audit() as report:
            with gs.emulate(rules):
                loss = model(x).sum()
                if inside:
                    loss.backward()
            if not inside:
                loss.backward()
    else:
        with gs.emulate(rules), gs.audit() as report:
            model(x).sum().backward()
    found = {(r.module, r.role, r.spec) for r in report}
    text = str(gs.GemmSpec.of(SPEC))
    spec = gs.GemmSpec.of(text).key
    of_0 = {r.spec for r in report if r.module == "0"}
    assert "native" not in of_0 and spec in of_0
    assert {(module, role) for module, role, _ in found} == {(m, r) for m in "02" for r in ("fprop", "dgrad", "wgrad")}
    assert {r.spec for r in report if r.module == "2"} == {"native"} and len(report) == 6


def test_a_model_gives_the_report_of_the_context_and_keeps_its_gradients():
    model, x = Mixed(), torch.randn(2, 3, 5)
    model.left.weight.grad = kept = torch.ones_like(model.left.weight)
    with gs.emulate(SPEC):
        found = gs.audit(model, x)
    assert model.left.weight.grad is kept and torch.equal(kept, torch.ones_like(kept))
    assert all(p.grad is None for p in (model.right.weight, model.right.bias))
    with gs.emulate(SPEC), gs.audit() as report:
        model(x).sum().backward()
    assert [r.to_dict() for r in found] == [r.to_dict() for r in report]


def test_outputs_of_any_kind_are_differentiated():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x, scale=1.0):
            return {"a": self.a(x) * scale, "rest": [self.b(x), torch.arange(3), None]}

    report = gs.audit(Two(), torch.randn(2, 3), scale=2.0)
    assert {(r.module, r.role) for r in report} == {(m, r) for m in "ab" for r in ("fprop", "wgrad")}


def test_values_are_counted_on_request():
    x = torch.tensor([[0.0, float("nan")], [3e38, 3e38], [0.0, 0.0]])
    with gs.audit(values=True) as report:
        torch.mm(x, torch.tensor([[1.0], [1.0]]))
    (record,) = report
    assert (record.nans, record.overflows, record.zeros) == (1, 1, 1)
    assert "overflow" in str(report)
    assert gs.audit(nn.Linear(2, 2), x).records[0].nans is None


def test_strict_names_what_escapes_before_it_runs():
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    ran = []
    model[1].register_forward_hook(lambda *_: ran.append(1))
    with pytest.raises(gs.NativeGemmError) as caught, gs.emulate([("0", SPEC), ("1", None)]):
        gs.audit(model, torch.randn(5, 4), strict=True)
    text = str(caught.value)
    assert "aten.addmm" in text and "1 x 5 x 6 x 3" in text and "'1'" in text and "fprop" in text and not ran
    only_forward = gs.emulation.Rule("*", "*", {"fprop": SPEC})
    with pytest.raises(gs.NativeGemmError, match="wgrad|dgrad"), gs.emulate([only_forward]):
        gs.audit(model, torch.randn(5, 4), strict=True)
    with gs.emulate(SPEC):
        assert len(gs.audit(model, torch.randn(5, 4), strict=True)) == 5


def test_integers_pass_and_linear_algebra_does_not():
    numbers = torch.eye(3, dtype=torch.int64)
    with gs.audit(strict=True) as report:
        numbers @ numbers
    assert [r.spec for r in report] == ["integer"] and report.emulated_share == 1 and not report.native
    with gs.audit() as report:
        torch.linalg.inv(torch.eye(3))
        torch.linalg.eigh(torch.eye(3))
    assert len(report.algebra) == 2 and len(report) == 0 and "inear algebra" in str(report)
    with pytest.raises(gs.NativeGemmError, match="linear algebra"), gs.audit(strict=True):
        torch.linalg.inv(torch.eye(3))


def test_complex_products_are_native():
    z = torch.ones(2, 2, dtype=torch.complex64)
    with gs.emulate(SPEC), gs.audit() as report:
        z @ z
    assert [r.spec for r in report] == ["native"]


def test_sparse_products_are_native():
    sparse = torch.eye(4).to_sparse()
    with gs.emulate(SPEC), gs.audit(values=True) as report:
        torch.sparse.mm(sparse, torch.ones(4, 2))
        sparse @ torch.ones(4, 2)
        torch.sparse.mm(sparse, sparse)
    assert [(r.spec, r.shape) for r in report] == [("native", (1, 4, 4, 2))] * 2 + [("native", (1, 4, 4, 4))]


@pytest.mark.filterwarnings("ignore")
def test_higher_order_operators_are_listed_and_looked_into():
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 2, 16, 8)
    with gs.audit() as report:
        flex_attention(q, q, q)
        torch.cond(torch.tensor(True), lambda x: x @ x, lambda x: x + 1, (torch.ones(3, 3),))
    assert [r.shape for r in report][-1] == (1, 3, 3, 3) and {"flex_attention", "cond"} <= set(report.opaque)
    assert report.total_macs >= 27 + 2 * 2 * 16 * 16 * 8


def test_operators_of_others_are_listed():
    @torch.library.custom_op("audited::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    with gs.audit() as report:
        twice(torch.eye(2))
        twice(torch.eye(2))
    assert report.opaque == {"audited.twice": 2} and len(report) == 0 and "audited.twice x2" in str(report)


def test_json_there_and_back(tmp_path):
    with gs.emulate([("left", SPEC), ("*", None)]):
        report = gs.audit(Mixed(), torch.randn(2, 3, 5), values=True)
    report.save(tmp_path / "report.json")
    data = json.loads((tmp_path / "report.json").read_text())
    again = Report.from_dict(data)
    assert again == report and str(again) == str(report) and data["total_macs"] == report.total_macs


def test_the_table_groups_equal_products():
    model = nn.Linear(4, 4)
    with gs.audit() as report:
        for _ in range(3):
            model(torch.randn(2, 4))
    lines = str(report).splitlines()
    assert len(lines) == 3 and lines[0].split()[0] == "module" and lines[1].split()[-2:] == ["3", "96"]
    assert "3 products, 96 multiply-adds: 0 emulated, 3 native" in lines[2]
    with gs.audit() as nothing:
        pass
    assert "No products" in str(nothing)


def test_a_report_for_each_entry_and_audits_in_audits():
    context = gs.audit()
    with context as first:
        torch.eye(2) @ torch.eye(2)
        with context as second:
            torch.eye(2) @ torch.eye(2)
    assert len(first) == 2 and len(second) == 1


def test_exceptions_put_everything_back():
    class Raises(nn.Module):
        def forward(self, x):
            torch.eye(2) @ torch.eye(2)
            raise KeyError("mine")

    model = nn.Sequential(Raises())
    with gs.audit() as report:
        for _ in range(2):
            with pytest.raises(KeyError):
                model(torch.eye(2))
        torch.eye(2) @ torch.eye(2)
    assert [r.module for r in report] == ["0", "0", ""]
    with pytest.raises(KeyError):
        gs.audit(model, torch.eye(2))


def test_another_thread_is_not_seen_and_does_not_disturb():
    model, go, done = nn.Sequential(nn.Linear(3, 3)), threading.Event(), threading.Event()

    def work():
        go.wait(10)
        model(torch.ones(1, 3)).sum().backward()
        done.set()

    thread = threading.Thread(target=work)
    thread.start()

    class Waits(nn.Module):
        def forward(self, x):
            go.set()
            done.wait(10)
            return x @ x

    with gs.audit() as report:
        nn.Sequential(Waits())(torch.eye(3))
    thread.join()
    assert [r.module for r in report] == ["0"]


def test_an_audit_of_its_own_in_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(gs.audit(nn.Sequential(nn.Linear(3, 3)), torch.ones(1, 3))))
    thread.start()
    thread.join()
    assert [(r.module, r.role) for r in found[0]] == [("0", "fprop"), ("0", "wgrad")]


def test_fused_kernels_show_their_products():
    layer = encoder().eval()
    x = torch.randn(2, 5, 16)
    with torch.inference_mode(), gs.audit() as fast:
        layer(x)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with gs.audit() as slow, torch.no_grad():
            layer(x)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    assert fast.total_macs == slow.total_macs and len(fast.native) == 6
    assert all(r.op.startswith("aten.") and "fwd" not in r.op for r in fast)
    q = torch.randn(1, 2, 5, 4, requires_grad=True)
    with gs.audit() as report:
        F.scaled_dot_product_attention(q, q, q).sum().backward()
    assert [r.shape for r in report][:2] == [(2, 5, 4, 5), (2, 5, 5, 4)] and not report.opaque
    lstm = nn.LSTM(3, 4)
    report = gs.audit(lstm, torch.randn(5, 2, 3, requires_grad=True))
    assert report.total_macs == 3 * 10 * (3 + 4) * 16


def test_inference_mode_shows_the_leaves():
    with torch.inference_mode(), gs.audit() as report:
        F.linear(torch.randn(2, 3), torch.randn(4, 3))
        torch.randn(2, 2, 3) @ torch.randn(2, 3, 3)
        torch.einsum("ij,jk->ik", torch.eye(2), torch.eye(2))
    assert [r.op for r in report] == ["aten.mm", "aten.bmm", "aten.bmm"]


def test_wrong_arguments():
    with pytest.raises(TypeError, match="module"):
        gs.audit(3)
    with pytest.raises(TypeError, match="module"):
        gs.audit(x=torch.eye(2))


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.long)])
def test_compiled_code_stays_compiled_and_is_seen(backend):
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    compiled, x = torch.compile(model, backend=backend, fullgraph=True), torch.randn(4, 8, requires_grad=True)
    wanted = compiled(x)
    with gs.audit() as report:
        assert torch.equal(compiled(x), wanted)
    assert [r.spec for r in report] == ["native"] * 2
    with gs.emulate([("0", SPEC), ("2", ":bf16")]), gs.audit(strict=True) as report:
        compiled(x).sum().backward()
    pairs = {(r.module, r.role) for r in report}
    assert pairs == {(m, r) for m in "02" for r in ("fprop", "dgrad", "wgrad")} and len(report.emulated) == 6
    before = graphs()
    with gs.emulate([("0", SPEC), ("2", ":bf16")]), gs.audit():
        compiled(x).sum().backward()
    assert graphs() == before


def test_products_of_block_format_tensors_are_seen_with_their_specs():
    a = gs.mx.to_mx(torch.randn(4, 64), "mxfp8_e4m3")
    b = gs.mx.to_mx(torch.randn(64, 8), "mxfp8_e4m3", dim=0)
    with gs.audit(strict=True) as report:
        a @ b
        F.linear(a, b.t(), torch.randn(8))
        torch.addmm(torch.randn(8), a, b)
        torch.mv(a, gs.mx.to_mx(torch.randn(64), "mxfp8_e4m3"))
    assert [r.op for r in report] == ["gemmsim.mx_mm"] * 3 + ["gemmsim.matmul"]
    assert {r.spec for r in report if r.op == "gemmsim.mx_mm"} == {gs.GemmSpec.of("mxfp8_e4m3 * mxfp8_e4m3 : fp32").key}
    assert {r.shape for r in report} == {(1, 4, 64, 8), (1, 4, 64, 1)}
    report = gs.audit(nn.Sequential(gs.mx.MXLinear(64, 32)), torch.randn(4, 64, requires_grad=True), strict=True)
    assert [(r.module, r.role) for r in report] == [("0", "fprop"), ("0", "dgrad"), ("0", "wgrad")]


def test_layers_of_this_package_are_emulated_products():
    model = nn.Sequential(gs.nn.QLinear(4, 6, spec="e4m3 : e5m10"), gs.nn.QLinear(6, 3, spec="e4m3 : e5m10"))
    report = gs.audit(model, torch.randn(5, 4), strict=True)
    assert [(r.module, r.role) for r in report] == [
        *(("0", "fprop"), ("1", "fprop"), ("1", "dgrad"), ("1", "wgrad"), ("0", "wgrad"))
    ]
