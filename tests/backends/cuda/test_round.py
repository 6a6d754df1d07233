"""The rounding functors of device/round.h, run on the host: inside their range of validity the bits of the CPU backend.

Targets are formats with a wide exponent, so that only what the functor claims is asked of it: `e8m10` for 11 bits with no
target range, `e5m10` for its subnormals and overflow.
"""

from __future__ import annotations

import ctypes
import math

import pytest
import torch
from support import assert_bitwise_equal
from support.cuda import run_on_host

from gemmsim.backends import cpu
from gemmsim.backends.cuda import KernelSource, compile_kernel
from gemmsim.backends.cuda.jit.source import cast_literal
from gemmsim.formats import FloatFormat, parse_cast
from gemmsim.lowering.casts import cast_numbers


class Args(ctypes.Structure):
    _fields_ = [("src", ctypes.c_void_p), ("dst", ctypes.c_void_p), ("count", ctypes.c_uint64)]


def source(functor: str, carrier: str) -> KernelSource:
    text = (
        '#include "gemmsim/device/round.h"\n'
        "namespace gemmsim { struct Biased { static GEMMSIM_HD float apply(float x) {\n"
        "    return FixedBiased<5>::value(FixedBiased<5>::start(x));\n} }; }\n"
        f"struct Args {{ const {carrier}* src; {carrier}* dst; uint64_t count; }};\n"
        'extern "C" __global__ void gemmsim_kernel(const Args a) {\n'
        f"    for (uint64_t i = 0; i < a.count; ++i) a.dst[i] = {functor}::apply(a.src[i]);\n"
        "}\n"
    )
    return KernelSource("test", functor, text, threads=1)


