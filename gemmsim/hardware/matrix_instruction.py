"""``mma``: whole products on raw bits, instruction after instruction along K."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from .catalogue import instruction as find
from .codes import Decoded, decode
from .errors import HardwareError, hardware_error
from .exact import exact_sum
from .ieee_chain_steps import fma_chain, pairwise_tree
from .instruction import Instruction
from .operands import Operand, operand
from .step_models import Step, StepFunction, floored_sum, fused_block, scaled_groups
from .step_parameters import ExactSum, FlooredSum, FmaChain, FusedBlock, Model, PairwiseTree, ScaledGroups, TwoBlocks
from .two_blocks import two_blocks

__all__ = ["STEPS", "mma"]

#: The function of each model's step. A faster one with the same signature gives the same bits and may take its place.
STEPS: dict[type[Model], StepFunction] = {
    FusedBlock: fused_block,
    ScaledGroups: scaled_groups,
    TwoBlocks: two_blocks,
    ExactSum: exact_sum,
    PairwiseTree: pairwise_tree,
    FlooredSum: floored_sum,
    FmaChain: fma_chain,
}
#: Products handled at once: a step takes about a dozen int64 tensors of that many elements.
_AT_ONCE = 1 << 20

_DTYPES = {
    8: (torch.uint8, torch.int8),
    16: (torch.uint16, torch.int16),
    32: (torch.uint32, torch.int32),
    64: (torch.uint64, torch.int64),
}


def mma(
    arch: str,
    instruction: str,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
) -> Tensor:
    """The codes of D = A @ B + C as ``instruction`` of ``arch`` computes it, K / k times in a row along K.

    a (..., m, K), b (..., K, n), c (..., m, n): raw bits in unsigned (or signed) integers of the operand's width. e2m1
    has two elements per byte along K, low nibble first; in kinds f8f6f4 and mxf8f6f4 it has one per byte, in its bits
    5:2 (e3m2 and e2m3 in bits 5:0). m and n are free, K is any positive multiple of the instruction's k, and leading
    dimensions broadcast. scale_a (..., m, K / block), scale_b (..., K / block, n): uint8, for block-scaled
    instructions. The result is unsigned, of D's width, on the device of the operands.

    NaN, infinity, -0 and overflow are those of the instruction's model (docs/reference/hardware.md). AMD's NaN bits are
    not known; 0x7FC00000 stands for them. Several instructions in a row require C and D of one format.

    Raises:
        HardwareError (ValueError): for what the tables or the instruction do not allow.
        TypeError: for wrong dtypes.

    Example:
        >>> one = torch.full((1, 32), 0x38, dtype=torch.uint8)  # 1.0 in e4m3
        >>> c = torch.zeros(1, 1, dtype=torch.int32)
        >>> gs.hardware.mma("hopper", "wgmma.m64n8k32.f32.e4m3.e4m3", one, one.mT, c).view(torch.float32)
        tensor([[32.]])
    """
    row = find(arch, instruction)
    a_kind, b_kind, c_kind, d_kind = row.operands
    a_codes, b_codes = _unpack(_codes(a, a_kind, "a"), a_kind, -1), _unpack(_codes(b, b_kind, "b"), b_kind, -2)
    c_codes = _codes(c, c_kind, "c")
    batch = _check_shapes(row, a_codes, b_codes, c_codes)
    scales = _scales(row, a_codes, b_codes, scale_a, scale_b)
    left, right = _batched(a_codes, batch, a_kind), _batched(b_codes.transpose(-1, -2), batch, b_kind)
    left_scales = right_scales = None
    if scales is not None and row.scale is not None:
        kind = operand(row.scale)
        left_scales = _batched(scales[0], batch, kind)
        right_scales = _batched(scales[1].transpose(-1, -2), batch, kind)
    m, n = c_codes.shape[-2:]
    start = c_codes.expand(*batch, m, n).reshape(math.prod(batch), m, n)
    result = torch.empty_like(start, memory_format=torch.contiguous_format)
    for where, rows in _blocks(result.shape, row.model.products):
        part = (where, rows)
        result[part] = _chain(
            row,
            left.part(*part),
            right.part(where),
            start[part],
            None if left_scales is None else left_scales.part(*part),
            None if right_scales is None else right_scales.part(where),
        )
    signed, unsigned = _DTYPES[d_kind.width][1], _DTYPES[d_kind.width][0]
    return result.reshape(*batch, m, n).to(signed).view(unsigned)


def _chain(
    row: Instruction, a: Decoded, b: Decoded, c: Tensor, scale_a: Decoded | None, scale_b: Decoded | None
) -> Tensor:
    """All steps along K; a (B, m, K), b (B, n, K) decoded, c (B, m, n) codes."""
    a_kind, b_kind, c_kind, d_kind = row.operands
    c, c_kind = _widen(c, c_kind, d_kind)
    step = STEPS[type(row.model)]
    width = row.model.products
    for k in range(0, a.significand.shape[-1], width):
        c = step(
            row.model,
            Step(
                a.part(..., None, slice(k, k + width)),
                b.part(slice(None), None, ..., slice(k, k + width)),
                a_kind,
                b_kind,
                c,
                c_kind,
                *_step_scales(row, scale_a, scale_b, k),
            ),
        )
        c_kind = d_kind
    return c


def step_on_codes(
    row: Instruction,
    a: Sequence[int],
    b: Sequence[int],
    c: int,
    c_kind: Operand,
    scale_a: Sequence[int] = (),
    scale_b: Sequence[int] = (),
) -> int:
    """The register after one step of one output: plain codes in and out, e2m1 and scales one an entry."""

    def line(codes: Sequence[int], kind: Operand) -> Decoded:
        return decode(torch.tensor([[list(codes)]], dtype=torch.uint64).to(torch.int64), kind)

    a_kind, b_kind, _, d_kind = row.operands
    start = torch.tensor([[[c]]], dtype=torch.uint64).to(torch.int64)
    start, c_kind = _widen(start, c_kind, d_kind)
    kind = None if row.scale is None else operand(row.scale)
    left = right = None
    if kind is not None:
        left, right = line(scale_a, kind), line(scale_b, kind)
    scales = _step_scales(row, left, right, 0)
    step = Step(
        line(a, a_kind).part(..., None, slice(None)),
        line(b, b_kind).part(slice(None), None),
        a_kind,
        b_kind,
        start,
        c_kind,
        *scales,
    )
    code = int(STEPS[type(row.model)](row.model, step))
    return code & ((1 << d_kind.width) - 1)


def _step_scales(
    row: Instruction, scale_a: Decoded | None, scale_b: Decoded | None, k: int
) -> tuple[Decoded | None, Decoded | None, Operand | None]:
    """Scales of the step at ``k``, one per group of it (a group is the whole step where products are scaled)."""
    if scale_a is None or scale_b is None or row.block is None or row.scale is None:
        return None, None, None
    group = row.model.group if isinstance(row.model, ScaledGroups) else row.block
    index = torch.arange(k, k + row.model.products, group, device=scale_a.sign.device) // row.block
    return scale_a.part(..., None, index), scale_b.part(slice(None), None, ..., index), operand(row.scale)


def _widen(c: Tensor, c_kind: Operand, d_kind: Operand) -> tuple[Tensor, Operand]:
    """f16 C of an f32 accumulator becomes f32 first, so that a subnormal aligns by its true exponent."""
    if c_kind is d_kind:
        return c, c_kind
    assert (c_kind.name, d_kind.name) == ("f16", "f32")
    narrow = c.to(torch.int16).view(torch.float16)
    wide = narrow.to(torch.float32).view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    return wide, d_kind


def _blocks(shape: torch.Size, products: int) -> Iterator[tuple[slice, slice]]:
    """(batch, rows) slices that keep a step's products near ``_AT_ONCE``."""
    batches, m, n = shape
    row_cost = max(1, n * products)
    rows = max(1, min(m, _AT_ONCE // row_cost))
    several = max(1, _AT_ONCE // (row_cost * max(1, m))) if rows >= m else 1
    for first in range(0, batches, several):
        for top in range(0, m, rows):
            yield slice(first, first + several), slice(top, top + rows)


def _codes(x: Tensor, kind: Operand, what: str) -> Tensor:
    """``x`` as int64 codes without sign. ``TypeError`` for a dtype that is not an integer of the operand's width."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{what} must be a tensor of raw bits, not {type(x).__name__}")
    width = kind.container
    if x.dtype not in _DTYPES[width]:
        allowed = " or ".join(str(dtype) for dtype in _DTYPES[width])
        raise TypeError(f"{what} has dtype {x.dtype}; allowed: {allowed}.\n  {kind.name} is passed as its raw bits.")
    codes = x.view(_DTYPES[width][1]).to(torch.int64)
    if kind.padded is not None:
        return codes >> kind.padded & ((1 << kind.width) - 1)
    return codes if width == 64 else codes & ((1 << width) - 1)


def _unpack(codes: Tensor, kind: Operand, axis: int) -> Tensor:
    """One element per entry along ``axis``."""
    if kind.packed == 1 or codes.ndim < 2:
        return codes
    return torch.stack((codes & 15, codes >> 4), dim=axis if axis != -1 else codes.ndim).flatten(axis - 1, axis)


def _check_shapes(row: Instruction, a: Tensor, b: Tensor, c: Tensor) -> torch.Size:
    """The common leading dimensions; a (..., m, K), b (..., K, n), c (..., m, n), unpacked."""
    shapes = f"a {tuple(a.shape)}, b {tuple(b.shape)}, c {tuple(c.shape)}"
    want = "a (..., m, K), b (..., K, n), c (..., m, n)"
    if min(a.ndim, b.ndim, c.ndim) < 2 or a.shape[-1] != b.shape[-2] or c.shape[-2:] != (a.shape[-2], b.shape[-1]):
        raise hardware_error(f"shapes do not fit: {shapes}", want, "Counted in elements, e2m1 unpacked.")
    k = a.shape[-1]
    if k == 0 or k % row.k:
        raise hardware_error(
            f"K = {k} for {row.name}", f"positive multiples of {row.k}", "Pad both operands with zeros."
        )
    if k > row.k and row.c != row.d:
        raise hardware_error(
            f"K = {k} for {row.name}, whose C is {row.c} and whose D is {row.d}",
            f"K = {row.k}",
            "A chain of instructions needs C and D of one format: name that instruction for the rest.",
        )
    try:
        shape: torch.Size = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2])
        return shape
    except RuntimeError:
        raise hardware_error(f"leading dimensions do not broadcast: {shapes}", want, "Make them equal.") from None


def _scales(
    row: Instruction, a: Tensor, b: Tensor, scale_a: Tensor | None, scale_b: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """Codes of both scales, or None for an instruction without; ``HardwareError`` if they are missing or unwanted."""
    if row.scale is None or row.block is None:
        if scale_a is not None or scale_b is not None:
            raise HardwareError(f"{row.name} takes no scales; allowed: scale_a=None, scale_b=None.\n  Leave them out.")
        return None
    blocks = a.shape[-1] // row.block
    want = f"scale_a (..., m, {blocks}) and scale_b (..., {blocks}, n) of {row.scale} in uint8"
    if scale_a is None or scale_b is None:
        raise hardware_error(f"{row.name} needs both scales", want, "A scale of 1 is code 127 (ue8m0) or 56 (ue4m3).")
    kind = operand(row.scale)
    left, right = _codes(scale_a, kind, "scale_a"), _codes(scale_b, kind, "scale_b")
    if left.shape != (*a.shape[:-1], blocks) or right.shape != (*b.shape[:-2], blocks, b.shape[-1]):
        got = f"scale_a {tuple(left.shape)} and scale_b {tuple(right.shape)}"
        raise hardware_error(f"{got} for {row.name}", want, "One scale per block, leading dimensions as the operands'.")
    return left, right


def _batched(codes: Tensor, batch: torch.Size, kind: Operand) -> Decoded:
    """Decoded, with one leading dimension."""
    inner = codes.shape[-2:]
    return decode(codes.expand(*batch, *inner).reshape(math.prod(batch), *inner), kind)
