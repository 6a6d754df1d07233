"""gemmsim.compat.mptorch: stored values of mptorch through its own names, orders and defaults, and its defects."""

from __future__ import annotations

import copy
import inspect
import io
import json
import math

import numpy as np
import pytest
import torch
from support import GOLDEN, ROOT, assert_bitwise_equal, assert_values_equal
from support.rounding import assert_near, largest, magnitudes
from torch import nn

import gemmsim as gs
from gemmsim.compat import mptorch
from gemmsim.compat.mptorch import number, quant
from gemmsim.compat.mptorch.quant import functional as F

SHARED = ROOT.parent / "shared" / "vectors"


def load(name: str):
    folder = SHARED if (SHARED / name).exists() else GOLDEN
    with np.load(folder / name) as stored:
        return {k: torch.from_numpy(stored[k]) for k in stored.files if k != "meta"}, json.loads(bytes(stored["meta"]))


QUANTIZERS, QUANTIZER_CASES = load("mptorch_quantizers.npz")
GEMMS, GEMM_CASES = load("mptorch_gemm.npz")
OPS, OPS_CASES = load("mptorch_ops.npz")


def numbered(cases):
    return [pytest.param(i, case, id=f"{i:04d}-{case['op']}") for i, case in enumerate(cases)]


@pytest.mark.parametrize("i, case", numbered(QUANTIZER_CASES))
def test_quantizers(i, case):
    arguments = {k: v for k, v in case.items() if k not in ("op", "note")}
    x, want = QUANTIZERS[f"{i:04d}/x"], QUANTIZERS[f"{i:04d}/y"]
    valid = QUANTIZERS.get(f"{i:04d}/valid")
    if case["op"] == "superfp_quantize":
        arguments["binades"] = tuple(arguments["binades"])
    got = getattr(quant, case["op"])(x, **arguments)
    assert_values_equal(got, want, valid, context=str(case))


def gemm_arguments(case):
    names = ("exp_add", "man_add", "exp_mul", "man_mul", "wl_add", "fl_add", "wl_mul", "fl_mul")
    arguments = {k: case[k] for k in (*names, "fma", "subnormals", "saturate", "rounding") if k in case}
    if case["op"] == "superfp_mm":
        for side in ("add", "mul"):
            arguments |= {
                f"exp_{side}": case["exp"],
                f"man_{side}": case["man"],
                f"binades_{side}": tuple(case["binades"]),
            }
    return arguments


@pytest.mark.parametrize("i, case", numbered(GEMM_CASES))
def test_products(i, case):
    a, b = GEMMS[f"{i:04d}/a"], GEMMS[f"{i:04d}/b"]
    b = b.mT if case["op"] == "float_bmm" else b
    got = getattr(quant, case["op"])(a, b, **gemm_arguments(case))
    assert_values_equal(got, GEMMS[f"{i:04d}/y"], GEMMS[f"{i:04d}/valid"], context=str(case))


def floating(case, **flags):
    return number.FloatingPoint(case["exp"], case["man"], **{"subnormals": True, "saturate": False, **flags})


def arrays(i):
    return {k.split("/")[1]: v.clone() for k, v in OPS.items() if k.startswith(f"{i:04d}/")}


def close(got, want, valid, relative):
    error = ((got - want).abs() / want.abs().clamp_min(1e-30))[valid]
    assert error.max() <= relative


def compute(case, t):
    """(result, {name of an input: its leaf}) of a stored operation."""
    f, op = floating(case), case["op"]
    leaves = {k: t[k].requires_grad_() for k in ("x", "w", "b") if k in t}
    if op == "qlayernorm":
        return F.qlayernorm(
            t["x"], t["w"].shape, t["w"], t["b"], case["eps"], quant.QLayerNormFormats(*[f] * 7)
        ), leaves
    if op == "qsoftmax":
        steps = {"fwd_lse": f} if case["lse"] else {"fwd_exp": f, "fwd_acc": f}
        return F.qsoftmax(t["x"], case["dim"], quant.QSoftmaxFormats(f, bwd_add=f, bwd_mul=f, **steps)), leaves
    if op == "qgelu":
        formats = quant.QGELUFormats(*[(f, "nearest")] * 4)
        return F.qgelu(t["x"], formats, case["approximate"]), leaves
    mac = f if case["fma"] else (f, f)
    return F.qlinear(t["x"], t["w"], t["b"], quant.QAffineFormats(mac, mac)), leaves


