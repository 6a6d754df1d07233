"""What a strict audit proves: nothing native, nothing out of sight, and something at all."""

import pytest
import torch
import torch.utils.mkldnn
from torch import nn
from torch.nn import functional as F

import gemmsim as gs
from gemmsim.emulation import ConfigError, NativeGemmError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
X = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))

LIBRARY = torch.library.Library("strictly", "DEF")
LIBRARY.define("double(Tensor x) -> Tensor")
LIBRARY.impl("double", lambda x: x.mul(2), "CPU")
LIBRARY.define("multiply(Tensor x) -> Tensor")
LIBRARY.impl("multiply", lambda x: x.new_tensor(x.numpy() @ x.numpy().T), "CPU")


def dynamically_quantized():
    model = nn.Sequential(nn.Linear(16, 8))
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.float16)


OPAQUE = {
    "dynamic float16": (dynamically_quantized, "quantized.linear_dynamic_fp16"),
    "operator of others": (lambda: torch.ops.strictly.multiply, "strictly.multiply"),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_what_is_out_of_sight_is_no_proof(name):
    make, operator = OPAQUE[name]
    call = make()
    with pytest.raises(NativeGemmError, match=f"{operator}, an operator that an audit cannot inspect"):
        with gs.emulate("e4m3 : e5m10"), gs.audit(strict=True):
            call(X)
    with gs.emulate("e4m3 : e5m10"), gs.audit() as report:
        call(X)
    assert report.emulated_share == 0.0 and dict(report.opaque) == {operator: 1}


SPARSE = torch.eye(4).to_sparse()
NN = torch._C._nn
NATIVE = {
    "quantized LSTM": lambda: quantized(nn.LSTM)(torch.randn(3, 4, 16)),
    "quantized GRU": lambda: quantized(nn.GRU)(torch.randn(3, 4, 16)),
    "mkldnn": lambda: torch.utils.mkldnn.to_mkldnn(nn.Sequential(nn.Linear(16, 8)).eval())(X.to_mkldnn()),
    "smm": lambda: torch.smm(SPARSE, torch.ones(4, 4)),
    "hspmm": lambda: torch.hspmm(SPARSE, torch.ones(4, 4)),
    "slow_conv3d": lambda: NN.slow_conv3d(torch.ones(1, 1, 4, 4, 4), torch.ones(1, 1, 2, 2, 2), (2, 2, 2)),
    "thnn_conv2d": lambda: NN.thnn_conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2), (2, 2)),
    "slow_conv_transpose2d": lambda: NN.slow_conv_transpose2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2), (2, 2)),
    "slow_conv_dilated2d": lambda: NN.slow_conv_dilated2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2), (2, 2)),
}


def quantized(kind):
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(kind(16, 8)), {kind}, dtype=torch.qint8)


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.filterwarnings("ignore")
def test_kernels_of_pytorch_that_multiply_are_no_proof(name):
    with pytest.raises(NativeGemmError), gs.emulate("e4m3 : e5m10"), gs.audit(strict=True):
        F.linear(X, X)
        NATIVE[name]()


@pytest.mark.parametrize("named", ["strictly.double", "strictly.d*", ["other.*", "strictly.double"]])
def test_operators_that_are_named_pass(named):
    with gs.emulate(":bf16"), gs.audit(strict=True, without_products=named) as report:
        torch.ops.strictly.double(F.linear(X, X))
    assert report.emulated_share == 1.0
    net = nn.Linear(16, 4)
    with gs.emulate(":bf16"):
        assert len(gs.audit(net, X, strict=True, without_products=named)) == 2
        with pytest.raises(NativeGemmError, match=r"without_products='strictly.multiply'"):
            gs.audit(nn.Sequential(net, Opaque()), X, strict=True, without_products=named)


class Opaque(nn.Module):
    def forward(self, x):
        return torch.ops.strictly.multiply(x.detach())


def test_nothing_multiplied_is_no_proof():
    with pytest.raises(NativeGemmError, match="nothing was multiplied"), gs.audit(strict=True):
        pass
    with pytest.raises(NativeGemmError, match="nothing was multiplied"), gs.emulate(":bf16"):
        gs.audit(nn.ReLU(), X, strict=True)
    with gs.audit() as report:
        pass
    assert len(report) == 0 and str(report) == "No products."
    with pytest.raises(KeyError), gs.audit(strict=True):
        raise KeyError


