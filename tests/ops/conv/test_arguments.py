"""Arguments of convolutions: torch's rules, values and gradients over random arguments, and every error it raises."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import GOLDEN, LONG, assert_values_equal
from support.conv import CONVS, TRANSPOSES

import gemmsim as gs

F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")
TORCH = {False: (F.conv1d, F.conv2d, F.conv3d), True: (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)}
OURS = {False: CONVS, True: TRANSPOSES}
MIXED = gs.QAffineFormats(fprop=":fp32", wgrad=":fp32")
FORMATS = [":fp32", None, MIXED, gs.QAffineFormats(dgrad=":fp32"), gs.QAffineFormats(grad_quant="fp32")]


def drawn(draw, transposed):
    """x, weight, bias and arguments, most of them good."""
    n, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2, 3]))
    small = st.lists(st.integers(1, 3), min_size=n, max_size=n)
    inputs, outputs = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    kernel, stride, dilation = draw(small), draw(small), draw(small)
    padding = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    size = draw(st.lists(st.integers(1, 7), min_size=n, max_size=n))
    batch = draw(st.sampled_from([(), (0,), (1,), (3,)]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    weight = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    x = torch.randn(*batch, inputs, *size, generator=generator)
    w = torch.randn(*weight, *kernel, generator=generator)
    bias = torch.randn(outputs, generator=generator) if draw(st.booleans()) else None
    if transposed:
        extra = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
        return n, x, w, bias, (stride, padding, extra, groups, dilation)
    if draw(st.integers(0, 4)) == 0:
        padding = draw(st.sampled_from(["same", "valid"]))
    return n, x, w, bias, (stride, padding, dilation, groups)


def run(function, x, w, bias, *args, **options):
    """Result and gradients, or the exception."""
    leaves = [None if t is None else t.clone().requires_grad_() for t in (x, w, bias)]
    try:
        y = function(*leaves, *args, **options)
    except (RuntimeError, ValueError) as error:
        return error
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype))
    return [y.detach(), *(t.grad for t in leaves if t is not None)]


def gamma(terms: int) -> float:
    """Relative bound of a float32 sum of products in any order (Higham, 2002, eq. 3.5)."""
    return (terms + 2) * 2.0**-24 / (1 - (terms + 2) * 2.0**-24)


def bounds(n, x, w, bias, transposed, args):
    """Twice gamma times the same sums of magnitudes, for the result and each gradient."""
    generator = torch.Generator().manual_seed(1)
    leaves = [None if t is None else t.double().abs().requires_grad_() for t in (x, w, bias)]
    y = TORCH[transposed][n - 1](*leaves, *args)
    g = torch.randn(y.shape, generator=generator).double().abs()
    y.backward(g)
    taps = w[0, 0].numel()
    counts = (max(w.shape[:2]) * taps, max(w.shape[:2]) * taps, y.numel() + x.numel(), y.numel())
    sums = [y.detach(), *(t.grad for t in leaves if t is not None)]
    return [2 * gamma(c) * s + 1e-40 for c, s in zip(counts, sums, strict=False)]


@pytest.mark.parametrize("transposed", [False, True])
@settings(max_examples=150 if LONG else 50)
@given(data=st.data())
def test_pass_through_formats_are_torch_in_value_gradient_and_refusals(transposed, data):
    n, x, w, bias, args = drawn(data.draw, transposed)
    want = run(TORCH[transposed][n - 1], x, w, bias, *args)
    formats = data.draw(st.sampled_from(FORMATS))
    got = run(OURS[transposed][n - 1], x, w, bias, *args, spec=formats)
    if isinstance(want, Exception) or isinstance(got, Exception):
        assert isinstance(got, gs.ShapeError), (want, got)
        # of no images, and results without elements, PyTorch checks some
        assert isinstance(want, Exception) or x.shape[0] == 0 or want[0].numel() == 0, (want, got)
        return
    for mine, theirs, bound in zip(got, want, bounds(n, x, w, bias, transposed, args), strict=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
        assert bool(((mine - theirs).abs() <= bound).all()), formats


X, W, T = torch.ones(2, 4, 6, 5), torch.ones(6, 2, 3, 3), torch.ones(4, 3, 3, 3)
ERRORS = {
    "rank of x": (lambda: gs.qconv2d(X[0, 0], W), "dimensions"),
    "rank of weight": (lambda: gs.qconv2d(X, W[0]), "dimensions"),
    "channels": (lambda: gs.qconv2d(X, W), "groups=1"),
    "groups do not divide": (lambda: gs.qconv2d(X, torch.ones(5, 2, 3, 3), groups=2), "multiple of groups"),
    "no groups": (lambda: gs.qconv2d(X, W, groups=0), "groups=0"),
    "bias": (lambda: gs.qconv2d(X, W, torch.ones(5), groups=2), "bias"),
    "stride zero": (lambda: gs.qconv2d(X, W, stride=0, groups=2), "stride=0"),
    "stride of three": (lambda: gs.qconv2d(X, W, stride=(1, 1, 1), groups=2), "2 dimensions"),
    "stride of floats": (lambda: gs.qconv2d(X, W, stride=1.5, groups=2), "stride=1.5"),
    "negative padding": (lambda: gs.qconv2d(X, W, padding=-1, groups=2), "padding=-1"),
    "padding name": (lambda: gs.qconv2d(X, W, padding="full", groups=2), "'same'"),
    "same with stride": (lambda: gs.qconv2d(X, W, padding="same", stride=2, groups=2), "stride 1"),
    "dilation": (lambda: gs.qconv2d(X, W, dilation=0, groups=2), "dilation=0"),
    "kernel too large": (lambda: gs.qconv2d(X, W, dilation=3, groups=2), "kernel"),
    "padding mode": (lambda: gs.qconv2d(X, W, padding=1, groups=2, padding_mode="wrap"), "reflect"),
    "reflection": (lambda: gs.qconv2d(X, W, padding=5, groups=2, padding_mode="reflect"), "at most 4"),
    "circle": (lambda: gs.qconv2d(X, W, padding=6, groups=2, padding_mode="circular"), "at most 5"),
    "output padding": (lambda: gs.qconv_transpose2d(X, T, output_padding=1), "less than"),
    "output size": (lambda: gs.qconv_transpose2d(X, T, output_size=(9, 9)), "from"),
    "too much padding": (lambda: gs.qconv_transpose2d(X, T, padding=4), "at least 1"),
    "transposed channels": (lambda: gs.qconv_transpose2d(X, torch.ones(3, 3, 3, 3)), "4"),
    "empty image": (lambda: gs.qconv2d(X[:, :, :0], W, groups=2), "at least 1"),
}


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_shape_errors_come_before_anything_runs(name, device, monkeypatch):
    call, words = ERRORS[name]
    monkeypatch.setitem(globals(), "X", X.to(device))
    monkeypatch.setitem(globals(), "W", W.to(device))
    with pytest.raises((gs.ShapeError, gs.DeviceError), match=None if device == "meta" else words):
        call()


def test_other_errors():
    with pytest.raises(gs.DTypeError, match="int64"):
        gs.qconv2d(X.long(), W, groups=2)
    with pytest.raises(gs.SpecError, match="palette"):
        gs.qconv2d(X, W, groups=2, spec=":palette(e5m10, e5m2)")
    with pytest.raises(gs.SeedError):
        gs.qconv2d(X, W, groups=2, spec=":e5m10/sr8", seed=-1)
    with pytest.raises(gs.DTypeError, match="out_dtype"):
        gs.qconv2d(X, W, groups=2, spec=":fp32", out_dtype=torch.int32)


def stored(case):
    fmt = gs.formats.parse(f"ieee_e{case['exp']}m{case['man']}")
    return gs.GemmSpec(accumulator=gs.acc.sequential(fmt, None if case["fma"] else fmt))


def test_values_of_another_system():
    """mptorch's QConv2d (tests/golden/README.md): windows channel-major, then kernel positions; bias in float32."""
    with np.load(GOLDEN / "mptorch_ops.npz") as file:
        cases = [(i, c) for i, c in enumerate(json.loads(bytes(file["meta"]))) if c["op"] == "QConv2d"]
        assert len(cases) == 4
        for number, case in cases:
            x, w, b, y, valid = (torch.from_numpy(file[f"{number:04d}/{key}"]) for key in ("x", "w", "b", "y", "valid"))
            where = (case["stride"], case["padding"], case["dilation"], case["groups"])
            assert int(valid.sum()) > 100
            assert_values_equal(gs.qconv2d(x, w, b, *where, stored(case)), y, valid, context=str(case))
