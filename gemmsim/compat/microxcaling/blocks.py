"""Rounding of blocks that share an exponent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import gemmsim as gs

from .formats import ElemFormat, ElemFormatLike, _get_format_params
from .specs import mx_assert_test
from .steps import ROUNDS, floor_log2, power_of_two, rounded

__all__ = ["quantize_mx_op"]

_NAMES = {
    ElemFormat.int8: "mxint8",
    ElemFormat.int4: "mxint4",
    ElemFormat.int2: "mxint2",
    ElemFormat.fp8_e5m2: "mxfp8_e5m2",
    ElemFormat.fp8_e4m3: "mxfp8_e4m3",
    ElemFormat.fp6_e3m2: "mxfp6_e3m2",
    ElemFormat.fp6_e2m3: "mxfp6_e2m3",
    ElemFormat.fp4: "mxfp4",
}
_ROUNDINGS = {"nearest": "rna", "even": "rne", "floor": "rtz"}


def block_format(kind: ElemFormat, block: int, round: str, flush: bool) -> str:
    """gemmsim's format of the same values; a name, which tracers take for a constant."""
    end = "/flush" if flush else ""
    return f"{_NAMES[kind]}/b{block}/{_ROUNDINGS[round]}/microxcaling{end}"


def _quantize_mx(
    A: Tensor,
    scale_bits: int,
    elem_format: ElemFormatLike | None,
    shared_exp_method: str = "max",
    axes: int | Sequence[int] | None = None,
    block_size: int = 0,
    round: str = "nearest",
    flush_fp32_subnorms: bool = False,
    custom_cuda: bool = False,
) -> Tensor:
    """``A`` in blocks that share an exponent, in its dtype; no gradient.

    Args:
        scale_bits: of the shared exponent; blocks beyond 2^(scale_bits - 1) - 1 are NaN, below it they share the least.
        elem_format: a name or an ``ElemFormat``; None returns ``A``.
        shared_exp_method: "max", or "none" for an exponent of each element's own.
        axes: one axis, or several that share a block (of ``block_size`` along each).
        block_size: elements along an axis; 0 is the whole axis. Short blocks count as filled with zeros.
        round: "nearest" (ties away), "even", "floor" (toward zero) or "dither", which draws from torch's generator.
        flush_fp32_subnorms: whether blocks whose floor(log2 amax) is -127 or less become zero.
        custom_cuda: exponents from the bits, as microxcaling's CUDA kernels have them.

    Values are microxcaling's on float32; float16 and bfloat16 are computed in float32, float64 in float64. NaN or
    infinity makes its block NaN, -0 becomes +0, elements saturate.

    Raises:
        AssertionError: for ``scale_bits`` below 1.
        DTypeError: for integers.
        Exception: for unknown names, and blocks without axes.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx._quantize_mx(torch.tensor([0.3, 1.0, 30.0, 100.0]), 8, "fp4_e2m1", axes=[0], block_size=2)
        tensor([ 0.2500,  1.0000, 32.0000, 96.0000])
    """
    if elem_format is None:
        return A
    if not A.is_floating_point():
        raise gs.DTypeError(f"_quantize_mx: A has dtype {A.dtype}; allowed: floating-point tensors.\n  Use A.float().")
    if scale_bits <= 0:
        raise AssertionError(f"scale_bits={scale_bits}; allowed: 1 or more")
    kind = ElemFormat.from_str(elem_format) if isinstance(elem_format, str) else elem_format
    if shared_exp_method not in ("max", "none"):
        raise Exception(f"Unrecognized shared exponent selection method {shared_exp_method}; allowed: max, none")
    if round not in ROUNDS:
        raise Exception(f"Unrecognized round method {round}; allowed: {', '.join(ROUNDS)}")
    if A.numel() == 0:
        return A.detach().clone()
    x = A.detach() if A.dtype == torch.float64 else A.detach().float()
    where = _axes(x, axes, block_size)
    kernel = scale_bits == 8 and round in _ROUNDINGS and kind in _NAMES and not custom_cuda
    kernel = kernel and x.dtype == torch.float32 and x.device.type == "cpu"
    if shared_exp_method == "none":
        if kernel:
            return gs.mx.quantize(x.reshape(-1), block_format(kind, 1, round, flush_fp32_subnorms)).view(A.shape).to(A)
        return _by_steps(x[..., None], kind, scale_bits, round, flush_fp32_subnorms, custom_cuda)[..., 0].to(A)
    if kernel and len(where) == 1:
        block = block_size or max(x.shape[where[0]], 1)
        fmt = block_format(kind, block, round, flush_fp32_subnorms)
        return gs.mx.quantize(x, fmt, dim=where[0]).to(A)
    tiles = _Tiles(x, where, block_size)
    if kernel:
        fmt = block_format(kind, tiles.values.shape[-1], round, flush_fp32_subnorms)
        return tiles.back(gs.mx.quantize(tiles.values, fmt)).to(A)
    return tiles.back(_by_steps(tiles.values, kind, scale_bits, round, flush_fp32_subnorms, custom_cuda)).to(A)


