"""Ends of matrix instructions' steps in float lanes: sums near the ends of int32, on midpoints, of few bits, and of tiny registers.

The reference is exact; sums that leave int32 must end in double lanes with the same bits.
"""

from __future__ import annotations

import random

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import assert_equals_reference, isas, normal

from gemmsim import qmatmul, reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu

OUTS = ["fp32/rtz", "fp32", "e5m10", "e5m10/sat", "e8m13/rtz", "e8m10/rtz", "e5m2", "e4m3", "bf16", "e6m9", "e8m20"]
#: Of so many bits that a sum made odd just holds them, of more, and with ends just so near those of binary32, and nearer.
ENDS = [
    "float(p=15, emin=-30, emax=40)", "float(p=16, emin=-30, emax=40)", "float(p=18, emin=-30, emax=40)",
    "float(p=9, emin=-64, emax=64)", "float(p=9, emin=-65, emax=64)",
]  # fmt: skip


def near_two(rows: int, cols: int, seed: int, negative: float = 0.0) -> torch.Tensor:
    """Numbers of 11 bits just below 2, of which so many are negative."""
    g = torch.Generator().manual_seed(seed)
    x = 2 - torch.randint(1, 4, (rows, cols), generator=g) * 2.0**-10
    return torch.where(torch.rand(rows, cols, generator=g) < negative, -x, x)


@pytest.mark.parametrize("kept", [13, 18, 19, 20, 22, 23, 24, 25, 26, 27, 28, 29])
@pytest.mark.parametrize("n", [1, 4, 5, 8, 9, 15, 16, 17, 32, 33, 64])
def test_the_largest_sums(n, kept):
    for out in ("fp32/rtz", "fp32", "e6m9", "e8m13/rtz"):
        spec = GemmSpec.of(f"fused({n}, {kept}, {out}, a=fp16)")
        for seed, negative in enumerate((0.0, 0.02)):
            a, b = near_two(9, 2 * n + 3, seed, negative), near_two(2 * n + 3, 17, seed + 9)
            assert_equals_reference(spec, -a if seed else a, b)


@pytest.mark.parametrize("out", OUTS + ENDS)
@pytest.mark.parametrize("kept", [9, 14, 23, 25])
def test_sums_around_midpoints(kept, out):
    """A large term with a register's bits and half a place, and small ones that decide; also where half a large term cancels."""
    g = torch.Generator().manual_seed(kept)
    spec = GemmSpec.of(f"fused(8, {kept}, {out}, a=fp32)")
    bits = spec.accumulator.out.format.p
    for cancels in (False, True):
        whole = torch.randint(2 ** (bits - 1), 2**bits - 1, (12,), generator=g) / 2.0 ** (bits - 1)
        a = torch.zeros(12, 16)
        a[:, 0] = whole * 0.5 + 0.5 if cancels else whole
        a[:, 1] = -0.5 if cancels else 0
        a[:, 2] = 2.0 ** -(bits + cancels)
        a[:, 3:5] = torch.randint(-1, 2, (12, 2), generator=g) * torch.exp2(
            -torch.randint(bits, 26, (12, 2), generator=g).float()
        )
        a[:, 8:12] = torch.randint(-1, 2, (12, 4), generator=g) * torch.exp2(
            -torch.randint(0, 26, (12, 4), generator=g).float()
        )
        b = torch.exp2(torch.randint(-2, 3, (1, 17), generator=g).float()).expand(16, 17).contiguous()
        for sign in (1, -1):
            assert_equals_reference(spec, sign * a, b)


@pytest.mark.parametrize("out", OUTS + ENDS)
def test_sums_that_overflow_and_stay(out):
    a, b = normal(9, 40, seed=1) * 2.0**20, normal(40, 17, seed=2).abs() * 2.0**12
    a[:3] = a[:3].abs()
    a[5] *= 2.0**-30
    assert_equals_reference(GemmSpec.of(f"fused(4, 25, {out}, a=fp16)"), a.clamp(-65504, 65504), b.clamp(max=65504))
    assert_equals_reference(GemmSpec.of(f"fused(4, 25, {out}, a=bf16)"), a, b)


