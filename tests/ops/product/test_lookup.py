"""Products from tables of codes: what the codes say, added as the accumulator inside adds products."""

from __future__ import annotations

import json
import pickle

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import isas

import gemmsim as gs
from gemmsim.arithmetic import GemmSpec, Lookup, ProductTable, SpecError, UnsupportedSpec
from gemmsim.backends import cpu
from gemmsim.formats import parse_scalar


def products(a, b, multiply):
    """Products of all codes; of codes that mean nothing, and of infinities, 0."""

    def value(fmt, code):
        try:
            found = fmt.decode(code)
        except ValueError:
            return 0.0
        return found

    left, right = parse_scalar(a), parse_scalar(b)
    return [[multiply(value(left, x), value(right, y)) for y in range(1 << right.bits)] for x in range(1 << left.bits)]


@pytest.fixture(scope="module")
def exact8():
    return gs.acc.table(products("int8", "int8", lambda x, y: x * y), "int8", name="test_exact8")


@pytest.fixture(scope="module")
def cut8():
    """A multiplier that drops the three lowest bits of each product and is not symmetric."""
    return gs.acc.table(products("int8", "int8", lambda x, y: float(int(x * y) >> 3 << 3) + (x > y)), "int8", "int8")


ACCUMULATORS = [
    "int(32)",
    "int(17, overflow=wrap)",
    "int(18, overflow=saturate)",
    "int(20, shift=3)",
    "fixed(20, 0, rounding=rne)",
    "fp32",
    "fp64",
    "e5m10",
    "e5m10/rtz",
    "e6m9/sat",
    "e5m10/sr8",
    "kahan(bf16)",
    "two_sum(e5m10)",
    "exact(fp32)",
    "binned(fp32)",
    "chunked(8, e5m10)",
    "chunked(4, exact(fp32))",
    "pairwise(e5m10/sr8, 4)",
    "interleaved(3, bf16)",
    "splitk(3, fp32, bf16)",
    "shuffled(bf16, 3)",
    "chunked(4, int(20), fixed(24,0))",
    "fixed(16,4)",
    "sequential(fp32, mul=e4m3/sat)",
]


@pytest.mark.parametrize("accumulator", ACCUMULATORS)
def test_an_exact_table_is_the_ordinary_product(exact8, accumulator):
    spec = GemmSpec(product=exact8, accumulator=accumulator)
    for name in isas():
        cpu.set_isa(name)
        for m, k, n in ((5, 37, 21), (9, 1, 1)):
            a, b = torch.randint(-128, 128, (m, k)).float(), torch.randint(-128, 128, (k, n)).float()
            want = gs.qmatmul(a, b, f"int8 : {accumulator}", seed=3)
            assert_bitwise_equal(gs.qmatmul(a, b, spec, seed=3), want, context=name)
    cpu.set_isa(isas()[0])


def test_any_table_is_its_terms_added_up(cut8):
    """Of random codes, and of a table of which no formula is known."""
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(256, 16, generator=generator).round(decimals=2)
    table = gs.acc.table(values, "e4m3", "e2m1")
    a, b = torch.randn(3, 40, generator=generator), torch.randn(40, 6, generator=generator)
    for one in (table, cut8):
        left = one.a.encode(gs.quantize(a, one.a)).long()
        right = one.b.encode(gs.quantize(b, one.b)).long()
        terms = torch.tensor(one.products).view(one.shape)[left.unsqueeze(-1), right.unsqueeze(0)]
        for accumulator in ("fp64", "e5m10", "chunked(4, e5m10)"):
            rows = [gs.qmatmul(torch.ones(1, 40).double(), t, f":{accumulator}") for t in terms.double()]
            got = gs.qmatmul(a, b, GemmSpec(product=one, accumulator=accumulator), out_dtype=torch.float64)
            assert_bitwise_equal(got, torch.cat(rows))


@pytest.mark.parametrize("accumulator", ACCUMULATORS)
def test_a_table_without_a_formula_is_the_reference(cut8, accumulator):
    generator = torch.Generator().manual_seed(len(accumulator))
    spec = GemmSpec(product=cut8, accumulator=accumulator)
    a, b = torch.randint(-128, 128, (3, 21), generator=generator).float(), torch.randn(21, 4, generator=generator) * 60
    want = torch.tensor(gs.reference.gemm(a.tolist(), b.tolist(), spec, seed=2), dtype=torch.float64)
    assert_bitwise_equal(gs.qmatmul(a, b, spec, seed=2, out_dtype=torch.float64), want)


def test_batches_strides_broadcasts_and_nothing(exact8):
    spec = f":lookup({exact8}, e5m10/sr8)"
    a, b = torch.randint(-9, 9, (2, 1, 7, 33)).float(), torch.randint(-9, 9, (3, 33, 5)).float()
    want = gs.qmatmul(a, b, "int8 : e5m10/sr8", seed=1)
    assert_bitwise_equal(gs.qmatmul(a, b, spec, seed=1), want)
    turned = a.mT.contiguous().mT, b.mT.contiguous().mT
    assert_bitwise_equal(gs.qmatmul(*turned, spec, seed=1), want)
    assert gs.qmatmul(torch.ones(0, 4), torch.ones(4, 2), spec).shape == (0, 2)
    assert_bitwise_equal(gs.qmatmul(torch.ones(2, 0), torch.ones(0, 2), spec), torch.zeros(2, 2))