def _axes(x: Tensor, axes: int | Sequence[int] | None, block_size: int) -> list[int]:
    """Axes counted from 0, ascending; all of them for None."""
    if axes is None:
        if block_size:
            raise Exception("axes=None with a block_size; allowed: the axes along which blocks lie. Give some.")
        return list(range(x.dim()))
    given = [axes] if isinstance(axes, int) else list(axes)
    for axis in given:
        if not -x.dim() <= axis < x.dim():
            raise IndexError(f"axes: {axis} of a tensor of {x.dim()} dimensions; allowed: one of them. Give another.")
    return sorted({axis % x.dim() for axis in given})


class _Tiles:
    """A tensor cut into tiles, each flat along the last dimension of ``values``."""

    def __init__(self, x: Tensor, axes: list[int], block_size: int) -> None:
        self._shape = x.shape
        sizes = {axis: block_size or x.shape[axis] for axis in axes}
        padding: list[int] = []
        for axis in reversed(range(x.dim())):
            padding += [0, -x.shape[axis] % sizes[axis] if axis in sizes else 0]
        padded = torch.nn.functional.pad(x, padding)
        self._padded = padded.shape
        for count, axis in enumerate(axes):
            padded = padded.unflatten(axis + count, (-1, sizes[axis]))
        self._cut = padded.shape
        self._inner = [axis + count + 1 for count, axis in enumerate(axes)]
        self._last = list(range(-len(axes), 0))
        moved = padded.movedim(self._inner, self._last)
        self._moved = moved.shape
        self.values = moved.flatten(-len(axes)) if axes else moved[..., None]

    def back(self, values: Tensor) -> Tensor:
        """The tensor of these values, of the shape it had."""
        whole = values.reshape(self._moved).movedim(self._last, self._inner)
        return whole.reshape(self._padded)[tuple(slice(size) for size in self._shape)]


def _by_steps(
    x: Tensor,
    kind: ElemFormat,
    scale_bits: int,
    round: str,
    flush: bool,
    from_bits: bool = False,
    largest: Tensor | None = None,
) -> Tensor:
    """Blocks are the last dimension of ``x``, whole; ``largest`` are their magnitudes, by default computed."""
    ebits, mbits, emax, max_norm, _ = _get_format_params(kind)
    from_bits = from_bits and round != "dither"
    largest = x.abs().amax(-1, keepdim=True) if largest is None else largest
    exponent = floor_log2(torch.where(largest == 0, 2.0**-126, largest), from_bits=from_bits)
    if flush:
        x = x * (exponent > -127).to(x.dtype)
    limit = 2.0 ** (scale_bits - 1) - 1
    shared = exponent - emax
    shared = torch.where(shared > limit, float("nan"), shared.clamp(min=-limit))
    unit = power_of_two(shared)
    return rounded(x / unit, mbits, ebits, max_norm, round, saturate=True, from_bits=from_bits) * unit


def quantize_mx_op(
    A: Tensor,
    mx_specs: Any,
    elem_format: ElemFormatLike | None = None,
    block_size: int | None = None,
    axes: int | Sequence[int] | None = None,
    round: str = "nearest",
    expand_and_reshape: bool = False,
) -> Tensor:
    """``_quantize_mx`` with the block size, bits of scale, method and flush of ``mx_specs``; it has no gradient.

    ``elem_format`` None returns ``A``. ``expand_and_reshape`` changes nothing, as in microxcaling.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> specs = mx.MxSpecs(scale_bits=8, block_size=2)
        >>> mx.quantize_mx_op(torch.tensor([0.3, 1.0, 30.0, 100.0]), specs, "fp4_e2m1", axes=0)
        tensor([ 0.2500,  1.0000, 32.0000, 96.0000])
    """
    mx_assert_test(mx_specs)
    if elem_format is None:
        return A
    return _quantize_mx(
        A,
        mx_specs["scale_bits"] or 8,
        elem_format,
        shared_exp_method=mx_specs["shared_exp_method"],
        axes=axes,
        block_size=mx_specs["block_size"] if block_size is None else block_size,
        round=round,
        flush_fp32_subnorms=mx_specs["mx_flush_fp32_subnorms"],
        custom_cuda=mx_specs["custom_cuda"],
    )
