"""Sums that the device's matrix instruction cuts nothing of: the edge, the bits, and what is asked of the device, on a GPU made
of Python whose instructions are those of ``gemmsim.hardware``."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal
from support.tensor_cores import fake_gpu  # noqa: F401

import gemmsim as gs
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu, cuda, exact_blas
from gemmsim.backends.exact_blas import run as native_run
from gemmsim.backends.product import Ran
from gemmsim.lowering.refusal import Refusal


@pytest.fixture
def on_gpu(fake_gpu, monkeypatch):  # noqa: F811
    monkeypatch.setattr(native_run, "_on_cpu", lambda x: False)
    monkeypatch.setattr(native_run, "_SCALAR_WORK", 0)
    monkeypatch.setattr(native_run, "_STOCHASTIC_WORK", 0)
    monkeypatch.setattr(native_run, "_REUSE", 0)
    monkeypatch.setattr(native_run, "_gemm_is_exact", lambda device: False)  # no other native product
    return fake_gpu


def operands(low, high, k, m=20, n=12, step=1.0):
    g = torch.Generator().manual_seed(k)
    return tuple(torch.randint(low, high, s, generator=g) * step for s in ((m, k), (k, n)))


@pytest.mark.parametrize("arch", ["hopper", "ampere"])
@pytest.mark.parametrize("spec", ["int8 : exact(fp32)", "e2m1 : exact(e5m10) -> bf16/sr4", "uint8 * int4 : exact(fp32) -> e5m2"])  # fmt: skip
def test_the_bits_of_the_spec(on_gpu, arch, spec):
    on_gpu.arch, meaning = arch, GemmSpec.of(spec)
    a, b = operands(-150, 150, 300)
    a[0] = b[:, 3] = 0.0
    want, got = torch.empty(20, 12), torch.full((20, 12), 3.0)
    cpu.gemm(a, b, meaning, want, 7)
    record = exact_blas.gemm(a, b, meaning, got, 7)
    assert isinstance(record, Ran) and record.backend == "cuda"
    assert "gemm_instruction<" in str(record) and "truncates none of these sums" in str(record)
    assert_bitwise_equal(got, want)


@pytest.mark.parametrize(("arch", "k"), [("hopper", 512), ("ampere", 512)])
def test_the_edge(on_gpu, arch, k):
    """int8 by int8 needs 14 bits and those of K: 23 are kept and converted to, so 512 terms are the most."""
    on_gpu.arch, meaning = arch, GemmSpec.of("int8 : exact(fp32)")
    a, b = torch.full((4, k + 1), -128.0), torch.full((k + 1, 4), -128.0)
    out = torch.empty(4, 4)
    assert isinstance(exact_blas.gemm(a[:, :k], b[:k], meaning, out, 0), Ran)
    assert bool((out == 128.0 * 128 * k).all())
    assert isinstance(exact_blas.gemm(a, b, meaning, out, 0), Refusal)


def test_what_is_not_taken(on_gpu, monkeypatch):
    out = torch.empty(20, 12)
    a, b = operands(-8, 8, 64)
    assert isinstance(exact_blas.gemm(a, b, GemmSpec.of("int16 : exact(fp32)"), out, 0), Refusal), (
        "neither bfloat16 nor float16 holds it"
    )
    assert isinstance(exact_blas.gemm(a, b, GemmSpec.of("e4m3 : exact(fp32)"), out, 0), Refusal), "sums of more bits"
    assert not on_gpu.launches
    cuda.allow_tensor_cores(False)
    assert isinstance(exact_blas.gemm(a, b, GemmSpec.of("int4 : exact(fp32)"), out, 0), Refusal)
    cuda.allow_tensor_cores(True)
    on_gpu.arch = "volta"
    assert isinstance(exact_blas.gemm(a, b, GemmSpec.of("int4 : exact(fp32)"), out, 0), Refusal)
    on_gpu.arch, on_gpu.silicon = "hopper", gs.hardware.instruction("ampere", "mma.m16n8k16.f32.bf16.bf16.f32")
    assert isinstance(exact_blas.gemm(a, b, GemmSpec.of("int4 : exact(fp32)"), out, 0), Refusal), (
        "not equal to its model"
    )


def test_nan_and_infinity(on_gpu):
    """Of formats that have them, exact(...) alone, whose rule is that of instructions."""
    meaning = GemmSpec.of("e3m1 : exact(fp32)")
    a, b = operands(-4, 4, 40)
    a[1, 3], a[2, 4], b[5, 2], a[3, 5], a[4, 5] = float("nan"), float("inf"), -float("inf"), 0.0, float("inf")
    want, got = torch.empty(20, 12), torch.empty(20, 12)
    cpu.gemm(a, b, meaning, want, 7)
    assert isinstance(exact_blas.gemm(a, b, meaning, got, 7), Ran)
    assert_bitwise_equal(got, want)
