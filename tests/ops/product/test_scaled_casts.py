"""Operands under scales of blocks: bits against the slow reference, edges, and everything that a spec takes part in."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gemmsim as gs
from gemmsim.formats import FormatError, ScaledCast, parse
from gemmsim.reference import gemm
from gemmsim.reference.scaled_operands import quantize_scaled

BLOCKS = ("tensor", "row", "1x3", "1x4", "2x4", "3x5", "4xall", "16x16")
RULES = ("", "/pow2", "/divide", "/divide/pow2", "/margin(2)", "/least(0.5)", "/divide/least(1e-3)")


def same(x, y):
    x, y = torch.as_tensor(x, dtype=torch.float64), torch.as_tensor(y, dtype=torch.float64)
    return torch.equal(x.nan_to_num(7e300), y.nan_to_num(7e300)) and torch.equal(x.signbit(), y.signbit())


def numbers(*shape, seed=0, special=True):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=g) * torch.exp2(torch.randint(-12, 12, shape, generator=g).float())
    if special and x.numel() > 6:
        flat = x.view(-1)
        flat[::7] = 0.0
        flat[3] = -0.0
    return x


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("rule", RULES)
def test_values_have_the_bits_of_the_reference(block, rule):
    fmt = parse(f"e4m3/sat@{block}{rule}")
    x = numbers(5, 11, seed=len(rule))
    assert same(gs.quantize(x, fmt), quantize_scaled(x.tolist(), fmt, False))
    along = parse(f"{fmt}/dim(-2)")
    assert same(gs.quantize(x, along), torch.tensor(quantize_scaled(x.t().tolist(), fmt, True)).t())


@pytest.mark.parametrize(
    "text",
    [
        *("e2m1/sat@1x4/floor", "e4m3/sat@2x8/floor", "e2m1/sat@1x4/nvfp4", "e2m1/sat@4x4/nvfp4"),
        *("e2m1/sat/sr@1x4/floor/gain(0.75)", "e5m2/sr4@1x4", "fixed(8,0)/sat@row", "e3m2/rtz@3x3/divide"),
        *("e4m3/sat@1x4/hadamard(4)", "e4m3/sat@1x8/hadamard(8,3)/divide", "e2m1/sat/sr8@1x4/floor/hadamard(16,1)"),
        *("e4m3/sat@1x4/stored(e4m3/sat@1x3)", "e4m3/sat@1x4/divide/stored(e5m2/sat/sr8@2x2/pow2)"),
    ],
)
def test_rules_transforms_and_random_bits_against_the_reference(text):
    fmt = parse(text)
    x = numbers(6, 13, seed=5)
    assert same(gs.quantize(x, fmt, seed=9), quantize_scaled(x.tolist(), fmt, False, 9))
    for column in (x, x.t().contiguous().t()):
        expected = torch.tensor(quantize_scaled(x.t().tolist(), fmt, True, 9)).t()
        assert same(gs.quantize(column, parse(f"{text}/dim(-2)"), seed=9), expected)


PRODUCTS = [
    "e4m3/sat@1x4 * e4m3/sat@2x4 : scaled(fp32)",
    "e4m3/sat@1x4/divide * e4m3/sat@3x4/divide : scaled(hw(hopper, wgmma, e4m3), fp32)",
    "e4m3/sat@tensor : scaled(bf16, fp32) -> bf16",
    "e5m2/sat@row/pow2 * e4m3/sat@tensor : scaled(chunked(3, fp16), bf16)",
    "e4m3/sat@1x6 * e4m3/sat@1x4 : scaled(kahan(fp16), fp32/rtz)",
    "e4m3/sat@1x4 : scaled(fp16, fp32, n=2)",
    "e4m3/sat@1x5/divide * bf16 : scaled(fp32)",
    "e4m3/sat@1x4/floor * e4m3/sat@2x4/divide/pow2 : scaled(fp16, fp32)",
    "e2m1/sat@1x16/nvfp4 * e2m1/sat@16x16/nvfp4 : hw(blackwell, mxf4nvf4, e2m1)",
    "e2m1/sat@1x4/nvfp4 * e2m1/sat@1x4/divide : scaled(fp32)",
    "e4m3/sat@2x32/floor : hw(blackwell, mxf8f6f4, e4m3)",
    "e2m1/sat/sr@1x32/floor/gain(0.75)/hadamard(32,2) : hw(blackwell, mxf4, e2m1)",
    "e4m3/sat@1x4 * e4m3/sat@4x4 : fp32",
    "e4m3/sat@1x4/hadamard(4,1) : pairwise(bf16)",
    "fixed(8,0)/sat@row : scaled(fp32)",
    "e4m3/sat@1x4 * e4m3/sat@1x4/stored(e4m3/sat@1x3) : scaled(fp32)",
]


@pytest.mark.parametrize("spec", PRODUCTS)
@pytest.mark.parametrize("shape", [(3, 11, 4), (1, 1, 1), (5, 40, 2)])
def test_products_have_the_bits_of_the_reference(spec, shape):
    m, k, n = shape
    a, b = numbers(m, k, seed=1), numbers(k, n, seed=2)
    expected = gemm(a.tolist(), b.tolist(), spec, 4)
    assert same(gs.qmatmul(a, b, spec, seed=4), torch.tensor(expected, dtype=torch.float64).float())
    assert same(gs.qmatmul(a.double(), b.double(), spec, seed=4), expected)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PRODUCTS), st.integers(1, 5), st.integers(1, 24), st.integers(1, 5), st.integers(0, 10**6))
def test_products_of_any_shape(spec, m, k, n, seed):
    a, b = numbers(m, k, seed=seed), numbers(k, n, seed=seed + 1)
    assert same(gs.qmatmul(a, b, spec, seed=seed), torch.tensor(gemm(a.tolist(), b.tolist(), spec, seed)).float())


@pytest.mark.parametrize(
    "spec", ["e4m3/sat@1x4 : scaled(fp32)", "e4m3/sat@1x4 : fp32", "e4m3/sat@1x4/floor : scaled(fp32)"]
)
def test_special_values(spec):
    a = numbers(4, 9, seed=3)
    a[0, 1], a[1, 2], a[2, 3], a[3] = math.nan, math.inf, -math.inf, 0.0
    b = numbers(9, 3, seed=4)
    assert same(gs.qmatmul(a, b, spec), torch.tensor(gemm(a.tolist(), b.tolist(), spec)).float())
    tiny = torch.full((2, 8), 1e-45)
    assert same(gs.qmatmul(tiny, tiny.t(), spec), torch.tensor(gemm(tiny.tolist(), tiny.t().tolist(), spec)).float())
    huge = torch.full((2, 8), 3e38)
    assert same(gs.qmatmul(huge, huge.t(), spec), torch.tensor(gemm(huge.tolist(), huge.t().tolist(), spec)).float())


def test_empty_operands():
    spec = "e4m3@1x16 * e4m3@16x16 : scaled(fp32)"
    assert gs.qmatmul(torch.randn(0, 24), torch.randn(24, 4), spec).shape == (0, 4)
    assert torch.equal(gs.qmatmul(torch.randn(3, 0), torch.randn(0, 4), spec), torch.zeros(3, 4))
    assert gs.quantize(torch.randn(0, 4), "e4m3@1x16").shape == (0, 4)
    assert torch.equal(gs.quantize(torch.zeros(7), "e4m3@1x4"), torch.zeros(7))


@pytest.mark.parametrize(
    ("scaled", "blocks"),
    [
        ("e4m3/sat@1x32/floor : fp32", "mxfp8_e4m3 : fp32"),
        ("e4m3/sat@1x32/floor : scaled(fp16, fp32)", "mxfp8_e4m3 : scaled(fp16, fp32)"),
        ("e2m1/sat@1x16/nvfp4 : hw(blackwell, mxf4nvf4, e2m1)", "nvfp4/tensor : hw(blackwell, mxf4nvf4, e2m1)"),
        ("e2m1/sat@1x16/nvfp4 : scaled(fp32)", "nvfp4/tensor : scaled(fp32)"),
        ("e4m3/sat@1x128/divide/pow2 : scaled(fp32)", "mxfp8_e4m3/b128/rceil : scaled(fp32)"),
    ],
)
def test_block_formats_are_the_tiles_of_one_row(scaled, blocks):
    a, b = torch.randn(40, 200), torch.randn(200, 24)
    assert same(gs.qmatmul(a, b, scaled), gs.qmatmul(a, b, blocks))


def test_larger_products_by_hand():
    """Blocks of 128 as loops over them, at sizes that the reference is too slow for."""
    torch.manual_seed(0)
    a, b = torch.randn(130, 300), torch.randn(300, 200)
    found = gs.qmatmul(a, b, "e4m3/sat@1x128/divide * e4m3/sat@128x128/divide : scaled(hw(hopper, wgmma, e4m3), fp32)")
    total = torch.zeros(130, 200)
    for k in range(0, 300, 128):
        x, w = a[:, k : k + 128], b[k : k + 128]
        dx = x.abs().amax(1, keepdim=True) / 448
        t = torch.zeros(130, 200)
        scale = torch.zeros(130, 200)
        for n in range(0, 200, 128):
            part = w[:, n : n + 128]
            dw = part.abs().amax() / 448
            t[:, n : n + 128] = gs.qmatmul(
                gs.quantize(x / dx, "e4m3/sat"), gs.quantize(part / dw, "e4m3/sat"), "hw(hopper, wgmma, e4m3)"
            )
            scale[:, n : n + 128] = dx * dw
        total = torch.from_numpy(total.double().numpy() + t.double().numpy() * scale.double().numpy()).float()
    assert torch.equal(found, total)


def test_sums_are_rounded_once():
    """total + t * x where a rounding to float64 first would give the other neighbour."""
    from gemmsim.ops.product.scaled_casts import _sum_in_fp32

    total = torch.tensor([1.0, 1.0, -1.0, 2.0**-126, 3.0])
    product = torch.tensor(
        [2.0**-24 + 2.0**-70, 2.0**-24 - 2.0**-70, -(2.0**-24) - 2.0**-70, 2.0**-150, 0.0], dtype=torch.float64
    )
    assert _sum_in_fp32(total, product).tolist() == [1 + 2.0**-23, 1.0, -1 - 2.0**-23, 2.0**-126, 3.0]


FORMS = "e4m3/sat@1x128/divide * e4m3/sat@128x128/divide : scaled(hw(hopper, wgmma, e4m3), fp32)"


def test_text_json_and_equality():
    for text in ("e4m3/sat@128x128/divide/hadamard(16,3)/stored(e4m3/sat@1x128)", "e2m1/sr8/sat@1x32/floor/gain(0.75)"):
        fmt = parse(text)
        assert parse(str(fmt)) == fmt and ScaledCast.from_json(json.loads(json.dumps(fmt.to_json()))) == fmt
        assert hash(fmt) == hash(parse(str(fmt))) and "scale:" in fmt.describe()
    spec = gs.GemmSpec.parse(FORMS)
    assert gs.GemmSpec.from_json(spec.to_json()) == spec == gs.GemmSpec.parse(str(spec))
    assert "a scale for blocks of 128 rows or columns x 128 terms" in gs.explain(FORMS)
    assert parse(" E4M3 / SAT @ TENSOR / POW2 ") == parse("e4m3/sat@tensor/pow2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("e4m3@0x1 : fp32", "block '0x1'; allowed: tensor, row, or rows x terms"),
        ("e4m3@1x128/pow3 : fp32", "Did you mean 'pow2'?"),
        ("e4m3@1x128/pow2/pow2 : fp32", "one power"),
        ("e4m3@1x4/floor/pow2 : fp32", "rules amax and divide"),
        ("e4m3@row/floor : fp32", "blocks of 1 term or more"),
        ("e4m3@1x4/hadamard(17) : fp32", "a power of two up to 256"),
        ("e4m3@1x4/gain(nan) : fp32", "option 'gain(nan)'"),
        ("e5m3q@1x4 : fp32", "unknown format 'e5m3q'"),
        ("e4m3@1x128 : hw(hopper, wgmma, e4m3)", "Write ': scaled(hw(hopper, wgmma, e4m3), fp32)'"),
        ("e5m2@1x128 : scaled(hw(hopper, wgmma, e4m3), fp32)", "which takes"),
        ("e4m3@1x12 : scaled(fp32, n=5)", "n that divides 12"),
        ("e4m3@1x4/hadamard(4) * e4m3@1x4 : scaled(fp32)", "the same Hadamard transform and signs of both"),
        ("e4m3@1x32 * mxfp8_e4m3 : scaled(fp32)", "Write /pow2 after the scaled cast"),
        ("e4m3@1x32 : hw(blackwell, mxf8f6f4, e4m3)", "Write /pow2 or /floor"),
        ("e4m3@1x4/dim(0) : fp32", "Leave dim out"),
        (":e4m3@1x4", "formats of single numbers"),
    ],
)
def test_what_means_nothing_is_refused(text, words):
    with pytest.raises((gs.SpecError, FormatError)) as caught:
        gs.GemmSpec.parse(text)
    assert words in str(caught.value)


def test_registers_that_are_too_wide_for_binary_scales():
    with pytest.raises(gs.UnsupportedSpec, match="up to 29 bits"):
        gs.qmatmul(torch.ones(2, 4), torch.ones(4, 2), "fp32@1x4 : scaled(fp64)")


def test_layers_emulation_compilers_and_transforms_agree():
    torch.manual_seed(0)
    formats = gs.QAffineFormats(
        fprop=FORMS, dgrad=FORMS, wgrad="e4m3/sat@1x128 * e4m3/sat@1x128/stored(e4m3/sat@1x128) : scaled(fp32)"
    )
    assert gs.QAffineFormats.of(str(formats)) == formats
    linear = torch.nn.Linear(96, 64)
    layer = gs.nn.QLinear(96, 64, spec=formats)
    layer.load_state_dict(linear.state_dict())

    def run(f):
        x = torch.linspace(-2, 3, 6 * 96).reshape(2, 3, 96).requires_grad_()
        module = f if isinstance(f, torch.nn.Module) else linear
        module.zero_grad()
        y = f(x)
        y.square().sum().backward()
        return y.detach(), x.grad, module.weight.grad.clone()

    expected = run(layer)
    with gs.emulate(formats):
        found = run(linear)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.linspace(-2, 3, 6 * 96).reshape(2, 3, 96)
    assert all(map(torch.equal, expected, found)) and torch.equal(compiled(x), expected[0])
    each = torch.vmap(lambda t: gs.qmatmul(t, linear.weight.t(), formats))(x)
    assert torch.equal(each, torch.stack([gs.qmatmul(t, linear.weight.t(), formats) for t in x]))


def test_vmap_of_tensors_with_one_scale():
    x, w = torch.randn(3, 4, 8), torch.randn(8, 5)
    spec = "e4m3/sat@tensor : scaled(fp32)"
    each = torch.vmap(lambda t: gs.qmatmul(t, w, spec))(x)
    assert torch.equal(each, torch.stack([gs.qmatmul(t, w, spec) for t in x]))
    rows = torch.vmap(lambda t: gs.quantize(t, "e4m3/sat@2x4"))(x)
    assert torch.equal(rows, torch.stack([gs.quantize(t, "e4m3/sat@2x4") for t in x]))


def test_a_transform_alone_changes_little():
    """Orthonormal, and undone: what is left is the rounding of elements under their scale."""
    x = torch.randn(8, 64)
    plain, turned = gs.quantize(x, "e8m23@row"), gs.quantize(x, "e8m23@row/hadamard(16,5)")
    assert torch.allclose(plain, x, rtol=2.0**-20, atol=0) and torch.allclose(turned, x, rtol=0, atol=2.0**-19)
    spike = torch.zeros(1, 64)
    spike[0, 3] = 100.0
    assert gs.quantize(spike, "e2m1/sat@1x16/nvfp4/hadamard(16)").count_nonzero() >= 1


def test_explanations_say_where_the_scales_enter():
    said = gs.explain(FORMS)
    assert "X = Xa * Xb in binary32; S = R(S + X * s)" in said and "compute e4m3 : hw(hopper, wgmma, e4m3)" in said
    blocks = gs.explain("e4m3/sat@1x32/floor : scaled(fp32)")
    assert "S = R(S + Xa * Xb * s)" in blocks and "compute mxfp8_e4m3 : scaled" in blocks
    assert "fprop (input * weight):" in gs.explain("deepseek_v3")


@pytest.mark.parametrize("recipe", ["hopper_fp8_current", "torchao_tensorwise", "torchao_rowwise", "mxfp4_hadamard"])
def test_convolutions_of_one_position_are_linear_layers(recipe):
    x, weight = torch.randn(2, 32, 3, 3), torch.randn(8, 32, 1, 1, requires_grad=True)
    pixels = gs.qlinear(x.permute(0, 2, 3, 1), weight.flatten(1), None, recipe)
    found = gs.qconv2d(x, weight, spec=recipe, seed=1)
    assert torch.equal(found.permute(0, 2, 3, 1), pixels)
    found.sum().backward()
    assert weight.grad.isfinite().all()


def test_windows_have_no_blocks_of_several_rows():
    with pytest.raises(gs.UnsupportedSpec, match="leave these layers in bf16 by a rule"):
        gs.qconv2d(torch.randn(1, 4, 5, 5), torch.randn(4, 4, 3, 3), spec="e4m3/sat@16x16 : scaled(fp32)")


def test_scales_of_an_image_are_found_before_its_windows():
    """Positions that a stride skips count for the tensor's scale."""
    x, weight = torch.randn(1, 1, 4, 4), torch.randn(2, 1, 1, 1)
    x[0, 0, 1, 1] = 1000.0
    found = gs.qconv2d(x, weight, stride=2, spec="e2m1/sat@tensor * : scaled(fp32)")
    kept = gs.quantize(x, "e2m1/sat@tensor")
    assert torch.equal(found, gs.qconv2d(kept, weight, stride=2, spec=":fp32"))
