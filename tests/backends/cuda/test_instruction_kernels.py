"""Kernels of chips' matrix instructions, whole, on the host: what comes when, which place it has, who waits for whom, which
instruction takes it, and where its results go. Instructions are their models, so that the bits are the CPU backend's.

Copies and instructions end as late as they may, then copies as early: a wait that is missing, or a place that is given
away too soon, changes the result (``host/shim.h``, ``host/matrix``).
"""

from __future__ import annotations

import ctypes

import pytest
import torch
from support import assert_bitwise_equal
from support_host import host_library
from support_matrix import chain_product

from gemmsim.arithmetic import Accumulator, GemmSpec
from gemmsim.backends import cpu

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
#include "gemm/group_config.h"
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