FLOORED = ["f16", "bf16", "xf32", "e4m3fnuz", "e5m2fnuz"]


def few_bits(rows: int, cols: int, exponent: int, seed: int) -> torch.Tensor:
    """Multiples of 2^exponent of magnitudes up to 8 times that."""
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-8, 9, (rows, cols), generator=g) * 2.0**exponent


@pytest.mark.parametrize("kept", [1, 2, 3, 5, 9, 25])
@pytest.mark.parametrize("exponent", [-45, -42, -40])
def test_the_smallest_products_that_float_lanes_take(kept, exponent):
    for out in ("fp32/rtz", "fp32", "e8m10/rtz"):
        a, b = few_bits(9, 20, exponent, kept), few_bits(20, 17, -90 - exponent, 7)
        a[3, :12] = 0
        assert_equals_reference(GemmSpec.of(f"fused(4, {kept}, {out}, a=bf16)"), a, b)


@pytest.mark.parametrize("operand", FLOORED)
@pytest.mark.parametrize("exponent", [0, -2, -20, -30, -42, -45])
def test_floored_sums_of_any_size(operand, exponent):
    """What cancels leaves registers far below products: below 2^-80 the scales of registers stay where they are."""
    if operand.startswith("e"):
        exponent = max(exponent, -7)
    if operand == "f16":
        exponent = max(exponent, -20)
    a, b = few_bits(9, 64, exponent, 1), few_bits(64, 17, -90 - exponent if exponent < -40 else exponent, 2)
    a[:, 16:32] = -a[:, :16]
    b[16:32] = b[:16]
    a[:4, :16] += few_bits(4, 16, exponent, 3)
    a[4:, 32:48] = 0
    a[2, 48:] *= 2.0**4
    assert_equals_reference(GemmSpec.of(f"hw(cdna3, mfma, {operand})"), a, b)


@pytest.mark.parametrize("operand", ["e4m3fnuz", "e5m2fnuz"])
def test_registers_below_the_window_are_dropped(operand):
    """A negative one would be -1 in the last place of the sum, not 0: floored."""
    a, b = torch.zeros(9, 48), torch.ones(48, 17)
    a[:, 0], b[0] = -(2.0**-7), 2.0**-7
    a[:, 16] = torch.exp2(torch.arange(9).float() - 1)
    b[16] = torch.exp2((torch.arange(17) % 8).float())
    a[:, 32] = -a[:, 16]
    b[32] = b[16]
    assert_equals_reference(GemmSpec.of(f"hw(cdna3, mfma, {operand})"), a, b)
    assert_equals_reference(GemmSpec.of(f"hw(cdna3, mfma, {operand})"), -a, b)


@pytest.mark.parametrize("operand", FLOORED)
def test_floored_sums_with_all_bits_below(operand):
    rng = random.Random(operand)
    g = torch.Generator().manual_seed(5)
    for _ in range(4):
        spread = rng.choice([2, 6, 12])
        a, b = (torch.exp2(torch.randint(-spread, spread, size, generator=g).float()) for size in ((9, 64), (64, 17)))
        a = a * near_two(9, 64, 3, 0.5)
        assert_equals_reference(GemmSpec.of(f"hw(cdna3, mfma, {operand})"), a, b * 0.75)


