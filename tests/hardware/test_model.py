"""``mma`` beyond the vectors: against fractions, freely shaped operands, chains, and what it refuses."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
import torch
from support.hardware import is_sampled

from gemmsim import hardware
from gemmsim.formats import FP64, parse_cast
from gemmsim.reference import round_value

DTYPES = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32, 64: torch.uint64}


def codes(rng: random.Random, kind: hardware.Operand, count: int) -> list[int]:
    """Half of them near one exponent, so that sums cancel; the others any code."""
    near = 1 << (kind.width - 2)
    return [
        rng.getrandbits(kind.width) if rng.random() < 0.5 else rng.getrandbits(1) << (kind.width - 1) | near + rng.randrange(-9, 9) % near
        for _ in range(count)
    ]  # fmt: skip


def pack(values: list[int], kind: hardware.Operand) -> list[int]:
    if kind.packed == 2:
        return [low | high << 4 for low, high in zip(values[::2], values[1::2], strict=True)]
    return [code << (kind.padded or 0) for code in values]


BLOCKS = [row for row in filter(is_sampled, hardware.instructions()) if isinstance(row.model, hardware.FusedBlock)]


@pytest.mark.parametrize("row", BLOCKS, ids=lambda row: f"{row.arch}-{row.name}")
def test_fused_blocks_agree_with_the_formula_in_fractions(row):
    rng = random.Random(row.name)
    dtypes = [DTYPES[kind.container] for kind in row.operands]
    for _ in range(6):
        a, b = codes(rng, row.operands[0], row.k), codes(rng, row.operands[1], row.k)
        (c,) = codes(rng, row.operands[2], 1)
        kinds, scales, lists = row.operands, {}, {}
        if row.scale:
            lists = {
                name: [rng.randrange(100, 150) & 0x7F for _ in range(row.k // row.block)]
                for name in ("scale_a", "scale_b")
            }
            scales = {"scale_a": torch.tensor([lists["scale_a"]], dtype=torch.uint8), "scale_b": torch.tensor([lists["scale_b"]], dtype=torch.uint8).T}  # fmt: skip
        got = hardware.mma(
            row.arch, row.name,
            torch.tensor([pack(a, kinds[0])], dtype=dtypes[0]),
            torch.tensor([[x] for x in pack(b, kinds[1])], dtype=dtypes[1]),
            torch.tensor([[c]], dtype=dtypes[2]),
            **scales,
        )  # fmt: skip
        assert int(got.to(torch.int64)) == hardware.trace(row, a, b, c, **lists).result


def double(code: int) -> float:
    return FP64.decode(code)


def test_binary64_chains_round_each_exact_step_once():
    rng = random.Random(7)
    cast = parse_cast("fp64")
    patterns = [0, 1, 1 << 63, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x3FF0000000000000, 0x3FEFFFFFFFFFFFFF, 0x1FF0000000000001]  # fmt: skip
    a, b, c = [], [], []
    for _ in range(600):
        kind = rng.randrange(4)
        ea, eb = rng.randrange(1, 2046), rng.randrange(1, 2046)
        x, y = (ea << 52 | rng.getrandbits(52), eb << 52 | rng.getrandbits(52))
        near = min(max(ea + eb - 1023 + rng.randrange(-110, 110), 0), 2045)
        z = near << 52 | rng.getrandbits(52)
        if kind == 0:
            x, y, z = (rng.choice(patterns) for _ in range(3))
        elif kind == 1:  # products among the subnormals
            x, y, z = (ea << 52 | rng.getrandbits(52), max(0, 1023 - ea - rng.randrange(0, 60)) << 52 | rng.getrandbits(20) << 32, rng.getrandbits(52))  # fmt: skip
        a.append(x | rng.getrandbits(1) << 63)
        b.append(y)
        c.append(z | rng.getrandbits(1) << 63)
    zeros = torch.zeros(len(a), 1, 3, dtype=torch.uint64)
    left = torch.cat((torch.tensor(a, dtype=torch.uint64)[:, None, None], zeros), -1)
    right = torch.cat((torch.tensor(b, dtype=torch.uint64)[:, None, None], zeros.transpose(1, 2)), 1)
    start = torch.tensor(c, dtype=torch.uint64)[:, None, None]
    got = (
        hardware.mma("ampere", "mma.m8n8k4.f64.f64.f64.f64", left, right, start).view(torch.float64).flatten().tolist()
    )
    for x, y, z, result in zip(map(double, a), map(double, b), map(double, c), got, strict=True):
        if not all(map(math.isfinite, (x, y, z))):
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        want = round_value(exact, cast)
        assert result == want, (x.hex(), y.hex(), z.hex(), result.hex(), want.hex())


def bf16(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.bfloat16).view(torch.uint16)


NAME = "wgmma.m64n8k16.f32.bf16.bf16"


def test_rows_columns_and_batches_are_independent_and_free_in_number():
    torch.manual_seed(0)
    a, b, c = torch.randn(2, 1, 37, 32), torch.randn(3, 32, 5), torch.randn(37, 5)
    got = hardware.mma("hopper", NAME, bf16(a), bf16(b), c.view(torch.uint32))
    assert got.shape == (2, 3, 37, 5) and got.dtype == torch.uint32
    one = hardware.mma("hopper", NAME, bf16(a)[1, 0, 20:21], bf16(b)[2, :, 3:4], c.view(torch.uint32)[20:21, 3:4])
    assert torch.equal(got.view(torch.int32)[1, 2, 20:21, 3:4], one.view(torch.int32))
    assert hardware.mma("hopper", NAME, bf16(a)[:, :, :0], bf16(b), c.view(torch.uint32)[:0]).shape == (2, 3, 0, 5)


def test_large_products_are_done_in_parts_with_the_same_bits(monkeypatch):
    from gemmsim.hardware import matrix_instruction

    torch.manual_seed(1)
    a, b, c = bf16(torch.randn(3, 9, 16)), bf16(torch.randn(3, 16, 7)), torch.randn(3, 9, 7).view(torch.int32)
    whole = hardware.mma("hopper", NAME, a, b, c)
    for at_once in (1, 16 * 7 * 4, 16 * 7 * 9 * 2):
        monkeypatch.setattr(matrix_instruction, "_AT_ONCE", at_once)
        assert torch.equal(hardware.mma("hopper", NAME, a, b, c).view(torch.int32), whole.view(torch.int32))


def test_a_chain_is_one_instruction_after_the_other():
    torch.manual_seed(2)
    a, b, c = bf16(torch.randn(4, 48)), bf16(torch.randn(48, 4)), torch.randn(4, 4).view(torch.uint32)
    d = c
    for k in range(0, 48, 16):
        d = hardware.mma("hopper", NAME, a[:, k : k + 16], b[k : k + 16], d)
    assert torch.equal(hardware.mma("hopper", NAME, a, b, c).view(torch.int32), d.view(torch.int32))


def test_it_does_not_depend_on_how_the_machine_treats_subnormals():
    a, b = (torch.zeros(1, 1, dtype=torch.uint32) for _ in "ab")
    c = torch.tensor([[5]], dtype=torch.uint32)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush")
    try:
        assert int(hardware.mma("cdna3", "mfma.f32_32x32x1_2b_f32", a, b, c).to(torch.int64)) == 5
    finally:
        torch.set_flush_denormal(False)


Z16, Z32 = torch.zeros(4, 16, dtype=torch.uint16), torch.zeros(4, 4, dtype=torch.uint32)
MX = "tcgen05mma_block_scale.m128n8k32.block32.f32.e4m3.e4m3.ue8m0"
Z8 = torch.zeros(4, 32, dtype=torch.uint8)
SCALE = torch.zeros(4, 1, dtype=torch.uint8)


@pytest.mark.parametrize("call, error, words", [
    (lambda: hardware.mma("hoper", NAME, Z16, Z16.T, Z32), hardware.HardwareError, "'hopper'"),
    (lambda: hardware.mma("hopper", "wgmma.m64n8k16.f32.bf16.bf61", Z16, Z16.T, Z32), hardware.HardwareError, NAME),
    (lambda: hardware.mma("ampere", NAME, Z16, Z16.T, Z32), hardware.HardwareError, "hopper has it"),
    (lambda: hardware.mma("hopper", NAME, Z16[:, :8], Z16.T[:8], Z32), hardware.HardwareError, "multiples of 16"),
    (lambda: hardware.mma("hopper", NAME, Z16[:, :0], Z16.T[:0], Z32), hardware.HardwareError, "K = 0"),
    (lambda: hardware.mma("hopper", NAME, Z16, Z16, Z32), hardware.HardwareError, "shapes"),
    (lambda: hardware.mma("hopper", NAME, Z16, Z16.T, Z32[:3]), hardware.HardwareError, "shapes"),
    (lambda: hardware.mma("hopper", NAME, Z16[0], Z16.T, Z32), hardware.HardwareError, "shapes"),
    (lambda: hardware.mma("hopper", NAME, Z16.expand(2, 4, 16), Z16.T.expand(3, 16, 4), Z32), hardware.HardwareError, "broadcast"),
    (lambda: hardware.mma("hopper", NAME, Z16.view(torch.bfloat16), Z16.T, Z32), TypeError, "raw bits"),
    (lambda: hardware.mma("hopper", NAME, Z16, Z16.T, Z16[:, :4]), TypeError, "uint32"),
    (lambda: hardware.mma("hopper", NAME, [[0] * 16], Z16.T, Z32), TypeError, "tensor"),
    (lambda: hardware.mma("hopper", 3, Z16, Z16.T, Z32), TypeError, "string"),
    (lambda: hardware.mma("hopper", NAME, Z16, Z16.T, Z32, scale_a=SCALE), hardware.HardwareError, "no scales"),
    (lambda: hardware.mma("blackwell", MX, Z8, Z8.T, Z32), hardware.HardwareError, "needs both scales"),
    (lambda: hardware.mma("blackwell", MX, Z8, Z8.T, Z32, scale_a=SCALE, scale_b=SCALE), hardware.HardwareError, "One scale per block"),
    (lambda: hardware.mma("volta", "mma.m8n8k4.f32.f16.f16.f16", Z16, Z16.T, Z16[:, :4]), hardware.HardwareError, "C is f16"),
])  # fmt: skip
def test_what_cannot_be_done_says_what_can(call, error, words):
    with pytest.raises(error, match=words.replace(".", r"\.")) as info:
        call()
    assert "allowed" in str(info.value) or error is TypeError
