"""Where d-Matrix's compressor and QPyTorch leave their formats' definitions, bit for bit, in float32 operations.

docs/reference/compat/dmx.md and qtorch.md list them. These run on request (``bug_compatible=True``) only, and are slow.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = [
    "AWAY",
    "EVEN",
    "block_float",
    "fixed_point",
    "floating_point",
    "mx_float",
    "scaled_block",
    "shared_exponent",
]

EVEN, AWAY, UP, DOWN = "even", "away", "up", "down"
_WORDS = {"nearest": EVEN, "up": UP, "down": DOWN}
_EXPONENT = 0x7F800000


def _bits(x: Tensor) -> Tensor:
    """Patterns of float32 values, as non-negative int64."""
    return x.contiguous().view(torch.int32).long() & 0xFFFFFFFF


def _values(bits: Tensor) -> Tensor:
    bits = bits & 0xFFFFFFFF
    return torch.where(bits > 0x7FFFFFFF, bits - (1 << 32), bits).int().view(torch.float32)


def _kept(bits: Tensor, trailing: int, ties: str) -> Tensor:
    """Patterns with ``trailing`` fraction bits; up and down are of magnitudes, up always to the next."""
    drop = 23 - trailing
    mask, half = (1 << drop) - 1, (1 << drop) >> 1
    add = {EVEN: half, AWAY: half, DOWN: 0, UP: 1 << drop}[ties]
    added = bits + add
    if ties == EVEN:
        stays = ((bits & mask) == half) & (((bits >> drop) & 1) == 0)
        added = torch.where(stays, bits, added)
    return added & ~mask & 0xFFFFFFFF


def floating_point(x: Tensor, trailing: int, exponent: int, bias: int, flush: bool, ties: str) -> Tensor:
    """float32 ``x`` with at most 22 trailing bits: limit as if the bias were the default, NaN as a large number,
    and subnormals through a sum in float32."""
    bits = _bits(x)
    sign = bits & 0x80000000
    emin = 1 - bias
    small = ((bits >> 23) & 0xFF) - 127 < emin
    kept = _kept(bits, trailing, ties)
    top = (1 << (exponent - 1)) + 127
    most = (top << 23) | ((0x7FFFFF >> (23 - trailing)) << (23 - trailing))
    kept = torch.where((((kept >> 23) & 0xFF) > top) & (kept != 0), sign | most, kept)
    if flush:
        below = torch.zeros_like(x)
    else:
        shift = _values(((127 + emin) << 23) | sign)
        below = _values(_kept(_bits(x + shift), trailing, ties)) - shift
    return torch.where(small, below, _values(kept)) + 0.0


def fixed_point(x: Tensor, bits: int, frac: int, clamp: bool, symmetric: bool, rounding: str) -> Tensor:
    """float32 ``x`` on the grid of 2**-frac: 1/2 is added in float32 before the nearest integer is taken."""
    t = _scaled(x, frac)
    if rounding == "nearest":
        r = ((t + 0.5).double() - 0.5).round()
    else:
        r = (t.ceil() if rounding == "up" else t.floor()).double()
    y = _scaled(r.float(), -frac)
    if clamp:
        high = 2.0 ** (bits - frac - 1) - 2.0**-frac
        low = -high if symmetric else -(2.0 ** (bits - frac - 1))
        y = torch.where(y > high, high, torch.where(y < low, low, y))
    return y + 0.0


def _scaled(x: Tensor, power: int) -> Tensor:
    """x * 2**power, rounded once."""
    return (x.double() * 2.0**power).float()


def shared_exponent(rows: Tensor, bits: int, ties: str) -> Tensor:
    """Rows of float32 with an exponent each: elements are rounded by a sum in float32."""
    most = rows.abs().amax(1, keepdim=True)
    field = _bits(most) & _EXPONENT
    base = _values(field) * 6.0
    y = _values(_kept(_bits(rows + base), bits, ties)) - base
    found = _bits(y)
    limit = field | ((0x7FFFFF >> (25 - bits)) << (25 - bits))
    over = (found & _EXPONENT) > field
    return torch.where(over, _values((found & 0x80000000) | limit), y) + 0.0


def _by_block(x: Tensor, size: int, dim: int) -> tuple[list[Tensor], torch.Size]:
    turned = x.transpose(dim, -1)
    flat = turned.reshape(-1, turned.shape[-1])
    return list(flat.split(size, 1)), turned.shape


def _joined(parts: list[Tensor], shape: torch.Size, dim: int) -> Tensor:
    return torch.cat(parts, 1).reshape(shape).transpose(dim, -1)


def block_float(x: Tensor, bits: int, size: int, dim: int, symmetric: bool, rounding: str) -> Tensor:
    """float32 ``x`` in blocks that share an exponent."""
    ties = _WORDS[rounding]
    if size == 1:
        return floating_point(x, bits - 2, 8, 127, False, ties)
    parts, shape = _by_block(x, size, dim)
    found = [shared_exponent(part, bits, ties) for part in parts]
    if not symmetric:
        found = [lowest_code(part, y, bits) for part, y in zip(parts, found, strict=True)]
    return _joined(found, shape, dim)


def lowest_code(x: Tensor, y: Tensor, bits: int) -> Tensor:
    """Rows ``y`` in which -2**(bits-1) steps replace one step less where they are as near to ``x``."""
    most = y.abs().amax(1, keepdim=True)
    exponent = torch.frexp(most)[1].cpu() + 1 - bits
    step = torch.ldexp(torch.ones(exponent.shape), exponent).to(
        most.device
    )  # on the CPU: powers on GPUs may be off by an ulp
    edge = y / torch.where((step == 0) | (most == 0), 1.0, step) == -(2 ** (bits - 1) - 1)
    error = y - x
    nearer = edge & (most > 0) & ((error - step).abs() <= error.abs())
    return torch.where(nearer, -(2.0 ** (bits - 1)) * step, y)


def scaled_block(
    x: Tensor, integers: tuple[int, bool, str], size: int, dim: int, scale: Callable[[Tensor], Tensor]
) -> Tensor:
    """float32 ``x`` in blocks of integers under the scale that ``scale`` makes of the quotients' column."""
    bits, clamp, rounding = integers
    parts, shape = _by_block(x, size, dim)
    found = []
    for part in parts:
        most = part.abs().amax(1, keepdim=True)
        c = most / torch.full_like(most, 2 ** (bits - 1) - 1)  # a quotient by a number is a product on GPUs
        y = fixed_point(part / c, bits, 0, clamp, True, rounding) * scale(c)
        found.append(torch.where(c > 0, y, part))
    return _joined(found, shape, dim)


def mx_float(x: Tensor, trailing: int, exponent: int, size: int, dim: int, flush: bool = False) -> Tensor:
    """float32 ``x`` in blocks of floats under a power of two, whose exponent comes from a logarithm in float32."""
    parts, shape = _by_block(x, size, dim)
    found = []
    for part in parts:
        most = part.abs().amax(1, keepdim=True)
        # the CPU's logarithm, whatever the device: it is the departure
        s = (torch.exp2(torch.floor(torch.log2(most.cpu()))) / 2.0 ** (1 << (exponent - 1))).to(part.device)
        y = floating_point(part / s, trailing, exponent, (1 << (exponent - 1)) - 1, flush, EVEN) * s
        found.append(torch.where(most == 0, 0.0, y))
    return _joined(found, shape, dim)