@pytest.mark.parametrize("i, case", [p for p in numbered(OPS_CASES) if p.values[1]["op"] != "QConv2d"])
def test_operations(i, case):
    t = arrays(i)
    y, leaves = compute(case, t)
    if "tol_rel" in case:
        close(y.detach(), t["y"], t["y_valid"], case["tol_rel"])
    else:
        assert_values_equal(y.detach(), t["y"], t["y_valid"], context=str(case))
    if "g" not in t:
        return
    y.backward(t["g"])
    for name, leaf in leaves.items():
        want, valid = t[f"g{name}"], t[f"g{name}_valid"]
        if "tol_rel" in case:  # the gradient rounds products of a y that differs in its last bits
            assert (leaf.grad - want)[valid].abs().max() <= 2.0 ** -case["man"] * t["g"].abs().max()
        else:
            assert_values_equal(leaf.grad, want, valid, context=f"g{name} {case}")


@pytest.mark.parametrize("i, case", [p for p in numbered(OPS_CASES) if p.values[1]["op"] == "QConv2d"])
def test_convolutions(i, case):
    t, f = arrays(i), floating(case)
    formats = quant.QAffineFormats(f if case["fma"] else (f, f))
    sizes = {k: case[k] for k in ("stride", "padding", "dilation", "groups")}
    layer = quant.QConv2d(t["x"].shape[1], len(t["w"]), case["kernel_size"], formats, **sizes)
    layer.load_state_dict({"weight": t["w"], "bias": t["b"]})
    assert_values_equal(layer(t["x"]).detach(), t["y"], t["valid"], context=str(case))


# A user's script: only the import differs.

SCRIPT = '''
import torch, torch.nn as nn, torch.nn.functional as nnf
from torch.utils.data import DataLoader, TensorDataset
from mptorch import FixedPoint, FloatingPoint
from mptorch.number import Binary8, SuperNormalFloat
import mptorch.quant as qpt
from mptorch.quant import QAffineFormats, Quantizer, cublas_acceleration, float_quantize
from mptorch.optim import OptimMP
from mptorch.utils import evaluate_accuracy, trainer

torch.manual_seed(0)
cublas_acceleration.enabled = False
mac = FloatingPoint(exp=5, man=10, subnormals=True, saturate=False)
act = FloatingPoint(exp=4, man=3, subnormals=True, saturate=True)
grad = FloatingPoint(exp=5, man=2, subnormals=True, saturate=True)
q = lambda x: float_quantize(x, 4, 3, rounding="nearest")
formats = QAffineFormats(fwd_mac=(mac, mac), bwd_mac=(mac,), fwd_rnd="nearest", bwd_rnd="nearest",
                         weight_quant=q, input_quant=(act, "nearest"), grad_quant=(grad, "stochastic"), rbits=8)
bn = lambda x: float_quantize(x, exp=5, man=10, rounding="nearest")

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = qpt.QConv2d(1, 4, 3, formats, padding=1)
        self.norm = qpt.QBatchNorm2d(4, bn, bn)
        self.pool = qpt.QAvgPool2d(2, bn, bn)
        self.act = Quantizer(forward_number=act, backward_number=grad, backward_rounding="stochastic")
        self.fc = qpt.QLinear(64, 10, formats)
    def forward(self, x):
        x = self.act(self.pool(nnf.relu(self.norm(self.conv(x)))))
        return self.fc(x.flatten(1))

x = torch.randn(30, 1, 8, 8)
y = (x.flatten(1)[:, :10] * 4).argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=10, shuffle=True)
net = Net()
optimizer = OptimMP(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), weight_quant=q,
                    acc_quant=lambda x: float_quantize(x, 8, 15, rounding="nearest"))
rows = trainer(net, loader, loader, num_epochs=3, lr=0.1, batch_size=10, optimizer=optimizer, device="cpu")
accuracy = evaluate_accuracy(net, loader)
'''  # fmt: skip