def applied(functor: str, x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    carrier = {torch.float32: "float", torch.float64: "double"}[x.dtype]
    args = Args(src=x.data_ptr(), dst=out.data_ptr(), count=x.numel())
    run_on_host(source(functor, carrier), (1, 1, 1), args, fibers=False)
    return out


def numbers(low: int, high: int, bits: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Both signs, exponents from ``low`` to below ``high``: random significands, ties of ``bits`` bits, ends of binades."""
    g = torch.Generator().manual_seed(1)
    n = 60_000
    exponent = torch.randint(low, high, (n,), generator=g).double()
    random = 1 + torch.rand(n, generator=g, dtype=torch.float64)
    grid = 2.0**-bits  # half the last place
    tie = 1 + torch.randint(0, 2**bits, (n,), generator=g).double() * grid
    edge = torch.tensor([1.0, 1 + grid, 1 + 2.0**-20, 2 - 2.0**-23, 2 - grid, 2 - 2 * grid, 2 - grid / 2])
    near = tie * (1 + torch.randint(-1, 2, (n,), generator=g) * 2.0**-22)
    x = torch.cat([torch.ldexp(s.double(), exponent[: len(s)]) for s in (random, tie, near, edge.repeat(200))])
    x = torch.cat([x, -x]).to(dtype)
    return x[x.abs() < 2.0**high]


def wide(p: int) -> FloatFormat:
    """p significand bits and float64's exponents."""
    return FloatFormat(p=p, emin=-1022, emax=1023)


def expected(x: torch.Tensor, fmt: object) -> torch.Tensor:
    out = torch.empty_like(x)
    cpu.quantize(x, parse_cast(fmt), out)  # type: ignore[arg-type]
    return out


@pytest.mark.parametrize("p", [2, 3, 4, 8, 11])
def test_split_is_nearest_even_below_its_limit(p):
    x = numbers(-100, 128 - (24 - p), p)
    assert_bitwise_equal(applied(f"gemmsim::Split<float, {p}>", x), expected(x, wide(p)), context=f"p={p}")


@pytest.mark.parametrize("p", [11, 25])
def test_split_of_doubles(p):
    x = numbers(-900, 900, p, torch.float64)
    assert_bitwise_equal(applied(f"gemmsim::Split<double, {p}>", x), expected(x, wide(p)), context=f"p={p}")


@pytest.mark.parametrize("p", [1, 2, 11, 12, 17, 22])
def test_magic_is_nearest_even_below_its_limit(p):
    x = numbers(-100, 127 - (24 - p), p)
    assert_bitwise_equal(applied(f"gemmsim::Magic<float, {p}>", x), expected(x, wide(p)), context=f"p={p}")


@pytest.mark.parametrize(("p", "emin"), [(11, -14), (4, -6), (3, -14), (22, -30)])
def test_magic_with_subnormals(p, emin):
    x = torch.cat([numbers(emin - p - 3, emin + 4, p), numbers(-140, 100, p), torch.tensor([1e-45, -1e-45])])
    got = applied(f"gemmsim::MagicSubnormal<float, {p}, {emin}>", x)
    want = expected(x, FloatFormat(p=p, emin=emin, emax=200))
    assert_bitwise_equal(got, want + 0.0, context=f"p={p}")  # a negative underflow is +0, as documented


@pytest.mark.parametrize(
    "text", ["e5m10", "e4m3", "e4m3/sat", "e5m2/sat", "e2m1/clamp", "fixed(8,4)", "ufixed(6,3)", "binary8p3"]
)
def test_magic_cast_takes_everything(text):
    specials = [math.nan, math.inf, -math.inf, 0.0, -0.0, 3.4e38, -3.4e38, 1e-45]
    x = torch.cat([numbers(-30, 20, 11), numbers(-140, 127, 4), torch.tensor(specials)])
    functor = f"gemmsim::MagicCast<float, gemmsim::Cast{cast_literal(cast_numbers(parse_cast(text)))}>"
    assert_bitwise_equal(applied(functor, x), expected(x, text), context=text)


@pytest.mark.parametrize(("functor", "text"), [("ThroughHalf", "e5m10"), ("ThroughBf16", "bf16")])
def test_through_the_hardware_types(functor, text):
    x = torch.cat(
        [numbers(-30, 17, 11), numbers(-149, 128, 8), torch.tensor([math.nan, math.inf, 65519.99, 65520.0, -0.0])]
    )
    assert_bitwise_equal(applied(f"gemmsim::{functor}", x), expected(x, text), context=text)


def test_saturate_and_truncate():
    x = torch.cat([numbers(-10, 12, 11), torch.tensor([math.inf, -math.inf, 448.0, 464.0, -465.0])])
    got = applied("gemmsim::Saturate<float, gemmsim::Split<float, 4>, -448.0f, 448.0f>", x)
    assert_bitwise_equal(got, expected(x.clamp(-448, 448), wide(4)))
    x = numbers(-126, 128, 11)
    assert_bitwise_equal(applied("gemmsim::Truncate<float, 11>", x), expected(x, "e8m10/rtz/sat"))


def test_fixed_point_rounds_in_the_addition():
    x = torch.randn(5000, generator=torch.Generator().manual_seed(2)) * 100
    x = torch.cat([x, (x * 32).round() / 32 + 1 / 64])
    got = applied("gemmsim::Biased", x)
    assert_bitwise_equal(got, expected(x, "fixed(20,5)"))


@pytest.mark.cuda
def test_the_functors_compile_for_the_device_as_well():
    names = ["Split<float, 11>", "Magic<float, 22>", "MagicSubnormal<float, 4, -6>", "ThroughHalf", "ThroughBf16"]
    names += [
        "Saturate<float, gemmsim::Magic<float, 4>, -448.0f, 448.0f>",
        "Truncate<float, 4>",
        "FixedBiased<5>",
        "NoRound<float>",
    ]
    lines = "".join(f"    *x = gemmsim::{name}::apply(*x);\n" for name in names)
    lines += "    *y = gemmsim::Split<double, 25>::apply(gemmsim::Magic<double, 40>::apply(*y));\n"
    text = f'#include "gemmsim/device/round.h"\nextern "C" __global__ void gemmsim_kernel(float* x, double* y) {{\n{lines}}}\n'
    for arch in ("sm_80", "sm_120a"):
        assert compile_kernel(KernelSource("test", "functors", text, threads=1), arch).cubin


BLOCK = """
#include "gemmsim/device/block.h"
struct Args { const int* src; int* dst; unsigned long long count; };
GEMMSIM_HD void body(const Args& a, unsigned tid, unsigned block, unsigned threads) {
    int* s = (int*)gemmsim::shared_memory();
    s[tid] = a.src[block * threads + tid];
    gemmsim::block_sync();
    for (unsigned step = 1; step < threads; step *= 2) {  // running sums: wrong unless every thread waits for every other
        const int other = tid >= step ? s[tid - step] : 0;
        gemmsim::block_sync();
        s[tid] += other;
        gemmsim::block_sync();
    }
    a.dst[block * threads + tid] = s[threads - 1 - tid];
}
extern "C" __global__ void gemmsim_kernel(const Args args) { body(args, threadIdx.x, blockIdx.x, blockDim.x); }
"""


def test_the_threads_of_a_block_wait_for_each_other_on_the_host():
    x = torch.arange(1, 3 * 128 + 1, dtype=torch.int32)
    out = torch.empty_like(x)
    kernel = KernelSource("test", "scan", BLOCK, threads=128, shared_bytes=512)
    run_on_host(kernel, (3, 1, 1), Args(x.data_ptr(), out.data_ptr(), 384), fibers=True)
    assert_bitwise_equal(out.view(3, 128), x.view(3, 128).cumsum(1).flip(1).int())


@pytest.mark.cuda
def test_the_same_kernel_compiles_for_the_device():
    assert compile_kernel(KernelSource("test", "scan", BLOCK, threads=128, shared_bytes=512), "sm_90a").cubin
