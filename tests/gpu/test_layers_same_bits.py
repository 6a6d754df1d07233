"""Layers on the GPU give the bits of the CPU: biases and casts in a product's kernel, windows read in place."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs

pytestmark = pytest.mark.gpu

#: Gradients without a spec are PyTorch's products, whose order of additions each device has its own of.
BACK = {"dgrad": ":e6m9", "wgrad": "e5m2 : fp32"}
FORMATS = {
    "cast": gs.QAffineFormats(fprop="e4m3 : e5m10", **BACK, output_quant="e5m2/rnu", bias_quant="bf16"),
    "packed": gs.QAffineFormats(fprop="bf16 : bf16", dgrad="bf16 : bf16", wgrad="bf16 : bf16"),
    "random": gs.QAffineFormats(fprop=":bf16/sr8 -> e5m10", **BACK, output_quant="e4m3/sr8", seed=4),
    "grid": gs.QAffineFormats(fprop="supernormal(4,3)*binary8(4) : e6m9/rnd", **BACK, output_quant="supernormal(4,3)"),
    "chip": gs.QAffineFormats(fprop="e4m3 : hw(hopper, wgmma, e4m3)", **BACK),
    "blocks": gs.QAffineFormats(fprop="mxfp8_e4m3 : scaled(fp32)", **BACK),
}
DTYPES = [torch.float32, torch.bfloat16, torch.float64]


def results(call, *tensors, device):
    """The result and the gradients of all tensors."""
    moved = [t.detach().clone().to(device).requires_grad_() for t in tensors]  # leaves that no other call adds to
    out = call(*moved)
    weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float32).reshape(out.shape).to(out.dtype)
    out.backward(weights.to(device))
    return [x.detach().cpu() for x in (out, *(t.grad for t in moved))]


def check(call, *tensors, context, native=()):
    """``native``: results that are PyTorch's own sums, of another order on each device."""
    for index, (got, want) in enumerate(
        zip(results(call, *tensors, device="cuda"), results(call, *tensors, device="cpu"), strict=True)
    ):
        if index not in native:
            assert_bitwise_equal(got, want, nan_is_nan=True, context=f"{context} {index}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_linear_layers(name, dtype):
    g = torch.Generator().manual_seed(1)
    x, w, bias = (torch.randn(*s, generator=g).to(dtype) for s in ((3, 50, 64), (40, 64), (40,)))
    check(lambda *t: gs.qlinear(*t, FORMATS[name], seed=6), x, w, bias, context=f"{name} {dtype}")
    with torch.no_grad():
        got = gs.qlinear(x.cuda(), w.cuda(), bias.cuda(), FORMATS[name], seed=6)
        assert_bitwise_equal(got.cpu(), gs.qlinear(x, w, bias, FORMATS[name], seed=6), nan_is_nan=True)


CONVS = {
    "padding": (gs.qconv2d, (2, 8, 17, 15), (12, 8, 3, 3), {"padding": 1}, "e4m3 : e5m10"),
    "groups": (gs.qconv1d, (3, 12, 70), (18, 4, 5), {"stride": 2, "dilation": 3, "groups": 3}, "e5m2 : bf16/sr8 -> e4m3/sr8"),
    "transposed": (gs.qconv_transpose2d, (2, 8, 9, 7), (8, 5, 3, 2), {"stride": 2, "padding": 1, "groups": 2}, ":e6m9"),
    "reflect": (gs.qconv2d, (1, 3, 33, 40), (16, 3, 7, 7), {"stride": 2, "padding": 3, "padding_mode": "reflect"}, ":kahan(bf16)"),
    "exact": (gs.qconv2d, (2, 4, 9, 9), (6, 4, 3, 3), {}, ":exact(fp32)"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVS)
def test_convolutions(name):
    function, shape, kernel, how, spec = CONVS[name]
    g = torch.Generator().manual_seed(2)
    outputs = kernel[1] * how.get("groups", 1) if "transpose" in function.__name__ else kernel[0]
    x, w, bias = torch.randn(shape, generator=g), torch.randn(kernel, generator=g), torch.randn(outputs, generator=g)
    native = (1,) if "padding_mode" in how else ()  # the gradient of the padding
    call = lambda *t: function(*t, spec=spec, seed=3, **how)  # noqa: E731
    check(call, x, w, bias, context=name, native=native)
    check(call, x.bfloat16(), w.bfloat16(), bias, context=f"{name} bf16", native=native)


def test_overflows_of_scaled_sums():
    g = torch.Generator().manual_seed(3)
    a, b = torch.randn(2, 30, 96, generator=g), torch.randn(96, 20, generator=g)
    for text in (
        "mxint8 : scaled(fixed(14, 12, overflow=wrap), fp32)",
        "mxint8/torchmx : scaled(int(12, saturate), fp32)",
    ):
        want = gs.count_overflows(a, b, text)
        assert torch.equal(gs.count_overflows(a.cuda(), b.cuda(), text).cpu(), want) and int(want.sum()) > 0


def test_a_captured_layer_and_convolution():
    x, w, bias = torch.randn(64, 32, device="cuda"), torch.randn(48, 32, device="cuda"), torch.randn(48, device="cuda")
    image, kernel = torch.randn(2, 8, 20, 20, device="cuda"), torch.randn(16, 8, 3, 3, device="cuda")

    def calls():
        return gs.qlinear(x, w, bias, "e4m3 : e5m10"), gs.qconv2d(image, kernel, spec=":e6m9", padding=1)

    calls()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = calls()
    x.normal_(), image.normal_()
    graph.replay()
    for got, want in zip(captured, calls(), strict=True):
        assert torch.equal(got, want)
