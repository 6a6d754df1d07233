"""Bad input: a typed error that says what was asked, what is allowed and what to do."""

from __future__ import annotations

import pytest
import torch

import gemmsim as gs

X = torch.randn(4, 5)
W = torch.randn(5, 6)
META = torch.randn(4, 5, device="meta")
GRAD = torch.randn(4, 5, requires_grad=True)

CASES = {
    # Names
    "unknown format": (lambda: gs.quantize(X, "e4m3x"), gs.FormatError, "e4m3"),
    "unknown rounding": (lambda: gs.quantize(X, "e4m3", rounding="neerest"), gs.FormatError, "nearest"),
    "unknown overflow": (lambda: gs.quantize(X, "e4m3", overflow="satt"), gs.FormatError, "sat"),
    "unknown accumulator": (lambda: gs.qmatmul(X, W, ":sequentiall(e5m10)"), gs.SpecError, "sequential"),
    "unknown format in a spec": (lambda: gs.qmatmul(X, W, "e4m3q : e5m10"), gs.FormatError, "e4m3"),
    "precision out of range": (lambda: gs.qmatmul(X, W, ":e5m99"), gs.SpecError, "e5m99"),
    "a number as spec": (lambda: gs.qmatmul(X, W, 8), gs.SpecError, "spec"),
    # Shapes
    "contracted sizes": (lambda: gs.qmatmul(X, X, ":e5m10"), gs.ShapeError, r"\(4, 5\) and \(4, 5\)"),
    "contracted sizes, vectors": (lambda: gs.qmatmul(X[0], X[:, 0], ":e5m10"), gs.ShapeError, r"\(5,\) and \(4,\)"),
    "batches": (
        lambda: gs.qmatmul(torch.ones(2, 4, 5), torch.ones(3, 5, 6), ":e5m10"),
        gs.ShapeError,
        r"\(2, 4, 5\) and \(3, 5, 6\)",
    ),
    "scalar": (lambda: gs.qmatmul(torch.tensor(1.0), W, ":e5m10"), gs.ShapeError, r"\(\) and \(5, 6\)"),
    "qmm of a batch": (lambda: gs.qmm(X[None], W, ":e5m10"), gs.ShapeError, r"\(1, 4, 5\)"),
    "qlinear weight": (lambda: gs.qlinear(X, W, None, ":e5m10"), gs.ShapeError, r"weight \(5, 6\)"),
    "qlinear bias": (lambda: gs.qlinear(X, W.mT, torch.ones(5), ":e5m10"), gs.ShapeError, r"bias \(5,\)"),
    "quantize out": (lambda: gs.quantize(X, "e4m3", out=torch.empty(5, 4)), gs.ShapeError, r"\(5, 4\)"),
    # Types
    "integer": (
        lambda: gs.qmatmul(X.int(), W, ":e5m10"),
        TypeError,
        r"a has dtype torch.int32.*\n.*to\(torch.float64\)",
    ),
    "integer b": (lambda: gs.qmatmul(X, W.long(), ":e5m10"), TypeError, "b has dtype torch.int64"),
    "bool": (lambda: gs.quantize(X > 0, "e4m3"), TypeError, "torch.bool"),
    "complex": (lambda: gs.quantize(X.cfloat(), "e4m3"), TypeError, "view_as_real"),
    "float8": (lambda: gs.quantize(X.to(torch.float8_e4m3fn), "e4m3"), TypeError, "float8_e4m3fn"),
    "complex weight": (lambda: gs.qlinear(X, W.mT.cfloat(), None, ":e5m10"), TypeError, "weight has dtype"),
    "integer out_dtype": (
        lambda: gs.qmatmul(X, W, ":e5m10", out_dtype=torch.int32),
        TypeError,
        "out_dtype=torch.int32",
    ),
    "integer out": (
        lambda: gs.quantize(X, "e4m3", out=torch.empty(4, 5, dtype=torch.int32)),
        TypeError,
        "out has dtype",
    ),
    "list": (lambda: gs.qmatmul([[1.0]], W, ":e5m10"), TypeError, "a is a list"),
    "list to quantize": (lambda: gs.quantize([1.0], "e4m3"), TypeError, "x is a list"),
    "list as out": (lambda: gs.quantize(X, "e4m3", out=[1.0]), TypeError, "out is a list"),
    "sparse": (lambda: gs.quantize(X.to_sparse(), "e4m3"), TypeError, "to_dense"),
    # Devices
    "two devices": (lambda: gs.qmatmul(META, W, ":e5m10"), gs.DeviceError, "a on meta, b on cpu"),
    "two devices, linear": (lambda: gs.qlinear(X, META, None, ":e5m10"), gs.DeviceError, "x on cpu, weight on meta"),
    "two devices, out": (lambda: gs.quantize(X, "e4m3", out=META), gs.DeviceError, "out on meta"),
    # Gradients
    "quantize with grad": (lambda: gs.quantize(GRAD, "e4m3"), gs.GradError, "gemmsim.quantizer"),
    "quantize of a result": (lambda: gs.quantize(GRAD * 2, "e4m3"), gs.GradError, "gemmsim.quantizer"),
    "out with grad": (lambda: gs.quantize(X, "e4m3", out=GRAD), gs.GradError, "torch.no_grad"),
    # Seeds
    "float seed": (lambda: gs.quantize(X, "e4m3/sr8", seed=1.5), gs.SeedError, "seed=1.5"),
    "negative seed": (lambda: gs.qmatmul(X, W, ":e5m2/sr8", seed=-1), gs.SeedError, "seed=-1"),
    "wide seed": (lambda: gs.qmatmul(X, W, ":e5m2/sr8", seed=2**64), gs.SeedError, "seed=18446744073709551616"),
    "bool seed": (lambda: gs.qlinear(X, W.mT, None, ":e5m2/sr8", seed=True), gs.SeedError, "seed=True"),
    # The addend
    "c without a place": (lambda: gs.qmatmul(X, W, ":e5m10", c=torch.ones(6)), gs.SpecError, "c_first"),
    "c of another shape": (
        lambda: gs.qmatmul(X, W, ":sequential(e5m10, init=c_first)", c=torch.ones(7)),
        gs.ShapeError,
        r"c has shape \(7,\)",
    ),
    "c larger than the product": (
        lambda: gs.qmatmul(X, W, ":sequential(e5m10, init=c_first)", c=torch.ones(2, 4, 6)),
        gs.ShapeError,
        r"c has shape \(2, 4, 6\)",
    ),
    # Formats of layers
    "mac twice": (lambda: gs.QAffineFormats("e5m10", fprop=":e5m10"), gs.SpecError, "fprop.*fwd_mac"),
    "three formats": (lambda: gs.QAffineFormats(("e5m10", "e5m10", "e5m10")), gs.SpecError, "pairs"),
    "rounding of nothing": (lambda: gs.QAffineFormats(fwd_rnd="rtz"), gs.SpecError, "fwd_rnd"),
    "compensated": (lambda: gs.QAffineFormats("e5m10", compensated=True), gs.UnsupportedSpec, "compensated"),
    "quantiser": (lambda: gs.QAffineFormats(weight_quant=3), gs.FormatError, "weight_quant=3"),
    "random bits": (lambda: gs.QAffineFormats("e5m10", fwd_rnd="sr", rbits=33), gs.FormatError, "rbits=33"),
    "margin": (lambda: gs.QAffineFormats(scale_margin=0.5), gs.FormatError, "scale_margin=0.5"),
    "scaled format": (lambda: gs.QAffineFormats(grad_scaled_format=8), gs.FormatError, "grad_scaled_format=8"),
    "bias in no accumulator": (lambda: gs.QAffineFormats(bias_in_accumulator=True), gs.SpecError, "fprop"),
    "mask of a float format": (lambda: gs.quantizer("e4m3", clamping_grad_zero=True), gs.FormatError, "fixed"),
    "mask of an unbounded grid": (
        lambda: gs.quantizer("fixed(8,4,unbounded)", clamping_grad_zero=True),
        gs.FormatError,
        "clamp",
    ),
    "mask of nothing": (lambda: gs.quantizer(clamping_grad_zero=True), gs.FormatError, "forward_number=None"),
    "quantizer of integers": (lambda: gs.quantizer("e4m3")(X.int()), TypeError, "torch.int32"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name):
    call, error, text = CASES[name]
    with pytest.raises(error, match=text):
        call()


def test_dtype_errors_are_type_errors_and_the_others_value_errors():
    from gemmsim.ops import DeviceError, DTypeError, GradError, OverlapError, SeedError, ShapeError

    assert issubclass(DTypeError, TypeError) and issubclass(GradError, RuntimeError)
    assert all(issubclass(error, ValueError) for error in (DeviceError, ShapeError, OverlapError, SeedError))


def test_a_device_without_a_kernel_is_named(monkeypatch):
    class Elsewhere:
        device = torch.device("xla", 0)

    from gemmsim.ops.checks import check_device

    with pytest.raises(gs.DeviceError, match=r"a is on xla:0.*\n.*a.cpu\(\)"):
        check_device("qmatmul", Elsewhere(), Elsewhere())


def test_raw_operators_check_as_well():
    with pytest.raises(gs.ShapeError):
        torch.ops.gemmsim.matmul(X, X, ":e5m10")
    with pytest.raises(TypeError):
        torch.ops.gemmsim.matmul(X.int(), W, ":e5m10")
    with pytest.raises(gs.ShapeError):
        torch.ops.gemmsim.matmul(X[0], W, ":e5m10")


def test_raw_operators_have_no_gradient_and_say_what_has():
    y = torch.ops.gemmsim.matmul(GRAD, W, ":e5m10")
    with pytest.raises(gs.GradError, match="qmatmul"):
        y.sum().backward()
    y = torch.ops.gemmsim.quantize(GRAD, "e4m3")
    with pytest.raises(gs.GradError, match="quantizer"):
        y.sum().backward()
