"""Native products on a GPU: each type runs, is near the exact product, leaves the flags alone, and says its name."""

from __future__ import annotations

import threading

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cublas, exact_blas
from gemmsim.backends.cublas import run as run_of_types
from gemmsim.backends.product import Ran

pytestmark = pytest.mark.gpu


def operands(m=128, k=256, n=64, batch=()):
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(*batch, m, k, generator=g), torch.randn(*batch, k, n, generator=g)
    return a.cuda(), b.cuda()


def run(a, b, spec, mode=None, dtype=torch.float32):
    """The native product and its record; the test is skipped where this GPU has no such type."""
    spec = GemmSpec.of(spec)
    found = cublas.native_type(spec, a.dtype, b.dtype, mode)
    assert isinstance(found, cublas.NativeType), found
    out = torch.full((*a.shape[:-1], b.shape[-1]), torch.nan, dtype=dtype, device=a.device)
    refused = run_of_types.refuses(found, a, b, out)
    if refused is not None:
        pytest.skip(refused.reason)
    return out, cublas.gemm(a, b, spec, out, 0, found)


FLAGS = ("allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction",
         "allow_fp16_accumulation")  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "mode", "narrow", "register"),
    [("fp16 : fp16", None, None, 11), ("fp16 : fp16", "pedantic", None, 11), ("fp16 : fp32", None, None, 24),
     ("bf16 : fp32", None, None, 24), ("bf16 : fp32", "pedantic", None, 24), (":fp32", None, None, 24), (":fp32", "tf32", 11, 24),
     (":fp32", "f16", 11, 24), (":fp32", "bf16", 8, 24), (":fp32", "pedantic", None, 24), ("tf32 : fp32", None, None, 24),
     ("fp64 : fp64", None, None, 53), ("e4m3 : fp32", None, None, 13), (gs.acc.hopper_fp8_fast(), None, None, 13),
     (gs.acc.hopper_fp8_2xacc(), None, None, 13), (gs.acc.cublas_fp32(), None, None, 24)],
    ids=str,
)  # fmt: skip
def test_native_types_against_the_exact_product(spec, mode, narrow, register):
    """``narrow``: bits of what the mode rounds operands to, where it does. ``register``: bits of a sum, of eight-bit types
    what tensor cores keep. Roundings of either sign add up to 4 u sqrt(K) rather than K u."""
    a, b = operands()
    meaning = GemmSpec.of(spec)
    before = [getattr(torch.backends.cuda.matmul, name) for name in FLAGS]
    got, record = run(a, b, spec, mode, torch.float64 if "64" in str(spec) else torch.float32)
    assert [getattr(torch.backends.cuda.matmul, name) for name in FLAGS] == before
    qa, qb = (gs.quantize(t.cpu().double(), c) if c else t.cpu().double() for t, c in ((a, meaning.a), (b, meaning.b)))
    share = (2 * 2.0**-narrow if narrow else 0) + 4 * 2.0**-register * qa.shape[-1] ** 0.5
    assert bool(((got.cpu().double() - qa @ qb).abs() <= 1.01 * share * (qa.abs() @ qb.abs())).all())
    assert record.backend == "cublas"


@pytest.mark.parametrize("spec", ["bf16 : fp32", "fp64 : fp64", "fp16 : fp16"])
def test_integers_are_exact_in_any_layout_and_batch(spec):
    g = torch.Generator().manual_seed(1)
    for shape_a, shape_b in (((33, 70), (70, 18)), ((3, 33, 70), (3, 70, 18)), ((2, 3, 9, 8), (2, 3, 8, 5))):
        a, b = (torch.randint(-3, 4, s, generator=g).float().cuda() for s in (shape_a, shape_b))
        for left, right in ((a, b), (a.mT.contiguous().mT, b), (a, b.mT.contiguous().mT)):
            got, _ = run(left, right, spec)
            assert_bitwise_equal(got.cpu() + 0.0, (a @ b).cpu() + 0.0)


def test_int8_has_the_bits_of_the_emulation():
    g = torch.Generator().manual_seed(1)
    a, b = (torch.randint(-128, 128, s, generator=g).float() for s in ((64, 128), (128, 32)))
    got, _ = run(a.cuda(), b.cuda(), "int8 : int(32)")
    assert_bitwise_equal(got.cpu(), gs.qmatmul(a, b, "int8 : int(32)"))


def test_carrier_exact_products_have_the_bits_of_the_cpu():
    a, b = operands()
    spec = GemmSpec.of("e4m3 : exact(fp32)")
    out = torch.empty(128, 64, device="cuda")
    assert isinstance(exact_blas.gemm(a, b, spec, out, 0), Ran)
    assert_bitwise_equal(out.cpu(), gs.qmatmul(a.cpu(), b.cpu(), spec))


def test_streams_threads_and_graphs():
    a, b = operands()
    want, _ = run(a, b, "bf16 : fp32")
    failures = []

    def work(mode):
        for _ in range(20):
            with torch.cuda.stream(torch.cuda.Stream()):
                got, _ = run(a, b, ":fp32" if mode else "bf16 : fp32", mode)
                torch.cuda.current_stream().synchronize()
            if mode is None and not torch.equal(got, want):
                failures.append(mode)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(mode,)) for mode in (None, "tf32", None)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    x, y, out = a.bfloat16(), b.bfloat16(), torch.empty(128, 64, device="cuda")
    spec = GemmSpec.of(":fp32")
    found = cublas.native_type(spec, x.dtype, y.dtype)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cublas.gemm(x, y, spec, out, 0, found)
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, want)
