"""Kernels of chips' matrix instructions, whole, on the host: what comes when, which place it has, who waits for whom, which
instruction takes it, and where its results go. Instructions are their models, so that the bits are the CPU backend's.

Copies and instructions end as late as they may, then copies as early: a wait that is missing, or a place that is given
away too soon, changes the result (``host/shim.h``, ``host/matrix``).
"""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest
import torch
from support import assert_bitwise_equal
from support.host import host_library
from support.matrix import chain_product, launching, scaled_product
from support.tensor_cores import fake_gpu, run_on_gpu, simt_blocks  # noqa: F401

import gemmsim as gs
from gemmsim.arithmetic import Accumulator, GemmSpec
from gemmsim.backends import cpu
from gemmsim.backends.cuda.tensor_cores import self_check, wgmma_block_scaled
from gemmsim.backends.cuda.tensor_cores.wgmma_block_scaled import groups_of
from gemmsim.backends.encoded_operand import Coded
from gemmsim.backends.product import Product
from gemmsim.lowering.refusal import Refusal

#: Chunks have 128 bytes of a line and three (warps) or six (warp groups) are in shared memory: two rounds and more, with a
#: ragged end, whole chunks alone, one instruction.
CHAINS = [
    ("hw(ampere, mma, bf16)", (64 * 7 + 17, 128, 3)),
    ("promote(hw(rtx_blackwell, mma, e4m3, e5m2), 128)", (128 * 6 + 33,)),
    ("hw(hopper, wgmma, bf16)", (64 * 13 + 17, 64 * 2, 5)),
    ("hw(hopper, wgmma, tf32)", (32 * 7 + 9,)),
    ("hw(hopper, wgmma, fp16, out=fp16)", (64 * 3 + 40,)),
    ("promote(hw(hopper, wgmma, e4m3, e5m2), 256)", (128 * 13 + 65, 128 * 4)),
    ("promote(hw(hopper, wgmma, e4m3), 32)", (128 * 2 + 70,)),
    ("promote(hw(hopper, wgmma, bf16), 32)", (64 * 2 + 20,)),
]


def numbers(seed, *shape):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=g) * torch.exp2(torch.randint(-6, 6, shape, generator=g))
    x[..., ::7] = 0
    return x


@pytest.mark.cuda
@pytest.mark.parametrize(("text", "lengths"), CHAINS, ids=[text for text, _ in CHAINS])
def test_chains(text, lengths):
    spec = GemmSpec(accumulator=Accumulator.parse(text))
    for k in (*lengths, 0):
        a, b = numbers(k, 9, k), numbers(k + 1, k, 6)
        if k > 100:
            a[3, 100], b[50, 4] = torch.inf, torch.nan
        want = torch.empty(9, 6)
        cpu.gemm(a, b, spec, want, 0)
        for early in (False, True):
            assert_bitwise_equal(chain_product(a, b, text, early), want, context=f"{k} {'early' if early else 'late'}")


@pytest.mark.cuda
@pytest.mark.parametrize("text", ["hw(ampere, mma, bf16)", "hw(hopper, wgmma, bf16)"])
def test_tiles_and_batches(text):
    """More than one tile each way; operands of a batch, shared, and with lines that are one."""
    spec, one = GemmSpec(accumulator=Accumulator.parse(text)), numbers(3, 1, 40)
    for a, b in (
        (numbers(1, 130, 20), numbers(2, 20, 3)),
        (numbers(4, 2, 3, 40), numbers(5, 40, 131).expand(2, 40, 131)),
        (one.expand(5, 40), numbers(6, 40, 2)),
    ):
        want = torch.empty(*a.shape[:-1], b.shape[-1])
        cpu.gemm(a, b, spec, want, 0)
        assert_bitwise_equal(chain_product(a, b, text, False), want)