def test_a_script_changes_its_imports_only(capsys):
    code = SCRIPT.replace("import mptorch.quant as qpt", "import gemmsim.compat.mptorch.quant as qpt")
    code = code.replace("from mptorch", "from gemmsim.compat.mptorch")
    results = []
    for _ in range(2):
        space: dict = {}
        exec(compile(code, "script", "exec"), space)
        results.append([(row["loss"], row["accuracy"]) for row in space["rows"]])
    assert results[0] == results[1], "torch.manual_seed makes stochastic rounding repeatable"
    assert results[0][-1][0] < results[0][0][0] and space["accuracy"] == results[0][-1][1]
    weight = space["net"].fc.weight.detach()
    assert torch.equal(space["q"](weight), weight)
    assert "epoch 3" in capsys.readouterr().out


# Arguments: orders and defaults, the traps included.

SIGNATURES = {
    "float_mm": "a b man_add=23 exp_add=8 man_mul=23 exp_mul=8 rounding='nearest' fma=True subnormals=True saturate=True compensated=False rbits_add=0 rbits_mul=0",
    "fxp_bmm": "a b wl_add=16 fl_add=8 wl_mul=16 fl_mul=8 symmetric=False rounding='nearest' fma=True",
    "superfp_mm": "a b man_add=7 exp_add=8 binades_add=1 man_mul=7 exp_mul=8 binades_mul=1 rounding='nearest' fma=True saturate=False",
    "superfp_bmm": "a b man_add=7 exp_add=8 man_mul=7 exp_mul=8 binades_add=1 binades_mul=1 rounding='nearest' fma=True saturate=True",
    "mp_mm": "a b formats use_forward=True",
    "cublas_mm": "a b input_type output_type compute_type pedantic",
    "block_quantize": "x wl dim=-1 rounding='stochastic'",
    "fixed_point_quantize": "x wl fl clamp=True symmetric=False rounding='stochastic'",
    "float_quantize": "x exp man rounding='stochastic' subnormals=True saturate=True prng=0",
    "superfp_quantize": "x exp man binades rounding='nearest' saturate=False",
    "binary8_quantize": "x P rounding='nearest' overflow_policy='saturate_maxfloat' is_signed=True subnormals=True prng_bits=0",
    "binaryK_quantize": "x K P rounding='nearest_even' saturation_mode='overflow_infinity' is_signed=True prng_bits=0 bias=None",
    "match_mac_format_with_cublas_types": "man_add exp_add man_mul exp_mul rounding fma subnormals saturate fast_mode='f32'",
}  # fmt: skip


@pytest.mark.parametrize("name", SIGNATURES)
def test_orders_and_defaults(name):
    parameters = inspect.signature(getattr(quant, name)).parameters.values()
    shown = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    text = " ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in shown)
    assert text == SIGNATURES[name]


# Defects of mptorch 0.3.0 that are none here.


def test_g_each_step_rounds_once():
    c, a, b = (float.fromhex(x) for x in ("0x1.768p+0", "-0x1.38e044p-3", "-0x1.213d38p+1"))
    x, y = torch.tensor([[1.0, a]]), torch.tensor([[c], [b]])
    arguments = {"man_add": 10, "exp_add": 8, "fma": True}
    assert quant.float_mm(x, y, **arguments).item() == float.fromhex("0x1.cecp+0")
    assert quant.float_mm(x, y, **arguments, arithmetic="fp32").item() == float.fromhex("0x1.cfp+0")


def test_g_the_gpu_order_is_a_named_one():
    torch.manual_seed(0)
    a, b = torch.rand(8, 256), torch.rand(256, 8)
    narrow = {"man_add": 3, "exp_add": 5}
    # A sum stops at 16, whose neighbours are 2 apart: terms are below 1. Of 32 sums and what follows there is a figure alone.
    assert bool((quant.float_mm(a, b, **narrow) == 16).all())
    assert abs(quant.float_mm(a, b, **narrow, accumulate="mptorch_cuda").mean() - 57.7) < 3


