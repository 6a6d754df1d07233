"""Every row against the installed ``mmasim`` on random bits: NaN bits, too, on NVIDIA; NaN as a class on AMD and in binary64."""

from __future__ import annotations

import pytest
import torch
from support.mmasim import INTEGERS, dots, numbers, operation

from gemmsim import hardware

CASES = 2000
UNSIGNED = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32, 64: torch.uint64}


def drawn(kind: hardware.Operand, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Codes, a quarter each: any; near 1, so that sums cancel; near the small end, with zeros; mostly zeros and any."""
    width, t = kind.width, kind.fraction_bits

    def integers(low: int, high: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=generator)

    low, high = (-(1 << 63), (1 << 63) - 1) if width == 64 else (0, 1 << width)
    anything = integers(low, high)
    sign = integers(0, 2) << (width - 1)
    near = (kind.storage.encode(1.0) + integers(-3 << t, 3 << t)).clamp(0) | sign
    small = integers(0, 3 << t) * integers(0, 2) | sign
    sparse = torch.where(integers(0, 10) == 0, anything, 0)
    which = (torch.arange(shape[0]) % 4).reshape(-1, *[1] * (len(shape) - 1))
    codes = torch.where(which == 0, anything, torch.where(which == 1, near, torch.where(which == 2, small, sparse)))
    return codes if width == 64 else codes & ((1 << width) - 1)


def stored(codes: torch.Tensor, kind: hardware.Operand) -> torch.Tensor:
    """Codes as the instruction reads them."""
    if kind.packed == 2:
        codes = codes[..., ::2] | codes[..., 1::2] << 4
    return (codes << (kind.padded or 0)).to(INTEGERS[kind.container])


def values(codes: torch.Tensor, kind: hardware.Operand) -> torch.Tensor:
    """The numbers of ``codes``."""
    return numbers(stored(codes, kind), kind).double()


def is_its_fault(row: hardware.Instruction, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Cases whose outputs here are not its: CDNA3's FP8 loses an infinite or NaN c, also one that an earlier step left;
    of a finite product of 2**128 and an infinity of the other sign it makes NaN, and no chip has been measured."""
    never = torch.zeros(len(c), dtype=torch.bool)
    if row.arch != "cdna3" or not isinstance(row.model, hardware.FlooredSum):
        return never
    start = values(c, row.operands[2])
    left, right = values(a, row.operands[0]), values(b, row.operands[1])
    if row.model.halves:
        before = slice(0, row.k - row.model.products)
        return ~start.isfinite() | left[:, before].isnan().any(-1) | right[:, before].isnan().any(-1)
    products = left * right
    huge = (products.abs() >= 2.0**128) & left.isfinite() & right.isfinite()
    infinite = products.isinf().any(-1) | start.isinf() | (huge.sum(-1) > 1)
    return huge.any(-1) & (infinite | (row.steps > 1))  # a step before may have left an infinity


def is_nan(codes: torch.Tensor, kind: hardware.Operand) -> torch.Tensor:
    return codes.view({16: torch.float16, 32: torch.float32, 64: torch.float64}[kind.width]).isnan()


def compare(row: hardware.Instruction, generator: torch.Generator) -> int:
    """Compares ``CASES`` dots; how many there were without those that are its fault."""
    a_kind, b_kind, c_kind, d_kind = row.operands
    a, b = drawn(a_kind, (CASES, row.k), generator), drawn(b_kind, (CASES, row.k), generator)
    c = drawn(c_kind, (CASES,), generator)
    scales = []
    if row.scale is not None:
        size = (CASES, row.k // row.block)
        one = hardware.OPERANDS[row.scale].storage.encode(1.0)
        for _ in "ab":
            near = torch.randint(one - 20, one + 20, size, generator=generator)
            anything = torch.randint(0, 256, size, generator=generator)
            scales.append(torch.where(torch.rand(size, generator=generator) < 0.7, near, anything).to(torch.uint8))
    left, right, start = stored(a, a_kind), stored(b, b_kind), stored(c, c_kind)
    want = dots(row, left, right, start, scales)
    own = {"scale_a": scales[0][:, None, :], "scale_b": scales[1][:, :, None]} if scales else {}
    got = hardware.mma(
        row.arch,
        row.name,
        left[:, None, :].view(UNSIGNED[a_kind.container]),
        right[:, :, None].view(UNSIGNED[b_kind.container]),
        start[:, None, None].view(UNSIGNED[c_kind.container]),
        **own,
    )
    found = got.view(INTEGERS[d_kind.width]).flatten()
    same = found == want
    if row.unit == "mfma" or row.d == "f64":
        same |= is_nan(found, d_kind) & is_nan(want, d_kind)
    apart = is_its_fault(row, a, b, c)
    wrong = (~(same | apart)).nonzero().flatten().tolist()
    assert not wrong, (row.name, len(wrong), wrong[:5], [(hex(found[i]), hex(want[i])) for i in wrong[:5]])
    return CASES - int(apart.sum())


@pytest.mark.parametrize("arch", hardware.ARCHITECTURES)
def test_every_row(arch):
    generator, compared, rows = torch.Generator().manual_seed(hardware.ARCHITECTURES.index(arch)), 0, 0
    for row in hardware.instructions(arch):
        if operation(row) is not None:
            compared, rows = compared + compare(row, generator), rows + 1
    assert compared > 0.7 * CASES * rows > 0


def test_rows_that_it_does_not_have():
    missing = {row.name for row in hardware.instructions() if operation(row) is None}
    mixed = {f"tcgen05mma.m64n8k16.kind::f16.f32.{pair}" for pair in ("bf16.f16", "f16.bf16")}
    without_unit = {row.name for row in hardware.instructions() if isinstance(row.model, hardware.TwoBlocks)}
    assert missing == mixed | without_unit and len(without_unit) == 16