def test_nan_without_a_code_is_a_nan_product(exact8):
    a, b = torch.ones(3, 4), torch.ones(4, 3)
    a[1, 2] = float("nan")
    got = gs.qmatmul(a, b, f":lookup({exact8}, fp32)")
    assert got[1].isnan().all() and (got[::2] == 4).all()
    with pytest.raises(ValueError, match="NaN"):
        gs.qmatmul(a, b, f":lookup({exact8}, int(32))")


def test_counts_overflows(exact8):
    a, b = torch.randint(-128, 128, (6, 64)).float(), torch.randint(-128, 128, (64, 9)).float()
    want = gs.acc.count_overflows(a, b, "int8 : int(16)")
    assert want.sum() > 0
    assert torch.equal(gs.acc.count_overflows(a, b, f":lookup({exact8}, int(16))"), want)


def test_layers_gradients_and_convolutions(cut8):
    layer = gs.nn.QLinear(6, 3, bias=False, spec=f":lookup({cut8}, fp32)")
    x = torch.randint(-99, 99, (4, 6)).float().requires_grad_()
    layer.weight.data = torch.randint(-99, 99, (3, 6)).float()
    g = torch.randint(-99, 99, (4, 3)).float()
    y = layer(x)
    y.backward(g)
    spec = GemmSpec(product=cut8, accumulator="fp32")
    assert_bitwise_equal(y.detach(), gs.qmatmul(x.detach(), layer.weight.detach().t(), spec))
    assert_bitwise_equal(x.grad, gs.qmatmul(g, layer.weight.detach(), spec))
    assert_bitwise_equal(layer.weight.grad, gs.qmatmul(x.detach().t(), g, spec).t())
    conv = gs.nn.QConv2d(2, 3, 3, spec=f":lookup({cut8}, int(32))")
    assert conv(torch.randn(1, 2, 5, 5) * 50).shape == (1, 3, 3, 3)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_bitwise_equal(compiled(x), y)


def test_text_json_pickle_and_transposition(cut8, exact8):
    spec = GemmSpec.parse(f"int8 : lookup({cut8}, chunked(4, e5m10)) -> bf16")
    assert GemmSpec.parse(str(spec)) == spec == GemmSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert spec.product == cut8 and spec == GemmSpec(product=cut8, accumulator="chunked(4, e5m10)", out="bf16")
    assert pickle.loads(pickle.dumps(cut8)) == cut8 == ProductTable.from_json(cut8.to_json())
    turned = cut8.transposed()
    assert turned != cut8 and turned.transposed() == cut8 and turned.product(3, 200) == cut8.product(200, 3)
    assert GemmSpec.parse(f":lookup({cut8}.t, fp32)").accumulator.products == turned
    assert exact8.transposed() is exact8 and Lookup(exact8, "fp32").transposed() == Lookup(exact8, "fp32")
    assert "256 x 256 products" in gs.explain(spec)


@pytest.mark.parametrize(
    "act, words",
    [
        (lambda: gs.acc.table([[1.0]], "int8"), "table of 1 x 1 products"),
        (lambda: gs.acc.table([["x"] * 4] * 4, "uint2"), "not rows of numbers"),
        (lambda: gs.acc.table([[1.0]], "fp16"), "up to 8 bits"),
        (lambda: gs.acc.table([[1.0]], "nonsense"), "unknown format"),
        (lambda: gs.acc.table([[1.0] * 4] * 4, "uint2", name="A b"), "a word of a-z"),
        (lambda: gs.acc.lookup("test_missing", "fp32"), "known in this process"),
        (lambda: gs.acc.lookup("test_exact8", "hw(hopper, wgmma, e4m3)"), "take any format"),
        (lambda: gs.acc.chunked(4, "lookup(test_exact8, fp32)"), "outermost"),
        (lambda: gs.acc.palette("lookup(test_exact8, fp32)", "fp32"), "without a table"),
        (lambda: GemmSpec.parse("fp16 : lookup(test_exact8, fp32)"), "operand a"),
        (lambda: GemmSpec.parse("mxfp8_e4m3 : lookup(test_exact8, fp32)"), "accumulators that take any format"),
        (lambda: GemmSpec.parse(":lookup(test_exact8, fp32), arithmetic=fp32"), "a table gives products"),
        (lambda: GemmSpec(product="fp16", accumulator="lookup(test_exact8, fp32)"), "the table has the products"),
    ],
)
def test_says_what_is_wrong(exact8, act, words):
    with pytest.raises(SpecError, match=words):
        act()


def test_a_name_stands_for_one_table():
    gs.acc.table([[0.5] * 4] * 4, "uint2", name="test_once")
    gs.acc.table([[0.5] * 4] * 4, "uint2", name="test_once")
    with pytest.raises(SpecError, match="other products than before"):
        gs.acc.table([[0.25] * 4] * 4, "uint2", name="test_once")
    with pytest.raises(SpecError, match="not integers"):
        gs.acc.lookup("test_once", "int(8)")


def test_an_addend_is_refused(exact8):
    with pytest.raises((SpecError, UnsupportedSpec)):
        gs.qmm(torch.ones(2, 2), torch.ones(2, 2), f":lookup({exact8}, fp32)", c=torch.ones(2, 2))