@pytest.mark.parametrize("fma", [True, False])
def test_k_compensation_is_kept_for_each_element(fma):
    torch.manual_seed(0)
    a, b = torch.randn(4, 64), torch.randn(64, 5)
    arguments = {"man_add": 4, "exp_add": 5, "man_mul": 4, "exp_mul": 5, "fma": fma}
    plain, kahan = (quant.float_mm(a, b, **arguments, compensated=c) for c in (False, True))
    exact = a.double() @ b.double()
    assert (kahan - exact).abs().max() < (plain - exact).abs().max()
    one = torch.stack(
        [
            quant.float_mm(a[i : i + 1], b[:, j : j + 1], **arguments, compensated=True)
            for i in range(4)
            for j in range(5)
        ]
    )
    assert_bitwise_equal(kahan.flatten(), one.flatten())


def test_o1_pairs_of_random_bits():
    f = number.FloatingPoint(5, 2)
    formats = quant.QAffineFormats((f, f), fwd_rnd="stochastic", rbits=(3, 5))
    assert str(formats.fprop) == ":mul=e5m2/ftz/sr5/sat, add=e5m2/ftz/sr3/sat"
    assert (
        str(quant.QAffineFormats((f, f), fwd_rnd="stochastic").fprop) == ":mul=e5m2/ftz/sr32/sat, add=e5m2/ftz/sr32/sat"
    )


def test_r_no_random_bits_of_products_are_lost():
    a, b = torch.full((500, 1), 1.3), torch.ones(1, 1)
    got = quant.float_mm(a, b, man_add=20, man_mul=2, rounding="stochastic", fma=False, seed=1)
    # neighbours 1.25 and 1.5, the upper one in a fifth: a standard deviation of 0.25 sqrt(0.2 * 0.8) = 0.1
    assert abs(got.mean().item() - 1.3) < 6 * 0.1 / math.sqrt(500)


def test_s_batches_are_those_of_matmul():
    a, b = torch.randn(1, 3, 8), torch.randn(2, 8, 4)
    assert quant.float_bmm(a, b).shape == (2, 3, 4)
    with pytest.raises(ValueError, match=r"\(2, 2, 3\)"):
        quant.float_bmm(torch.ones(2, 2, 3), torch.ones(3, 3, 2))
    stochastic = quant.fxp_bmm(a, b, rounding="stochastic", fma=False)
    assert stochastic.shape == (2, 3, 4)
    assert quant.superfp_bmm(a, b, rounding="stochastic").shape == (2, 3, 4)


def test_any_two_formats_make_a_product():
    a, b = torch.randn(3, 9), torch.randn(9, 2)
    for pair in [(number.FloatingPoint(5, 10), number.FixedPoint(12, 6)), (number.Binary8(4), number.Binary8(3))]:
        formats = quant.QAffineFormats(pair)
        assert_bitwise_equal(quant.mp_mm(a, b, formats), gs.qmatmul(a, b, formats.fprop))
    assert_bitwise_equal(quant.mp_mm(a, b, quant.QAffineFormats()), gs.qmatmul(a, b, ":fp32"))


def test_sc1_gradients_are_unscaled_and_sc2_zeros_have_a_scale():
    f = number.FloatingPoint(4, 3, True)
    wide = number.FloatingPoint(8, 23, True)
    rounded = {"weight_quant": (f, "nearest"), "input_quant": (f, "nearest"), "grad_quant": (f, "nearest")}
    formats = quant.QAffineFormats(wide, wide, use_scaling=True, **rounded)
    a, b = torch.full((5, 7), 256.0), torch.ones(7, 3, requires_grad=True)
    F.qmm(a, b, formats).backward(torch.full((5, 3), 2.0**-14))  # below E4M3's smallest number: lost if not scaled
    assert b.grad.unique().tolist() == [5 * 2.0**-6]
    assert torch.equal(quant.functional.qmm(torch.zeros(2, 3), torch.ones(3, 2), formats), torch.zeros(2, 2))


def test_l1_three_dimensions_are_flattened():
    f = number.FloatingPoint(4, 3, True)
    formats = quant.QAffineFormats(f, f)
    results = []
    for shape in ((64, 5, 3), (320, 3)):
        w = torch.ones(2, 3, requires_grad=True)
        F.qlinear(torch.ones(shape), w, None, formats).sum().backward()
        results.append(w.grad)
    assert results[0].unique().tolist() == [16.0]
    assert_bitwise_equal(results[0], results[1])
    assert F.qlinear(torch.ones(3), torch.ones(2, 3), None, formats).shape == (2,)


