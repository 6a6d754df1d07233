"""Carrier-exact products: the predicate on both sides of its edge, and the bits of what it lets through.

The claim: if every partial sum is a multiple of 2^l of magnitude at most 2^(l+p), a GEMM in a carrier of p bits returns
the exact sum, and an accumulator whose every register holds those numbers returns it too.
"""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim import acc, reference
from gemmsim.backends import cpu, exact_blas
from gemmsim.backends.exact_blas import Facts, Proof, exact, facts_of_data, facts_of_formats
from gemmsim.backends.exact_blas import run as native_run
from gemmsim.backends.product import Ran
from gemmsim.formats import parse
from gemmsim.lowering.refusal import Refusal


def facts(units, *, lsb_a=0, lsb_b=0, units_a=1, units_b=1, finite=True, nonnegative=False, k=8):
    return Facts(k, lsb_a, lsb_b, units_a, units_b, units, finite, nonnegative)


def carrier(spec, known):
    found = exact(gs.GemmSpec.of(spec), known)
    return found.carrier if isinstance(found, Proof) else None


@pytest.fixture
def always(monkeypatch):
    """Products of any size are worth a look."""
    monkeypatch.setattr(native_run, "_refuses_size", lambda *_: None)


# The predicate


def test_the_edge_of_each_carrier():
    spec = ":exact(fp32)"
    assert carrier(spec, facts(1 << 24)) == "float32"
    assert carrier(spec, facts((1 << 24) + 1)) == "float64"
    assert carrier(spec, facts((1 << 53) - 1)) == "float64"
    assert carrier(spec, facts(1 << 53)) is None
    assert carrier(spec, facts(4, units_a=(1 << 24) + 1)) == "float64"
    assert carrier(spec, facts(4, units_b=1 << 53)) is None


def test_the_range_of_each_carrier_is_that_of_its_normal_numbers():
    spec = ":exact(fp64)"
    assert carrier(spec, facts(9, lsb_a=-100, lsb_b=-26)) == "float32"
    assert carrier(spec, facts(9, lsb_a=-100, lsb_b=-27)) == "float64"
    assert carrier(spec, facts(9, lsb_a=-127, lsb_b=10)) == "float64"  # the operand itself
    assert carrier(spec, facts(9, lsb_a=-1000, lsb_b=-22)) == "float64"
    assert carrier(spec, facts(9, lsb_a=-1000, lsb_b=-23)) is None
    assert carrier(spec, facts((1 << 24) - 1, lsb_a=60, lsb_b=44)) == "float32"  # the largest float32
    assert carrier(spec, facts(1 << 24, lsb_a=60, lsb_b=44)) == "float64"
    assert carrier(spec, facts((1 << 24) - 1, lsb_a=60, lsb_b=45)) == "float64"
    assert carrier(spec, facts(1, lsb_a=1000, lsb_b=24)) is None