@pytest.mark.parametrize(
    "spec",
    [
        "hw(hopper, wgmma, e4m3)", "hw(hopper, wgmma, bf16)", "hw(volta, mma, f16, out=e5m10)", "hw(cdna3, mfma, e4m3fnuz)",
        "hw(blackwell, tcgen05, e5m2)", "fused(16, 40, e8m23, a=bf16)", "fused(7, 60, e5m10, a=fp16)", "chunked(24, hw(ada, mma, e4m3))",
        "interleaved(3, hw(hopper, wgmma, e4m3))", "shuffled(hw(hopper, wgmma, e4m3), 5)",
    ],
)  # fmt: skip
def test_fields_of_panels_are_those_of_their_tiles(spec):
    """Several panels of both, threads, a last row and column of tiles that are not full, zeros and subnormals."""
    a, b = normal(37, 61, seed=3) * 2.0**-3, normal(61, 70, seed=4) * 2.0**-3
    a[:, 5] = 0
    a[7] *= 2.0**-5
    b[11] = 0
    one = GemmSpec.of(spec)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            for name in isas():
                cpu.set_isa(name)
                whole, tile = torch.empty(37, 70), torch.empty(1, 1)
                cpu.gemm(a, b, one, whole, 0)
                for i, j in ((0, 0), (7, 69), (8, 33), (36, 31), (35, 64)):
                    cpu.gemm(a[i : i + 1], b[:, j : j + 1], one, tile, 0)
                    assert whole[i, j] == tile[0, 0], (name, i, j)
    finally:
        torch.set_num_threads(threads)
    assert_equals_reference(one, a[:11], b[:, :35].contiguous())


@pytest.mark.parametrize("exponents", [(-66, -64), (-62, -64), (-50, -58), (60, 66), (63, 64), (-20, 20)])
def test_scaled_steps_from_subnormal_registers_to_infinite_ones(exponents):
    """The second block of 32 has zero products, the third ones far above the register or below it."""
    a, b = (normal(9, 128, seed=1) * 2.0 ** exponents[0], normal(128, 17, seed=2) * 2.0 ** exponents[1])
    a[:, 32:64] = 0
    a[:4, 64:96] *= 2.0**-40
    a[4:, 64:96] *= 2.0**20
    spec = "mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)"
    outs = {}
    for name in isas():
        cpu.set_isa(name)
        outs[name] = qmatmul(a, b, spec)
    for name in isas():
        assert_bitwise_equal(outs[name], outs["baseline"], context=name)
    first = qmatmul(a[:, :64].contiguous(), b[:64].contiguous(), spec)
    assert (first != 0).any() and torch.equal(first, qmatmul(a[:, :32].contiguous(), b[:32].contiguous(), spec))


SCALED = [
    "mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)",
    "mxfp8_e5m2 * mxfp4 : hw(rtx_blackwell, mxf8f6f4, e5m2, e2m1)",
    "mxfp6_e3m2 : hw(blackwell, mxf8f6f4, e3m2)",
    "mxfp4 : hw(blackwell, mxf4, e2m1)",
    "nvfp4 : hw(blackwell, mxf4nvf4, e2m1)",
]


@pytest.mark.parametrize("zeros", [0.5, 0.97])
@pytest.mark.parametrize("spec", SCALED)
def test_zero_products_align_nothing_wherever_scales_move_them(spec, zeros):
    """Blocks of one line differ by up to 2^120 in size; some steps have large scales and zero products alone."""
    g = torch.Generator().manual_seed(7)

    def lines(rows: int, cols: int, spread: int) -> torch.Tensor:
        moved = torch.randint(-spread, spread, (rows, cols // 32), generator=g).repeat_interleave(32, 1)
        x = torch.randn(rows, cols, generator=g) * torch.exp2(moved.float())
        return torch.where(torch.rand(rows, cols, generator=g) < zeros, 0.0, x)

    for spread in (60, 20):
        a, b = lines(19, 192, spread), lines(5, 192, spread).T.contiguous()
        want = torch.tensor(reference.gemm(a.tolist(), b.tolist(), GemmSpec.of(spec)), dtype=torch.float64)
        for name in isas():
            cpu.set_isa(name)
            assert_bitwise_equal(qmatmul(a, b, spec).double(), want, context=name)