def test_r1_keepdim_does_not_mix_rows():
    x = torch.randn(2, 3, requires_grad=True)
    F.qsum(x, 1, keepdim=True).backward(torch.tensor([[1.0], [2.0]]))
    assert x.grad.tolist() == [[1.0] * 3, [2.0] * 3]


def test_n_normalisations_with_one_direction_only():
    f = number.FloatingPoint(8, 23, True, False)
    torch.manual_seed(0)
    g = torch.randn(2, 4, 6)
    for formats in (quant.QLayerNormFormats(*[f] * 4), quant.QLayerNormFormats(bwd_acc=f, bwd_mul=f, bwd_div=f)):
        x, w = torch.randn(2, 4, 6).requires_grad_(), torch.randn(4, 6).requires_grad_()
        want = torch.autograd.grad(nn.functional.layer_norm(x, (4, 6), w), (x, w), g)
        got = torch.autograd.grad(F.qlayernorm(x, (4, 6), w, None, 1e-5, formats), (x, w), g)
        for a, b in zip(got, want, strict=True):
            assert_near(a, b, 3 * 24 + 16, size=1 + largest(b))  # of sums of 24 numbers three lie on a gradient's way


def test_cv1_a_backward_format_alone_counts():
    f = number.FloatingPoint(5, 2, True)
    layer = quant.QConv2d(1, 1, 3, quant.QAffineFormats(bwd_mac=f))
    x = torch.randn(1, 1, 6, 6)
    layer(x).sum().backward()
    grad = layer.weight.grad
    assert torch.equal(quant.float_quantize(grad, 5, 2, "nearest"), grad)


def test_cv_arguments_of_torch_work():
    f = quant.QAffineFormats(number.FloatingPoint(8, 23, True, False))
    x = torch.randn(2, 4, 7, 7)
    for options in ({"padding": "same"}, {"padding": 1, "padding_mode": "reflect"}, {"groups": 2}):
        layer = quant.QConv2d(4, 8, 3, f, **options)
        plain = nn.Conv2d(4, 8, 3, **options)
        plain.load_state_dict(layer.state_dict())
        assert_near(layer(x), plain(x), 4 * 9 + 1, size=magnitudes(plain, x)[0].double())
    assert quant.QConv2d(4, 8, 3, f)(x[0]).shape == (8, 5, 5)
    up = quant.QConvTranspose2d(4, 2, 3, f, stride=2, padding=1, output_padding=1, groups=2)
    plain = nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1, groups=2)
    plain.load_state_dict(up.state_dict())
    assert_near(up(x), plain(x), 2 * 9 + 1, size=magnitudes(plain, x)[0].double())
    assert up(x, output_size=[13, 13]).shape == (2, 2, 13, 13)


def test_cv6_and_bn_modules_are_torchs():
    round_ = quant.make_quant_function(number.FloatingPoint(5, 10, True), "nearest")
    x = torch.randn(4, 3, 6, 6)
    assert quant.QAvgPool2d(2, round_, round_)(x).shape == (4, 3, 3, 3)
    norm = quant.QBatchNorm2d(3, round_, round_)
    norm(x)
    assert {"running_mean", "running_var"} <= set(norm.state_dict()) and norm.moving_mean is norm.running_mean
    assert norm.moving_mean.any()
    before = norm.running_mean.clone()
    norm.eval()
    norm(x)
    assert torch.equal(norm.running_mean, before)