@pytest.mark.parametrize(
    ("spec", "inside", "outside"),
    [
        (":e5m10", {"units": 1 << 11}, {"units": (1 << 11) + 1}),
        (":e5m10/rtz", {"units": 1 << 11}, {"units": (1 << 11) + 1}),
        (":e5m10/sr8", {"units": 1 << 11}, {"units": (1 << 11) + 1}),
        (":e5m10", {"units": 9, "lsb_a": -24}, {"units": 9, "lsb_a": -25}),
        (":e5m10/ftz", {"units": 9, "lsb_a": -14}, {"units": 9, "lsb_a": -15}),
        (":e4m3", {"units": 14, "lsb_a": 5}, {"units": 15, "lsb_a": 5}),
        (":fixed(8,4)", {"units": 127, "lsb_a": -4}, {"units": 128, "lsb_a": -4}),
        (":fixed(8,4)", {"units": 9, "lsb_a": -4}, {"units": 9, "lsb_a": -5}),
        (":ufixed(8,0)", {"units": 255, "nonnegative": True}, {"units": 255}),
        ("int8 : int(16)", {"units": 32767}, {"units": 32768}),
        ("int8 : int(16, saturate)", {"units": 32767}, {"units": 32768}),
        ("int8 : int(16)", {"units": 9}, {"units": 9, "lsb_a": -1, "lsb_b": 1}),
        ("int8 : int(16)", {"units": 9}, {"units": 9, "finite": False}),
        (":fixed(16, 4, rounding=rne)", {"units": 32767, "lsb_a": -4}, {"units": 32767, "lsb_a": -5}),
        (":chunked(8, e5m10, bf16)", {"units": 256}, {"units": 257}),
        (":kahan(bf16)", {"units": 256}, {"units": 257}),
        (":binned(bf16)", {"units": 256}, {"units": 257}),
        (":mul=e4m3, add=e5m10", {"units": 16}, {"units": 17}),
        (":promote(pairwise(e5m10), 4, e4m3)", {"units": 16}, {"units": 17}),
        (":bf16, arithmetic=fp32", {"units": 256}, {"units": 256, "units_a": (1 << 24) + 1}),
        (":exact(bf16/sr8)", {"units": 256}, {"units": 257}),
    ],
    ids=str,
)
def test_the_edge_of_each_register(spec, inside, outside):
    found = exact(gs.GemmSpec.of(spec), facts(**inside))
    assert isinstance(found, Proof) and found.final is None
    refused = exact(gs.GemmSpec.of(spec), facts(**outside))
    assert isinstance(refused, Refusal) and str(refused)


def test_what_has_no_proof():
    for spec in (acc.cublas_fp32(), acc.palette("bf16", "fp32"), acc.sequential("fp32", init="c_first")):
        assert isinstance(exact(gs.GemmSpec.of(spec), facts(9)), Refusal)
    assert isinstance(exact(gs.GemmSpec.of("int8 : int(32, shift=1)"), facts(9)), Refusal)
    assert exact(gs.GemmSpec.of(":exact(bf16)"), facts(999, finite=False)).final == gs.Cast(parse("bf16"))


# Facts


def test_facts_of_formats():
    e4m3 = facts_of_formats(4096, parse("e4m3"), parse("e4m3"))
    assert (e4m3.lsb, e4m3.total, e4m3.finite) == (-18, 4096 * 448 * 448, False)
    assert carrier(":exact(fp32)", e4m3) == "float64"
    most = ((1 << 53) - 1) // e4m3.units_a**2  # largest K with a proof
    assert carrier(":exact(fp32)", facts_of_formats(most, parse("e4m3"), parse("e4m3"))) == "float64"
    assert carrier(":exact(fp32)", facts_of_formats(most + 1, parse("e4m3"), parse("e4m3"))) is None
    int8 = facts_of_formats(1024, parse("int8"), parse("int8"))
    assert int8.units == 1 << 24 and carrier(":exact(fp32)", int8) == "float32"
    assert carrier(":exact(fp32)", facts_of_formats(1025, parse("int8"), parse("int8"))) == "float64"
    assert facts_of_formats(9, parse("fixed(8,4,unbounded)"), parse("int8")) is None
    assert facts_of_formats(9, parse("uint8"), parse("uint4")).nonnegative


def test_facts_of_data_are_those_of_the_numbers():
    g = torch.Generator().manual_seed(0)
    for trial in range(40):
        exponents = torch.randint(-30, 30, (5, 7), generator=g) if trial % 2 else torch.full((5, 7), -trial)
        a = torch.ldexp(torch.randint(-99, 100, (5, 7), generator=g).double(), exponents)
        b = torch.randint(-5, 6, (7, 3), generator=g).double() * 0.75
        known = facts_of_data(a, b)
        values_a, values_b = ([Fraction(v) for v in t.flatten().tolist() if v] for t in (a, b))
        assert all((v / Fraction(2) ** known.lsb_a).denominator == 1 for v in values_a)
        assert any(v / Fraction(2) ** known.lsb_a % 2 == 1 for v in values_a)
        assert any(v / Fraction(2) ** known.lsb_b % 2 == 1 for v in values_b)
        assert max(map(abs, values_a)) == known.units_a * Fraction(2) ** known.lsb_a
        sums = a.abs() @ b.abs()
        assert Fraction(float(sums.max())) <= known.total


