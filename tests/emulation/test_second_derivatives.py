"""Derivatives of gradients that are PyTorch's own, and typed errors where there is none."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional as F

import gemmsim as gs

FORWARD = [("*", {"fprop": ":fp64"})]
torch_double = {"dtype": torch.float64}
CALLS = {
    "linear": (nn.Linear(6, 3, **torch_double), (4, 6)),
    "linear of three dimensions": (nn.Linear(6, 3, **torch_double), (2, 4, 6)),
    "linear without bias": (nn.Linear(6, 3, bias=False, **torch_double), (4, 6)),
    "conv": (nn.Conv2d(2, 4, 3, padding=1, groups=2, **torch_double), (2, 2, 5, 4)),
    "conv_transpose": (nn.ConvTranspose1d(2, 3, 2, stride=2, **torch_double), (2, 2, 5)),
}


def derivatives(name, context):
    """First and second derivatives of everything by everything."""
    net, shape = CALLS[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), **torch_double).requires_grad_()
    by = [x, *net.parameters()]
    with context:
        y = net(x)
    first = torch.autograd.grad(y.sin().sum(), by, create_graph=True)
    return [*first, *torch.autograd.grad(sum(g.square().sum() for g in first), by)]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("watch", [nullcontext, gs.audit], ids=["plain", "audited"])
def test_second_derivatives_where_gradients_are_pytorchs(name, watch):
    # Sums of at most 54 products, in another order twice: some units of float64 at the largest term.
    for ours, theirs in zip(
        derivatives(name, _both(gs.emulate(FORWARD), watch)), derivatives(name, nullcontext()), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


class _both:
    def __init__(self, emulation, watch):
        self.contexts = (emulation, watch())

    def __enter__(self):
        for context in self.contexts:
            context.__enter__()

    def __exit__(self, *error):
        for context in reversed(self.contexts):
            context.__exit__(*error)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "config", [":fp64", [("*", {"fprop": "bf16 : fp64"})], [("*", {"fprop": ":fp64", "dgrad": ":fp64"})]]
)
def test_other_second_derivatives_are_refused_in_words_of_what_was_called(name, config):
    with pytest.raises(gs.GradError, match=r"derivative of its gradient.*\n.*a rule with None in emulate") as error:
        derivatives(name, gs.emulate(config))
    assert "formats=None" not in str(error.value)


def test_shared_and_repeated_operands():
    x = torch.randn(3, 4, 5, **torch_double).requires_grad_()
    w = torch.randn(5, 4, **torch_double).requires_grad_()

    def second(product):
        out = product(product(x, w), x)
        g = torch.autograd.grad(out.sin().sum(), [x, w], create_graph=True)
        return torch.autograd.grad(sum(t.square().sum() for t in g), [x, w])

    formats = gs.QAffineFormats(fprop=":fp64")
    ours = second(lambda a, b: gs.qmatmul(a, b, formats))
    torch.testing.assert_close(ours, second(torch.matmul), rtol=1e-11, atol=1e-11)


MODES = {
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (torch.ones_like(x),)),
    "jacfwd": lambda f, x: torch.func.jacfwd(f)(x),
    "hessian": lambda f, x: torch.func.hessian(lambda t: f(t).sum())(x),
    "linearize": lambda f, x: torch.func.linearize(f, x),
    "vmap": lambda f, x: torch.func.jvp(torch.func.vmap(lambda row: f(row[None])), (x,), (torch.ones_like(x),)),
}
FUNCTIONS = {
    "linear": lambda x: F.linear(x, torch.ones(3, 8)),
    "conv": lambda x: F.conv1d(x[None], torch.ones(2, x.shape[0], 3)),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
}
OURS = {
    "qmatmul": lambda x: gs.qmatmul(x, x.mT, ":bf16"),
    "qconv1d": lambda x: gs.qconv1d(x[None], torch.ones(2, x.shape[0], 3), spec=":bf16"),
    "quantize": lambda x: gs.quantize(x, "bf16"),
    "qsoftmax": lambda x: gs.qsoftmax(x, -1, "bf16"),
    "qtanh": lambda x: gs.qtanh(x, "bf16", "bf16"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_forward_mode_is_refused_under_emulation(function, mode):
    with gs.emulate(":bf16"), pytest.raises(gs.GradError, match="under emulate: a derivative in forward mode"):
        MODES[mode](FUNCTIONS[function], torch.randn(4, 8))


@pytest.mark.parametrize("mode", ["jvp", "jacfwd"])
@pytest.mark.parametrize("function", OURS)
def test_forward_mode_is_refused_by_functions(function, mode):
    with pytest.raises(gs.GradError, match=f"{function}.*: a derivative in forward mode"):
        MODES[mode](OURS[function], torch.randn(4, 8))


@pytest.mark.parametrize("function", OURS)
def test_tangents_are_not_lost(function):
    x = torch.randn(4, 8)
    with forward_ad.dual_level():
        with pytest.raises(gs.GradError, match="forward mode"):
            OURS[function](forward_ad.make_dual(x, x))
        assert torch.equal(OURS[function](x), OURS[function](x.clone())), "tensors without a tangent are ordinary"


X, W = (torch.randn(shape, generator=torch.Generator().manual_seed(3)) for shape in ((3, 4), (4, 4)))
TWICE = {
    "jacobian of a jacobian": lambda f: torch.func.jacrev(torch.func.jacrev(lambda x: f(x, W).square().sum()))(X),
    "penalty of a product with a vector": lambda f: torch.func.grad(
        lambda w: torch.func.vjp(lambda x: f(x, w), X)[1](torch.ones(3, 4))[0].square().sum()
    )(W),
    "penalty of a jacobian": lambda f: torch.func.grad(
        lambda w: torch.func.jacrev(lambda x: f(x, w))(X).square().sum()
    )(W),
}
BETWEEN = {
    "linear": lambda x, w: F.linear(x, w),
    "matmul": lambda x, w: x @ w,
    "mv": lambda x, w: torch.stack([w.mv(row) for row in x]),
    "conv": lambda x, w: F.conv1d(x[None], w[:2, :3, None].expand(2, 3, 2)),
}


@pytest.mark.parametrize("call", BETWEEN)
@pytest.mark.parametrize("how", TWICE)
@pytest.mark.parametrize("config", [":fp32", ":bf16/sr", [("*", {"fprop": "e4m3 : fp32"})]], ids=str)
def test_second_derivatives_of_transforms_are_no_zeros(config, how, call):
    if how == "jacobian of a jacobian" and isinstance(config, list):
        pytest.skip("the weight is a constant, and the input's second derivative does not pass through it")
    if call == "conv" and "vector" in how:
        pytest.skip("its result has another shape")
    with gs.emulate(config), pytest.raises(gs.GradError, match="derivative of its gradient"):
        TWICE[how](BETWEEN[call])


@pytest.mark.parametrize("call", [name for name in BETWEEN if name != "conv"])
@pytest.mark.parametrize("how", TWICE)
def test_second_derivatives_of_transforms_where_gradients_are_pytorchs(how, call):
    with gs.emulate([("*", {"fprop": ":fp32"})]):
        found = TWICE[how](BETWEEN[call])
    torch.testing.assert_close(found, TWICE[how](BETWEEN[call]), rtol=1e-5, atol=1e-5)  # sums of 4 terms, thrice


def test_batches_of_gradients_are_not_cut_off():
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    with gs.emulate(":fp32"):
        y = x @ w
    with pytest.raises(gs.GradError, match="derivative of its gradient"):
        torch.autograd.grad(y, x, torch.eye(12).view(12, 3, 4), is_grads_batched=True, create_graph=True)


LAYERS = {
    "MXInferenceLinear": lambda: _converted(gs.mx.swap_linear_with_mx_inference_linear),
    "mx.trained_matmul|MXLinear|trained": lambda: _converted(gs.mx.swap_linear_with_mx_linear),
    "quantizer": lambda: gs.quantizer("bf16"),
    "fake_tensor_quant": lambda: lambda x: gs.tensor_quant.fake_tensor_quant(x, torch.tensor(1.0)),
    "to_mx": lambda: lambda x: gs.mx.to_mx(x, "mxfp8_e4m3").dequantize(),
}


def _converted(convert):
    model = nn.Sequential(nn.Linear(32, 4))
    convert(model, "mxfp8_e4m3")
    return model


@pytest.mark.parametrize("name", LAYERS)
def test_forward_mode_is_refused_by_layers_and_casts(name):
    call, x = LAYERS[name](), torch.ones(2, 32)
    with pytest.raises(gs.GradError, match=rf"({name}).*: a derivative in forward mode"):
        torch.func.jvp(call, (x,), (x,))