RING = """
#include "gemm/tensor_cores/wgmma_config.h"
struct Args { int* out; int steps; };
extern "C" __global__ void gemmsim_kernel(const Args args) {
    gemmsim::Ring<6> ring;
    for (int i = 0; i < args.steps; ++i, ring.next()) {
        args.out[3 * i] = ring.stage;
        args.out[3 * i + 1] = ring.filled();
        args.out[3 * i + 2] = ring.left();
    }
}
GEMMSIM_HOST_ENTRY
"""


def test_the_ring_of_places():
    """Chunk i has place i mod 6; who reads waits for phase i div 6 of it, who writes for the one before."""

    class Args(ctypes.Structure):
        _fields_ = [("out", ctypes.c_void_p), ("steps", ctypes.c_int)]

    found = torch.zeros(40, 3, dtype=torch.int32)
    args = Args(found.data_ptr(), 40)
    host_library(RING, "the ring").gemmsim_host_run(ctypes.byref(args), 1, 1, 1, 1, ctypes.c_size_t(0), 0)
    assert found.tolist() == [[i % 6, i // 6 % 2, 1 - i // 6 % 2] for i in range(40)]


LATE = """
#include "gemmsim/device/async.h"
#include "gemmsim/device/block.h"
struct Args { const float* in; float* out; };
extern "C" __global__ void gemmsim_kernel(const Args args) {
    float* const place = (float*)gemmsim::shared_memory();
    place[0] = place[1] = -1;
    gemmsim::copy_async<4>(place, args.in, true);
    gemmsim::commit_async();
    gemmsim::copy_async<4>(place + 1, args.in, false);
    gemmsim::commit_async();
    args.out[0] = place[0];
    gemmsim::wait_async<1>();
    args.out[1] = place[0];
    args.out[2] = place[1];
    gemmsim::wait_async<0>();
    args.out[3] = place[1];
}
GEMMSIM_HOST_ENTRY
"""


def test_copies_come_when_they_are_waited_for(monkeypatch):
    class Args(ctypes.Structure):
        _fields_ = [("source", ctypes.c_void_p), ("out", ctypes.c_void_p)]

    source, found = torch.tensor([5.0]), torch.zeros(4)
    args, kernel = Args(source.data_ptr(), found.data_ptr()), host_library(LATE, "late copies")
    kernel.gemmsim_host_run(ctypes.byref(args), 1, 1, 1, 1, ctypes.c_size_t(64), 1)
    assert found.tolist() == [-1, 5, -1, 0]
    monkeypatch.setenv("GEMMSIM_HOST_EARLY", "1")
    kernel.gemmsim_host_run(ctypes.byref(args), 1, 1, 1, 1, ctypes.c_size_t(64), 1)
    assert found.tolist() == [5, 5, 0, 0]


SCALED = [
    ("mxfp8_e4m3 * mxfp8_e5m2", "hw(hopper, wgmma, e4m3, e5m2)", (128 * 7 + 40, 128 * 2, 31)),
    ("mxfp4 * mxfp6_e3m2", "hw(hopper, wgmma, e4m3)", (96,)),
    ("nvfp4", "hw(hopper, wgmma, e4m3)", (150, 144)),
    ("mxfp8_e4m3/b128 * mxfp8_e4m3", "hw(hopper, wgmma, bf16)", (200,)),
]


@pytest.mark.cuda
@pytest.mark.parametrize(("operands", "inner", "lengths"), SCALED, ids=[text for text, *_ in SCALED])
def test_scaled_totals(operands, inner, lengths):
    """Scales near 1, of which binary32 holds each product; then any codes: far apart, NaN, products beyond binary32."""
    spec = GemmSpec.of(f"{operands} : scaled({inner})")
    for k in (*lengths, 0):
        for near in (True, False):
            a, b = coded(k, 9, k, spec.a, near), coded(k + 1, 6, k, spec.b, near).transposed
            want = torch.empty(9, 6)
            simt_blocks(a, b, spec, want)
            for early in (False, True):
                got = scaled_product(a, b, spec, early)
                assert_bitwise_equal(
                    got, want, context=f"{k} {'near' if near else 'far'} {'early' if early else 'late'}"
                )


def coded(seed, lines, k, fmt, near):
    """Numbers in blocks; some scales are drawn anew."""
    g = torch.Generator().manual_seed(seed)
    found = gs.mx.encode(numbers(seed, lines, k), fmt, packing="bytes")
    scales = found.scales.clone()
    if not near and scales.numel():
        drawn = torch.randint(0, 1 << fmt.scale.bits, scales.shape, generator=g).to(torch.uint8)
        scales = torch.where(torch.rand(scales.shape, generator=g) < 0.4, drawn, scales)
    return Coded(found.codes, scales, fmt, -1, k)


@pytest.mark.cuda
def test_scaled_totals_of_a_batch():
    spec = GemmSpec.of("mxfp8_e4m3 : scaled(hw(hopper, wgmma, e4m3))")
    one = coded(1, 3, 70, spec.a, True)
    a = replace(one, codes=one.codes.expand(2, 3, 70), scales=one.scales.expand(2, 3, 3))
    b = [coded(seed, 131, 70, spec.b, True).transposed for seed in (2, 3)]
    both = replace(b[0], codes=torch.stack([x.codes for x in b]), scales=torch.stack([x.scales for x in b]))
    want = torch.empty(2, 3, 131)
    for i, x in enumerate(b):
        simt_blocks(one, x, spec, want[i])
    assert_bitwise_equal(scaled_product(a, both, spec, False), want)


@pytest.mark.cuda
def test_scaled_totals_are_compared_before_they_are_used(fake_gpu, monkeypatch):  # noqa: F811
    """A Hopper whose instruction is its model's takes it; one that keeps other bits leaves the product to the model."""
    spec = GemmSpec.of("mxfp8_e4m3 : scaled(hw(hopper, wgmma, e4m3))")
    a, b = coded(5, 9, 300, spec.a, False), coded(6, 6, 300, spec.b, False).transposed
    want = torch.empty(9, 6)
    simt_blocks(a, b, spec, want)
    for inner, words in (
        ("hw(hopper, wgmma, e4m3)", "those of its model in all"),
        ("hw(blackwell, tcgen05, e4m3)", "differs"),
    ):
        monkeypatch.setattr(wgmma_block_scaled, "launch", launching(Accumulator.parse(inner)))
        monkeypatch.setattr(self_check, "_verdicts", {})
        got = torch.full((9, 6), 7.0)
        ran = str(run_on_gpu(Product(a, b, spec, got, 5)))
        assert_bitwise_equal(got, want)
        assert words in ran and ("gemm_instruction<" in ran) == (inner == "hw(hopper, wgmma, e4m3)")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("mxfp8_e4m3 : scaled(fp32)", "does not scale sums"),
        ("mxfp8_e4m3 : scaled(hw(ampere, mma, bf16))", "only those of Hopper's wgmma"),
        ("mxfp8_e4m3 : scaled(hw(hopper, wgmma, e4m3), e5m10)", "the kernel adds in fp32"),
        ("nvfp4/tensor : scaled(hw(hopper, wgmma, e4m3))", "does not take a scale of a whole tensor"),
        ("mxfp8_e4m3 : scaled(hw(hopper, wgmma, e4m3), n=8)", "groups of 8 terms"),
        ("mxfp8_e4m3 * e4m3 : scaled(hw(hopper, wgmma, e4m3))", "one operand is not in a block format"),
        ("mxfp8_e4m3/b96 : scaled(hw(hopper, wgmma, e4m3))", "groups of 96 terms"),
    ],
)
def test_why_scaled_totals_have_no_kernel(text, reason):
    found = groups_of(GemmSpec.of(text))
    assert isinstance(found, Refusal) and reason in found.reason