def test_facts_of_special_data():
    zero, one = torch.zeros(2, 2).double(), torch.ones(2, 2).double()
    assert facts_of_data(zero, one).units == 0 and facts_of_data(zero, -zero).nonnegative
    for bad in (math.nan, math.inf, -math.inf):
        assert facts_of_data(one, torch.tensor([[1, bad], [2, 3.0]]).double()) is None
    tiny = torch.full((2, 2), 5e-324, dtype=torch.float64)
    assert facts_of_data(tiny, one).lsb_a <= -1074
    assert not facts_of_data(-one, one).nonnegative


def test_a_sum_that_float64_rounds_down_to_the_edge_is_refused():
    """2^53 units and one more sum to 2^53 in float64: the bound must not be taken for exact."""
    a = torch.tensor([[2.0**52, 2.0**52, 1.0]], dtype=torch.float64)
    known = facts_of_data(a, torch.ones(3, 1).double())
    assert known.units >= 1 << 53 and carrier(":exact(fp32)", known) is None
    inside = facts_of_data(torch.tensor([[2.0**52, 2.0**52 - 1]], dtype=torch.float64), torch.ones(2, 1).double())
    assert inside.units == (1 << 53) - 1 and carrier(":exact(fp64)", inside) == "float64"


# The bits


def both(a, b, spec, seed=5, dtype=torch.float32):
    """The native product (None if refused) and the CPU backend's."""
    spec = gs.GemmSpec.of(spec)
    outs = [torch.empty(*a.shape[:-1], b.shape[-1], dtype=dtype) for _ in range(2)]
    found = exact_blas.gemm(a, b, spec, outs[0], seed)
    run = found if isinstance(found, Ran) else None
    cpu.gemm(a, b, spec, outs[1], seed)
    return run, *outs


def integers(rows, cols, most, seed=0, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-most, most + 1, (rows, cols), generator=g).double() * scale


SPECS = [
    ":exact(fp32)",
    ":exact(e4m3/sat) -> e3m2",
    ":exact(e5m10/rtz)",
    "int8 : exact(bf16)",
    "e4m3 : exact(fp32)",
    "e5m2/sr8 : exact(fp64) -> bf16/sr8",
    ":binned(fp32)",
    ":binned(e8m20, carry=1)",
    ":e8m20/sr8",
    ":chunked(4, e8m20/sr8, fp32)",
    ":pairwise(e8m20/sr4)",
    ":kahan(e8m20/sr4)",
    ":interleaved(3, binned(fp32))",
    ":shuffled(exact(fp32), 3)",
    ":sequential(e8m20/sr8, seed=3)",
]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_native_products_have_the_bits_of_the_kernels(spec, dtype):
    for seed, (m, k, n, scale) in enumerate([(5, 9, 7, 1), (1, 1, 1, 0.5), (3, 40, 2, 2.0**-9), (4, 8, 9, 64.0)]):
        a, b = (integers(*s, 7, seed + i, scale).to(dtype) for i, s in enumerate(((m, k), (k, n))))
        run, got, want = both(a, b, spec, dtype=dtype)
        assert run is not None, spec
        assert_bitwise_equal(got, want, context=spec)


@pytest.mark.usefixtures("always")
def test_native_products_against_the_reference():
    a, b = integers(3, 12, 99, 1, 0.25), integers(12, 4, 99, 2)
    for text in (
        ":exact(e5m10)",
        ":exact(e4m3/sat)",
        "int8 : exact(e5m2)",
        ":binned(fp32)",
        ":chunked(4, e8m20/sr8, fp32)",
    ):
        spec = gs.GemmSpec.of(text)
        got = torch.empty(3, 4, dtype=torch.float64)
        assert isinstance(exact_blas.gemm(a, b, spec, got, 7), Ran)
        want = torch.tensor(reference.gemm(a.tolist(), b.tolist(), spec, seed=7), dtype=torch.float64)
        assert_bitwise_equal(got, want, context=text)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("spec", [":exact(fp32)", ":binned(fp32)", ":e8m20/sr8", ":exact(e5m2)", ":exact(fixed(8,4))"])