@pytest.mark.parametrize("shapes", [((0, 3), (3, 2)), ((2, 0), (0, 2)), ((2, 3), (3, 0))])
def test_products_without_a_multiply_add_are_no_proof(shapes):
    a, b = map(torch.ones, shapes)
    with (
        pytest.raises(NativeGemmError, match=r"nothing was multiplied except products with a size of 0: 2;"),
        gs.audit(strict=True),
        gs.emulate(":bf16"),
    ):
        a @ b
        a @ b
    with gs.audit() as report, gs.emulate(":bf16"):
        a @ b
    assert str(report).endswith("1 product without multiply-adds because a size is 0 (1 emulated, 0 native).")
    with gs.audit(strict=True) as report, gs.emulate(":bf16"):
        a @ b
        torch.ones(1, 2) @ torch.ones(2, 1)
    assert len(report) == 2 and "2 products, 2 multiply-adds" in str(report)


def test_the_text_of_an_audit_says_how_to_use_it():
    assert repr(gs.audit()) == "<gemmsim.audit(): use it in a with statement; the name after 'as' is the report>"
    given = gs.audit(strict=True, without_products="mine.*")
    assert repr(given).startswith("<gemmsim.audit(strict=True, without_products=('mine.*',)):")
    assert (
        repr(gs.audit) == "<gemmsim.audit: audit(model, x), or with audit() as report; audit.dry_run(model, x, spec)>"
    )


def test_torchscript_is_refused_by_name_and_warned_of():
    script = torch.jit.script(nn.Linear(16, 8))
    script(X)  # its forward is cached
    with pytest.raises(NativeGemmError, match="aten.addmm"), gs.audit(strict=True):
        script(X)
    with pytest.warns(UserWarning, match="Linear is TorchScript: its products stay native") as told:
        with gs.emulate(":e5m9"):
            found = script(X)
            script(X)
    assert len([one for one in told if "TorchScript" in str(one.message)]) == 1 and told[0].filename == __file__
    assert torch.equal(found, script(X))
    with gs.emulate([("*", None)]):
        script(X)


def test_traces_and_scripts_of_emulated_models_are_refused():
    with (
        gs.emulate(":bf16"),
        pytest.raises(gs.UnsupportedSpec, match=r"linear under emulate, recorded by torch.jit.trace"),
    ):
        torch.jit.trace(nn.Linear(16, 8), X)
    net = gs.convert(nn.Linear(16, 8), ":bf16")
    for make in (lambda: torch.jit.trace(net, X), lambda: torch.jit.script(net)):
        with pytest.raises(ConfigError, match=r"torch.jit of a Linear that gemmsim.convert converted"):
            make()
    torch.jit.script(gs.emulation.undo(net))


def test_symbolic_traces_in_a_context_have_the_functions_of_the_program():
    def program(x):
        return F.linear(x, torch.ones(3, 16)) @ torch.ones(3, 2)

    with gs.emulate(":e5m4"):
        graph = torch.fx.symbolic_trace(program)
        assert torch.equal(graph(X), program(X))
    assert torch.equal(graph(X), program(X))


class Wrapped(torch.Tensor):
    """A tensor class with operators of its own."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def plain(value):
            return value.inner if isinstance(value, Wrapped) else value

        return func(*map(plain, args), **(kwargs or {}))


def test_tensor_classes_are_named():
    with gs.emulate(":bf16"), pytest.raises(NativeGemmError) as error, gs.audit(strict=True):
        torch.mm(X, Wrapped(torch.randn(16, 8)))
    text = str(error.value)
    assert "inside the operators of" in text and "Wrapped is a tensor class with its own operators" in text
    assert "Give it a spec" not in text


NESTED = {
    "linear": lambda t: F.linear(t, torch.ones(3, 4)),
    "bmm": lambda t: torch.bmm(t, t.transpose(1, 2)),
    "matmul": lambda t: torch.matmul(t, t.transpose(1, 2)),
    "attention": lambda t: F.scaled_dot_product_attention(*(_heads(t),) * 3),
    "softmax": lambda t: torch.bmm(torch.softmax(t, -1), t.transpose(1, 2)),
}


def _heads(t):
    return torch.nested.nested_tensor([one.view(-1, 2, 2) for one in t.unbind()]).transpose(1, 2).contiguous()


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("config", [None, ":bf16"])
@pytest.mark.filterwarnings("ignore")
def test_nested_tensors_are_audited(name, config):
    nested = torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(5, 4)])
    with gs.emulate(config):
        want = NESTED[name](nested)
        with gs.audit() as report:
            found = NESTED[name](nested)
    assert all(map(torch.equal, found.unbind(), want.unbind())) and len(report) >= 1
    assert sum(record.macs for record in report) > 0
