"""Operands in block formats under cublas_acceleration: which types they name, why others are refused, and what PyTorch's
call is given, against a stand-in for it that computes on the host from the layouts its documentation describes."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.rounding import gamma

import gemmsim as gs
from gemmsim.backends import cublas
from gemmsim.backends.cublas import block_scaled
from gemmsim.formats import parse_block
from gemmsim.lowering.refusal import Refusal
from gemmsim.mx import from_blocked


def operands(m=20, k=64, n=32, batch=()):
    g = torch.Generator().manual_seed(m + k)
    return torch.randn(*batch, m, k, generator=g), torch.randn(k, n, generator=g)


def named(spec, mode=None):
    found = cublas.native_type(gs.GemmSpec.of(spec), torch.float32, torch.float32, mode)
    return found.name if isinstance(found, cublas.NativeType) else found.reason


@pytest.mark.parametrize(("spec", "name"), [
    ("mxfp8_e4m3 : fp32", "mxfp8"), ("mxfp8_e4m3 * mxfp8_e5m2 : fp32 -> bf16", "mxfp8 e4m3*e5m2"),
    ("mxfp8_e5m2 * mxfp8_e4m3 : fp32", "mxfp8 e5m2*e4m3"), ("nvfp4 : fp32", "nvfp4"), ("nvfp4/tensor : fp32", "nvfp4"),
    ("mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)", "mxfp8"), ("nvfp4 : hw(rtx_blackwell, mxf4nvf4, e2m1)", "nvfp4"),
    ("mxfp8_e4m3 * bf16 : fp32", "one operand in a block format"), ("mxfp8_e5m2 : fp32", "no native product of mxfp8_e5m2"),
    ("mxfp4 : fp32", "no native product of mxfp4"), ("mxfp8_e4m3 : scaled(fp32)", "has the accumulator scaled"),
    ("mxfp8_e4m3 : bf16", "has the accumulator e8m7"), ("mxfp8_e4m3/b16 : fp32", "no native product of"),
])  # fmt: skip
def test_types(spec, name):
    assert name in named(spec)
    assert named(spec) != name or "has no pedantic form" in named(spec, "pedantic")


def _stand_in(calls):
    """torch._scaled_mm from the layouts of its operands: rows of codes, columns of codes, swizzled scales."""

    def scaled_mm(a, b, *, scale_a, scale_b, out_dtype):
        nvfp4 = a.dtype == torch.float4_e2m1fn_x2
        fmt, size = (parse_block("nvfp4"), 16) if nvfp4 else (None, 32)
        sides = []
        for x, scale in ((a, scale_a), (b.t(), scale_b)):
            assert x.is_contiguous() and scale.dim() == 1
            raw = x.view(torch.uint8)
            if nvfp4:
                raw = torch.stack([raw & 15, raw >> 4], -1).flatten(-2)
            rows, k = raw.shape
            codes = from_blocked(scale.view(torch.uint8), rows, -(-k // size))
            if not nvfp4:
                fmt = parse_block("mxfp8_e4m3" if x.dtype == torch.float8_e4m3fn else "mxfp8_e5m2")
            sides.append(gs.mx.decode((raw, codes), fmt, packing="bytes").double())
        calls.append((a.dtype, b.dtype, scale_a.dtype))
        return (sides[0] @ sides[1].mT).to(out_dtype)

    return scaled_mm


@pytest.fixture
def blackwell(monkeypatch):
    """A device of compute capability 10.0 for tensors of the CPU."""
    calls = []
    monkeypatch.setattr(torch, "_scaled_mm", _stand_in(calls))
    capability = lambda native, device: None if (10, 0) >= native.oldest else Refusal("too old")  # noqa: E731
    monkeypatch.setattr("gemmsim.backends.cublas.block_scaled.cpu_refuses", lambda native: capability(native, None))
    return calls


@pytest.mark.parametrize(("spec", "dtypes"), [
    ("mxfp8_e4m3 * mxfp8_e5m2 : fp32", (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu)),
    ("mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3) -> e5m2/sr8", (torch.float8_e4m3fn, torch.float8_e4m3fn, torch.float8_e8m0fnu)),
    ("nvfp4 : fp32", (torch.float4_e2m1fn_x2, torch.float4_e2m1fn_x2, torch.float8_e4m3fn)),
    ("nvfp4/tensor : hw(blackwell, mxf4nvf4, e2m1)", (torch.float4_e2m1fn_x2, torch.float4_e2m1fn_x2, torch.float8_e4m3fn)),
], ids=str)  # fmt: skip
def test_what_the_library_is_given(blackwell, spec, dtypes):
    meaning = gs.GemmSpec.of(spec)
    for m, k, n, batch in ((20, 64, 32, ()), (200, 160, 144, ()), (3, 96, 16, (2, 2)), (1, 32, 16, ())):
        a, b = operands(m, k, n, batch)
        with gs.cublas_acceleration(True):
            got = gs.qmatmul(a, b, spec, seed=3)
        record = gs.last_backend()
        assert record.backend == "cublas" and "torch._scaled_mm with scales of blocks" in record.plan
        assert blackwell[-1] == dtypes
        x, y = gs.mx.quantize(a, meaning.a, dim=-1).double(), gs.mx.quantize(b, meaning.b, dim=-2).double()
        if meaning.out is None:
            bound = gamma(3) * (x.abs() @ y.abs())  # float64 sums, rounded, and the tensors' two scales
            assert bool(((got.double() - x @ y).abs() <= bound).all())
        else:
            sums = (x @ y).float()  # the tensors' scales are 1
            assert_bitwise_equal(got, _output(sums, meaning.out))


def _output(sums, cast):
    out = torch.empty_like(sums)
    from gemmsim.backends import cpu

    cpu.quantize(sums, cast, out, 3, 4)
    return out


def test_encoded_operands(blackwell):
    a, b = operands()
    left, right = gs.mx.encode(a, "mxfp8_e4m3", dim=-1), gs.mx.encode(b, "mxfp8_e4m3", dim=-2)
    with gs.cublas_acceleration(True):
        got = gs.mx.matmul(left, right, "fp32", a_format="mxfp8_e4m3", b_format="mxfp8_e4m3")
    assert gs.last_backend().backend == "cublas" and len(blackwell) == 1
    want = gs.mx.quantize(a, "mxfp8_e4m3").double() @ gs.mx.quantize(b, "mxfp8_e4m3", dim=0).double()
    assert_bitwise_equal(got, want.float())


def test_reasons_of_sizes_and_batches(blackwell):
    spec = "mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)"
    for k, n, batch, reason in ((48, 32, (), "multiples of 16 for N and of 32 for K, not (32, 48)"), (64, 24, (), "not (24, 64)"), (64, 32, (2,), "not batches")):  # fmt: skip
        a, b = operands(8, k, n, batch)
        b = torch.stack([b, b]) if batch else b
        want = gs.qmatmul(a, b, spec)
        with gs.cublas_acceleration(True):
            got = gs.qmatmul(a, b, spec)
        assert_bitwise_equal(got, want)
        assert "cublas_acceleration refused: native type mxfp8 takes" in gs.last_backend().plan
        assert reason in gs.last_backend().plan and gs.last_backend().backend == "cpu"
    assert not blackwell


@pytest.mark.parametrize(("spec", "reason"), [
    ("mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)", "names a GPU's instruction"),
    ("mxfp8_e4m3 : scaled(fp32)", "has the accumulator scaled"), ("mxfp4 * bf16 : scaled(fp32)", "one without"),
])  # fmt: skip
def test_on_the_cpu_the_meaning_stays_and_the_reason_is_told(spec, reason):
    a, b = operands()
    want = gs.qmatmul(a, b, spec)
    assert "refused" not in gs.last_backend().plan
    with gs.cublas_acceleration(True):
        assert_bitwise_equal(gs.qmatmul(a, b, spec), want)
    assert reason in gs.last_backend().plan.split("cublas_acceleration refused: ")[1]


def test_decoded_values_take_the_native_type_of_their_dtype():
    """Where the library takes no block formats, their values are multiplied by it: decoding, then BLAS."""
    a, b = operands()
    with gs.cublas_acceleration(True):
        got = gs.mx.matmul(a, b, "fp32", a_format="mxfp4", b_format="mxfp8_e4m3")
    assert gs.last_backend().backend == "blas" and "native type fp32" in gs.last_backend().plan
    assert_bitwise_equal(got, gs.mx.quantize(a, "mxfp4") @ gs.mx.quantize(b, "mxfp8_e4m3", dim=0))


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    reasons = {}
    for capability in ((9, 0), (10, 0), (12, 0)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, c=capability: c)
        found = cublas.native_type(
            gs.GemmSpec.of("mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)"), torch.float32, torch.float32
        )
        reasons[capability] = cublas.device_refuses(found, torch.device("cuda:0"))
    assert "needs compute capability 10.0" in str(reasons[9, 0]) and reasons[10, 0] is None
    assert "another architecture" in str(reasons[12, 0])
    assert "nothing to multiply" in str(block_scaled.refuses_shape(found, 0, 16, 32))