def test_zeros(spec):
    minus = torch.tensor([[-0.0, -0.0], [0.0, -0.0], [1.0, -1.0], [-1e-3, 0.0]])
    for columns in ([[1.0, -1.0], [1.0, 0.0]], [[0.0, -0.0], [-0.0, 0.0]], [[3.0, 1.0], [3.0, -0.0]]):
        b = torch.tensor(columns)
        run, got, want = both(minus[:3], b, spec)
        assert run is not None
        assert_bitwise_equal(got, want, context=spec)
    if "exact" in spec:  # a negative sum that the last rounding makes zero keeps its sign where there is -0
        run, got, want = both(minus * 2.0**-20, b, spec)
        assert run is not None
        assert_bitwise_equal(got, want, context=spec)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("spec", [":exact(fp32)", ":binned(fp32)", ":e8m20/sr8", ":exact(fp32) -> bf16"])
def test_a_gemm_that_starts_from_its_first_product_may_return_minus_zero(spec, monkeypatch):
    a, b = torch.tensor([[-0.0], [0.0], [2.0]]), torch.tensor([[1.0, 0.0, -3.0]])
    monkeypatch.setattr(torch, "matmul", lambda x, y: x * y)  # for K = 1
    run, got, want = both(a, b, spec)
    assert run is not None
    assert_bitwise_equal(got, want, context=spec)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    "spec", ["ieee_e3m2 : exact(e4m3)", "ieee_e3m2 : exact(e5m2/sat)", "ieee_e3m2 : exact(fp32) -> e4m3/sat"]
)
def test_nan_and_infinity_where_formats_alone_prove(spec):
    values = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -3.0, 57344.0]
    a = torch.tensor(values).repeat_interleave(8).reshape(64, 1).expand(64, 3).clone()
    b = torch.tensor(values * 8).reshape(8, 8)[:3]
    run, got, want = both(a, b, spec)
    assert run is not None
    assert_bitwise_equal(got, want, context=spec)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_data_that_is_not_finite_is_refused(bad):
    a, b = integers(4, 4, 3).float(), integers(4, 4, 3).float()
    a[3, 3] = bad  # past what a glance sees
    for spec in (":binned(fp32)", ":e8m20/sr8", ":exact(fp32)"):
        assert both(a, b, spec)[0] is None


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("spec", "p"), [(":e8m10/sr8", 11), (":chunked(2, e8m10/sr8, fp32)", 11), (":binned(bf16)", 8)]
)
def test_one_unit_inside_runs_natively_and_equals_and_one_outside_does_not(spec, p):
    edge = float(1 << p)
    b = torch.ones(3, 2)
    run, got, want = both(torch.tensor([[edge - 2, 1.0, 1.0]]), b, spec)
    assert run is not None and got.tolist() == [[edge, edge]]
    assert_bitwise_equal(got, want)
    assert both(torch.tensor([[edge - 1, 1.0, 1.0]]), b, spec)[0] is None


@pytest.mark.usefixtures("always")
def test_float64_at_its_edge_and_past_it():
    ones = torch.ones(2, 1, dtype=torch.float64)
    inside = torch.tensor([[2.0**53 - 2, 1.0]], dtype=torch.float64)
    run, got, want = both(inside, ones, ":exact(fp64)", dtype=torch.float64)
    assert run is not None and got.item() == 2.0**53 - 1
    assert_bitwise_equal(got, want)
    outside = torch.tensor([[2.0**53, 1.0]], dtype=torch.float64)
    run, _, want = both(outside, ones, ":exact(fp64)", dtype=torch.float64)
    assert run is None and want.item() == 2.0**53


@pytest.mark.usefixtures("always")
def test_float32_carries_only_where_pytorch_computes_in_it(monkeypatch):
    a, b = integers(4, 5, 9).float(), integers(5, 6, 9).float()
    assert "in float32" in str(both(a, b, "int8 : exact(fp32)")[0])
    monkeypatch.setenv("DNNL_DEFAULT_FPMATH_MODE", "BF16")
    assert "in float64" in str(both(a, b, "int8 : exact(fp32)")[0])
    monkeypatch.delenv("DNNL_DEFAULT_FPMATH_MODE")
    before = torch.backends.mkldnn.matmul.fp32_precision
    try:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        assert "in float64" in str(both(a, b, "int8 : exact(fp32)")[0])
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before
    assert "in float32" in str(both(a, b, "int8 : exact(fp32)")[0])