def test_modules_round_their_parameters_copy_and_save():
    f = number.FloatingPoint(4, 3, True)
    formats = quant.QAffineFormats(f, f, weight_quant=(f, "nearest"), bias_quant=(f, "nearest"))
    lazy = quant.QLazyLinear(3, formats)
    x = torch.randn(2, 5)
    lazy(x)
    norms = quant.QLayerNormFormats(weight_quant=(f, "nearest"), bias_quant=(f, "nearest"))
    modules = [lazy, quant.QLinear(5, 3, formats), quant.QLayerNorm(5, norms)]
    modules += [quant.QSoftmax(-1, quant.QSoftmaxFormats(f, f, f)), quant.QGELU(quant.QGELUFormats(), "tanh")]
    for module in modules:
        for p in module.parameters():
            assert torch.equal(quant.float_quantize(p.detach(), 4, 3, "nearest"), p.detach())
        stored = io.BytesIO()
        torch.save(module, stored)
        stored.seek(0)
        for other in (torch.load(stored, weights_only=False), copy.deepcopy(module)):
            assert_bitwise_equal(other(x).detach(), module(x).detach())
    assert type(lazy) is quant.QLinear
    assert set(modules[1].state_dict()) == {"weight", "bias"}


def test_quant_function_rounds_both_ways():
    module = quant.QLinear(2, 2, quant.QAffineFormats())
    pair = module.quant_function(lambda x: x.round(), lambda g: g * 2)
    x = torch.tensor([0.6, 1.4], requires_grad=True)
    y = pair(x)
    y.backward(torch.ones(2))
    assert y.tolist() == [1.0, 1.0] and x.grad.tolist() == [2.0, 2.0]
    assert torch.equal(module.Qw(x), x)


def test_cublas_names_exist_without_cuda():
    assert quant.CUBLASMatrixType.BF16.name == "BF16" and quant.CUBLASComputeType.F32_FAST_TF32.name == "F32_FAST_TF32"
    types = (quant.CUBLASMatrixType.F32, quant.CUBLASMatrixType.F32, quant.CUBLASComputeType.F32)
    for product in (quant.cublas_mm, quant.cublas_bmm):
        with pytest.raises(NotImplementedError, match="CUDA"):
            product(torch.ones(2, 2), torch.ones(2, 2), *types, False)
    from gemmsim.compat.mptorch.quant.cublas import product_of

    assert product_of(*types) == (":fp32", None)
    with pytest.raises(RuntimeError, match="allowed"):
        product_of(quant.CUBLASMatrixType.F16, quant.CUBLASMatrixType.BF16, quant.CUBLASComputeType.F16)


def test_every_name_is_there_and_nothing_loads_early():
    for module in (
        mptorch,
        mptorch.number,
        mptorch.quant,
        mptorch.quant.functional,
        mptorch.quant.modules,
        mptorch.optim,
        mptorch.utils,
    ):
        for name in module.__all__:
            assert getattr(module, name) is not None
    assert mptorch.optim.OptimLP is mptorch.optim.OptimMP is mptorch.optim.QOptim


ROUNDED_IN_COMPILED_CODE = {
    "float": lambda x: quant.float_quantize(x, 5, 10, "nearest", prng=0),
    "fixed": lambda x: quant.fixed_point_quantize(x, 8, 4, rounding="nearest"),
    "block": lambda x: quant.block_quantize(x, 8, 0, "nearest"),
    "supernormal": lambda x: quant.superfp_quantize(x, 4, 3, (1, 2)),
    "binary8": lambda x: quant.binary8_quantize(x, 3),
    "binaryK": lambda x: quant.binaryK_quantize(x, 8, 3),
    "float_mm": lambda x: quant.float_mm(x, x.T, 10, 5),
    "float_bmm": lambda x: quant.float_bmm(x[None], x.T[None], 2, 5, accumulate="mptorch_cuda", fma=False),
    "fxp_mm": lambda x: quant.fxp_mm(x, x.T),
    "superfp_bmm": lambda x: quant.superfp_bmm(x[None], x.T[None]),
    "quantizer": lambda x: quant.quantizer(HALF, HALF, "nearest", "nearest")(x),
    "our quantizer": lambda x: gs.quantizer("e4m3", "e5m2")(x),
}
HALF = number.FloatingPoint(5, 10, True)


@pytest.mark.parametrize("name", ROUNDED_IN_COMPILED_CODE)
def test_calls_in_compiled_code(name):
    torch._dynamo.reset()
    call, x = ROUNDED_IN_COMPILED_CODE[name], torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), call(x))
    assert torch.equal(compiled(2 * x), call(2 * x))
