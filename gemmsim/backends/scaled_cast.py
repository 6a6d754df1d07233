"""Computes scaled casts: the scales of blocks, elements under them, and their values, with PyTorch's operators.

Everything is in binary32, each operation rounded to nearest even, so that every device has the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.formats import E4M3, Cast, ScaledCast, ScaledCastRule, parse_cast
from gemmsim.formats.errors import format_error
from gemmsim.formats.scaled_cast import along
from gemmsim.lowering.abi_constants import Site

from . import route
from .convert import cast_into
from .division import divided_by
from .product import Product

__all__ = ["ScaledOperand", "hadamard_signs", "largest_magnitude", "quantized", "scaled_operand"]

_LARGEST, _SMALLEST = torch.finfo(torch.float32).max, 2.0**-149


@dataclass(frozen=True)
class ScaledOperand:
    """Elements and scales of an operand.

    Attributes:
        elements: float32, of the operand's shape.
        scales: float32, what elements are multiplied with for their values: a number for each block, in the layout of
            the operand, (..., rows of blocks, blocks along the sum) where the sum runs along the last dimension.
        rows, terms: of a block.
        dim: along which the sum runs, -1 or -2.
        second: the scale of the whole tensor that multiplies all others; None for none.
        gain: what elements were multiplied with.
    """

    elements: Tensor
    scales: Tensor
    rows: int
    terms: int
    dim: int
    second: Tensor | None
    gain: float

    @property
    def device(self) -> torch.device:
        """Of elements and scales."""
        return self.elements.device

    def expanded(self) -> Tensor:
        """The scale of each element, float32, without ``second``."""
        return _expanded(self.scales, self.elements.shape, self.rows, self.terms, self.dim)

    def values(self) -> Tensor:
        """Elements times scales, each operation rounded to binary32."""
        found = self.elements * self.expanded()
        if self.second is not None:
            found = self.elements * (self.expanded() * self.second)
        return found if self.gain == 1.0 else divided_by(found, self.gain)


def _expanded(scales: Tensor, shape: torch.Size, rows: int, terms: int, dim: int) -> Tensor:
    along, across = (terms, rows) if dim == -1 else (rows, terms)
    wide = scales.repeat_interleave(along, -1).narrow(-1, 0, shape[-1])
    return wide.repeat_interleave(across, -2).narrow(-2, 0, shape[-2])


def quantized(x: Tensor, fmt: ScaledCast, seed: int, site: int) -> Tensor:
    """The values that ``fmt`` keeps of ``x``, float32 in its shape: elements times scales, the transform undone."""
    if not x.numel():
        return x.to(torch.float32)
    dim = fmt.dim - x.dim() if fmt.dim >= 0 else fmt.dim
    y = x[None] if x.dim() == 1 else x
    moved = dim if dim in (-1, -2) and x.dim() > 1 else -1
    y = y if moved == dim else y.movedim(dim, -1)
    found = _transform_undone(scaled_operand(y, fmt, moved, seed, site).values(), fmt, moved, y.shape[moved])
    found = found if moved == dim else found.movedim(-1, dim)
    return found[0] if x.dim() == 1 else found


def scaled_operand(
    x: Tensor, fmt: ScaledCast, dim: int, seed: int, site: int, whole: float | Tensor | None = None
) -> ScaledOperand:
    """``x``, two dimensions or more, under the scales of ``fmt`` for a sum along ``dim`` (-1 or -2).

    ``whole``: the largest magnitude of the tensor of which ``x`` is a part, or of calls before; None: that of ``x``.

    Raises:
        FormatError: for a delayed scale without ``whole``.
    """
    if fmt.delayed and whole is None:
        asked, allowed = f"{fmt} without the amax of earlier calls", "modules and contexts, which keep it"
        do = "Use gemmsim.nn.QLinear, gemmsim.convert or gemmsim.emulate, or drop /delayed for the amax of the tensor."
        raise format_error(asked, allowed, do)
    x = x.to(torch.float32)
    if fmt.stored is not None:
        x = quantized(x, along(fmt.stored, -3 - dim), seed, site)
    if fmt.hadamard:
        x = _transformed(x, fmt, dim)
    rows, terms = _block_size(x.shape, fmt, dim)
    if fmt.rows == 0:
        most = largest_magnitude(x) if whole is None else torch.as_tensor(whole, dtype=x.dtype, device=x.device)
        amax = most.expand(*x.shape[:-2], 1, 1)
    else:
        amax = _largest_of_blocks(x, rows, terms, dim)
    second = None
    if fmt.rule is ScaledCastRule.NVFP4:
        if whole is None:
            whole = amax.amax() if amax.numel() else amax.new_zeros(())
        most = torch.as_tensor(whole, dtype=x.dtype, device=x.device)
        second = divided_by(most, fmt.largest * E4M3.max).clamp(min=2.0**-96)
    up, scales = _scales(amax, fmt, second)
    factor = _expanded(scales if up is None else up, x.shape, rows, terms, dim)
    if up is not None:
        y = x * factor
    elif second is not None:
        y = x * ((1.0 / second) / factor)
    else:
        y = x / factor
    if fmt.gain != 1.0:
        y = y * fmt.gain
    return ScaledOperand(_rounded(y, fmt.cast, seed, site), scales, rows, terms, dim, second, fmt.gain)


def _block_size(shape: torch.Size, fmt: ScaledCast, dim: int) -> tuple[int, int]:
    """Rows and terms of a block, at least 1."""
    rows, terms = (shape[-2], shape[-1]) if dim == -1 else (shape[-1], shape[-2])
    return max(1, min(fmt.rows or rows, rows)), max(1, min(fmt.terms or terms, terms))


def largest_magnitude(x: Tensor) -> Tensor:
    """The largest finite magnitude of a tensor, binary32; 0 for none."""
    x = x.to(torch.float32)
    if not x.numel():
        return x.new_zeros(())
    magnitudes = x.abs()
    if not x.is_cuda:  # a GPU would have to wait for the answer
        most = magnitudes.amax()
        if most.isfinite():
            return most
    return torch.where(x.isfinite(), magnitudes, 0.0).amax()


def _largest_of_blocks(x: Tensor, rows: int, terms: int, dim: int) -> Tensor:
    """The largest finite magnitude of each block; 0 for blocks without one."""
    found = _largest_of(x.abs(), rows, terms, dim)
    if bool(found.isfinite().all()):
        return found
    return _largest_of(torch.where(x.isfinite(), x.abs(), 0.0), rows, terms, dim)


def _largest_of(magnitude: Tensor, rows: int, terms: int, dim: int) -> Tensor:
    x = magnitude
    across, along = (rows, terms) if dim == -1 else (terms, rows)
    m, n = -(-x.shape[-2] // across), -(-x.shape[-1] // along)
    if (m * across, n * along) != (x.shape[-2], x.shape[-1]):
        magnitude = torch.nn.functional.pad(magnitude, (0, n * along - x.shape[-1], 0, m * across - x.shape[-2]))
    if not magnitude.numel():
        return magnitude.new_zeros(*x.shape[:-2], m, n)
    return magnitude.reshape(*x.shape[:-2], m, across, n, along).amax((-3, -1))


def _scales(amax: Tensor, fmt: ScaledCast, second: Tensor | None) -> tuple[Tensor | None, Tensor]:
    """What elements are multiplied with, None where they are divided by the scale, and the scale."""
    largest = torch.tensor(fmt.largest, dtype=torch.float32, device=amax.device)
    if fmt.least:
        amax = amax.clamp(min=fmt.least)
    one = torch.ones((), dtype=torch.float32, device=amax.device)
    if fmt.rule is ScaledCastRule.FLOOR:
        assert fmt.block_format is not None
        exponent = (torch.frexp(amax).exponent - 1 - fmt.block_format.emax).clamp(-127, 127)
        exponent = torch.where(amax > 0, exponent, -127)
        return None, _power(exponent)
    if fmt.rule is ScaledCastRule.NVFP4:
        assert second is not None
        return None, _rounded(((amax / largest) / second).clamp(2.0**-6, E4M3.max), Cast(E4M3), 0, 0)
    if fmt.rule is ScaledCastRule.AMAX:
        up = torch.where(amax > 0, largest / amax, one).clamp(max=_LARGEST)
        up = _power(torch.frexp(up).exponent - 1) if fmt.power else up
        return up, 1.0 / up
    down = torch.where(amax > 0, amax / largest, one).clamp(min=_SMALLEST)
    if fmt.power:
        fraction, exponent = torch.frexp(down)
        down = _power(exponent - (fraction == 0.5).to(exponent.dtype))
    return None, down


def _power(exponent: Tensor) -> Tensor:
    """2**exponent in float32, exact, with subnormals; exponents from -149 to 127."""
    half = exponent.to(torch.int32) >> 1
    return _normal_power(half) * _normal_power(exponent.to(torch.int32) - half)


def _normal_power(exponent: Tensor) -> Tensor:
    """By its bits: 2**x of a library may be off by an ulp."""
    return ((exponent + 127) << 23).view(torch.float32)


def _transformed(x: Tensor, fmt: ScaledCast, dim: int) -> Tensor:
    """The Hadamard transform of each ``hadamard`` terms along ``dim``: an exact sum, rounded to binary32, times
    n^-1/2 in binary32. Missing terms at the end are zeros."""
    n, size = fmt.hadamard, x.shape[dim]
    groups = -(-size // n)
    y = torch.nn.functional.pad(x if dim == -1 else x.mT, (0, groups * n - size))
    y = y.reshape(*y.shape[:-1], groups, n)
    if fmt.signs is not None:
        y = y * hadamard_signs(n, fmt.signs).to(x.device)
    y = _turned(y, n).reshape(*y.shape[:-2], groups * n)
    return y if dim == -1 else y.mT


def _transform_undone(x: Tensor, fmt: ScaledCast, dim: int, size: int) -> Tensor:
    """Numbers of which ``x`` is the transform, ``size`` of them along ``dim``; rounded like the transform."""
    n = fmt.hadamard
    if not n:
        return x
    y = x if dim == -1 else x.mT
    y = _turned(y.reshape(*y.shape[:-1], y.shape[-1] // n, n), n)
    if fmt.signs is not None:
        y = y * hadamard_signs(n, fmt.signs).to(x.device)
    y = y.flatten(-2).narrow(-1, 0, size)
    return y if dim == -1 else y.mT


def _turned(y: Tensor, n: int) -> Tensor:
    rows = y.reshape(-1, n).contiguous()
    return _exact_sums(rows, n).reshape(y.shape) * float(torch.tensor(n**-0.5, dtype=torch.float32))


def _exact_sums(rows: Tensor, n: int) -> Tensor:
    """Each row times the Hadamard matrix of ``n``, exact sums rounded to binary32.

    A sum of n numbers is exact in float64, in any order, where n times the largest is less than 2^53 times the last bit
    of the smallest: with 24 bits each, where their exponents differ by at most 29 - log2 n. Other rows take integers.
    """
    if not rows.numel():
        return rows
    bits = rows.view(torch.int32) & 0x7FFFFFFF
    most = bits.amax(1) >> 23
    least = bits.masked_fill(bits == 0, 0x7FFFFFFF).amin(1) >> 23
    wide = (most - least.clamp(min=1) > 30 - n.bit_length()) | (most == 255)
    out = (torch.matmul(rows.double(), _hadamard(n).to(rows.device, torch.float64)) + 0.0).float()
    where = wide.nonzero()[:, 0]
    if len(where):
        some = torch.empty(len(where), n, dtype=torch.float32, device=rows.device)
        route.run(Product(rows[where], _hadamard(n).to(rows.device), GemmSpec.parse(":exact(fp32)"), some, 0))
        out[where] = some
    return out


def _rounded(y: Tensor, cast: Cast, seed: int, site: int) -> Tensor:
    out = torch.empty_like(y)
    if out.numel():
        cast_into(y, cast, out, seed, site)
    return out


@lru_cache(maxsize=64)
def _hadamard(n: int) -> Tensor:
    """Sylvester's matrix of +1 and -1."""
    found = torch.ones(1, 1)
    while len(found) < n:
        found = torch.cat([torch.cat([found, found], 1), torch.cat([found, -found], 1)])
    return found


@lru_cache(maxsize=256)
def hadamard_signs(n: int, seed: int) -> Tensor:
    """+1 and -1 at random, float32, (n,): -1 where 1/2 with one random bit is rounded up to 1 (site PERMUTATION)."""
    up = _rounded(torch.full((n,), 0.5), parse_cast("fixed(2,0)/sr1"), seed, Site.PERMUTATION)
    return 1.0 - 2.0 * up