def test_flushing_of_subnormals_does_not_matter():
    a = torch.full((64, 64), 2.0**-140)
    b = torch.full((64, 64), 2.0**-8)
    want = gs.qmatmul(a, b, ":exact(fp32)")
    try:
        if not torch.set_flush_denormal(True):
            pytest.skip("this processor flushes nothing")
        got = gs.qmatmul(a, b, ":exact(fp32)")
    finally:
        torch.set_flush_denormal(False)
    assert_bitwise_equal(got, want)


# Through the operators


def test_qmatmul_takes_it_by_itself():
    a, b = integers(64, 32, 9).float(), integers(32, 48, 9, 1).float()
    got = gs.qmatmul(a, b, ":exact(fp32)")
    record = gs.last_backend()
    assert record.backend == "blas" and record.spec == ":exact()" and "carrier-exact" in record.plan
    assert_bitwise_equal(got, a @ b)
    batch = torch.stack([a, 3 * a])
    assert_bitwise_equal(gs.qmatmul(batch, torch.stack([b, b]), "int8 : exact(fp32)"), batch @ b)
    assert gs.last_backend().backend == "blas"
    gs.qmatmul(torch.randn(64, 32), torch.randn(32, 48), ":exact(fp32)")
    assert gs.last_backend().backend == "cpu"
    gs.qmatmul(a, b, ":e5m10")
    assert gs.last_backend().backend == "cpu"


def test_gradients_of_a_native_product():
    a, b = (integers(64, 64, 3, i).float().requires_grad_() for i in range(2))
    gs.qmatmul(a, b, ":exact(fp32)").sum().backward()
    assert gs.last_backend().backend == "blas"
    assert_bitwise_equal(a.grad, torch.ones(64, 64) @ b.detach().mT)


def test_formats_prove_for_operands_that_autograd_casts_beforehand():
    g = torch.Generator().manual_seed(2)
    a, b = (torch.randn(64, 64, generator=g).requires_grad_() for _ in range(2))
    y = gs.qmatmul(a, b, "e4m3 : exact(fp32)")
    assert gs.last_backend().backend == "blas"
    with torch.no_grad():
        assert_bitwise_equal(y.detach(), gs.qmatmul(a, b, "e4m3 : exact(fp32)"))


def test_candidates_are_what_the_kernels_run_slowly():
    slow = [
        ":exact(fp32)",
        ":chunked(4, exact(fp32), fp32)",
        ":bf16/sr8",
        ":splitk(2, bf16, fp32/sr8)",
        ":binned(fp32)",
    ]
    fast = [":fp32", ":e5m10", "int8 : int(32)", ":kahan(fp32)", ":hw(hopper, wgmma, bf16)", ":chunked(4, e5m10)"]
    assert all(exact_blas.is_candidate(gs.GemmSpec.of(text)) for text in slow)
    assert not any(exact_blas.is_candidate(gs.GemmSpec.of(text)) for text in fast)


def test_no_pass_over_operands_for_a_proof_that_some_rows_refuse(monkeypatch):
    """Random e4m3 operands do not fit e5m10: that shows in 16 rows, and nothing larger is looked at."""
    from gemmsim.backends.exact_blas import run

    seen = []

    def looked(a, b, facts=run.facts_of_data):
        seen.append(a.shape[-2] * b.shape[-1])
        return facts(a, b)

    monkeypatch.setattr(run, "facts_of_data", looked)
    a, b = (torch.randn(512, 512, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    gs.qmatmul(a, b, "e4m3 : e5m10/sr8", seed=1)
    assert all(size <= 256 for size in seen)
    assert gs.last_backend().backend == "cpu"
    signs = a.sign()
    gs.qmatmul(signs[:, :128], signs[:128], "e4m3 : e5m10/sr8", seed=1)
    assert gs.last_backend().backend == "blas"
