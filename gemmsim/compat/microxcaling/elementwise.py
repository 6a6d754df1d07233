"""Element-wise rounding to bfloat and fp formats."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import gemmsim as gs

from .formats import ElemFormatLike, _get_format_params, _get_max_norm
from .specs import MxSpecs, apply_mx_specs, get_backwards_mx_specs, mx_assert_test
from .steps import ROUNDS, rounded

__all__ = ["quantize_bfloat", "quantize_elemwise_op"]

_CASTS = {"nearest": "rna", "even": "rne"}
#: Widest significand (leading bit included) for which float32's log2 and ``|t| + 0.5`` round as the format does.
_KERNEL_PRECISION = 16
#: The least float32 whose log2 rounds to 128 in float32.
_LIFTED = 2.0**128 * (1 - 44 * 2.0**-24)


def _cast(exp_bits: int, bits: int, round: str) -> str:
    """gemmsim's format; a name, which tracers take for a constant."""
    return f"ieee_e{exp_bits}m{bits - 2}/{_CASTS[round]}"


def _by_kernel(x: Tensor, bits: int, exp_bits: int, round: str, subnormals: bool) -> Tensor:
    """``rounded`` of float32 through ``gemmsim.quantize``, and the points at which float32's steps differ."""
    smallest = 2.0 ** (2 - 2 ** (exp_bits - 1))
    kept = x if subnormals else x * (x.abs() >= smallest).to(x.dtype)
    result = gs.quantize(kept, _cast(exp_bits, bits, round))
    size = x.abs()
    result.masked_fill_(kept == 0, 0.0)
    # log2 of the largest numbers rounds to 128, whose power of two is infinite
    result.masked_fill_((size >= _LIFTED) & size.isfinite(), float("nan"))
    if exp_bits < 8 and subnormals:
        # (1/2 - 2^-25) + 1/2 rounds to 1
        quantum = smallest * 2.0 ** (2 - bits)
        result = torch.where(size == (0.5 - 2.0**-25) * quantum, torch.sign(x) * quantum, result)
    return result


def _quantize_elemwise_core(
    A: Tensor,
    bits: int,
    exp_bits: int,
    max_norm: float,
    round: str = "nearest",
    saturate_normals: bool = False,
    allow_denorm: bool = True,
    custom_cuda: bool = False,
) -> Tensor:
    """``A`` rounded to ``exp_bits`` exponent bits and ``bits`` with sign and leading bit, in its dtype; no gradient.

    Beyond ``max_norm``: infinity, or ``max_norm`` with ``saturate_normals`` and for integers. NaN and infinities stay,
    but for finite numbers within 44 float32 steps of 2^128, whose exponent microxcaling takes for 128: they become NaN.
    -0 becomes +0.

    Raises:
        Exception: for an unknown ``round``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx._quantize_elemwise_core(torch.tensor([1.3, 100.0]), bits=5, exp_bits=4, max_norm=240.0)
        tensor([  1.2500, 104.0000])
    """
    if round not in ROUNDS:
        raise Exception(f"Unrecognized round method {round}; allowed: {', '.join(ROUNDS)}")
    if A.is_sparse:
        flat = A.coalesce()
        values = _quantize_elemwise_core(
            flat.values(), bits, exp_bits, max_norm, round, saturate_normals, allow_denorm, custom_cuda
        )
        return torch.sparse_coo_tensor(flat.indices(), values, flat.shape)
    x = A.detach() if A.dtype == torch.float64 else A.detach().float()
    kernel = round in _CASTS and not (custom_cuda or saturate_normals) and exp_bits in (5, 8)
    if kernel and bits - 1 <= _KERNEL_PRECISION and x.dtype == torch.float32 and x.device.type == "cpu":
        return _by_kernel(x, bits, exp_bits, round, allow_denorm).to(A.dtype)
    from_bits = custom_cuda and round != "dither"
    result = rounded(
        x,
        bits,
        exp_bits,
        max_norm,
        round,
        saturate=saturate_normals,
        subnormals=allow_denorm,
        from_bits=from_bits,
    )
    return result.to(A.dtype)


def _quantize_elemwise(
    A: Tensor,
    elem_format: ElemFormatLike | None,
    round: str = "nearest",
    custom_cuda: bool = False,
    saturate_normals: bool = False,
    allow_denorm: bool = True,
) -> Tensor:
    """``A`` in an element format, without a shared exponent; None returns ``A``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx._quantize_elemwise(torch.tensor([1.3, 100.0]), "fp8_e4m3")
        tensor([  1.2500, 104.0000])
    """
    if elem_format is None:
        return A
    ebits, mbits, _, max_norm, _ = _get_format_params(elem_format)
    return _quantize_elemwise_core(A, mbits, ebits, max_norm, round, saturate_normals, allow_denorm, custom_cuda)


def _quantize_bfloat(
    A: Tensor, bfloat: int, round: str = "nearest", custom_cuda: bool = False, allow_denorm: bool = True
) -> Tensor:
    """``A`` in ``bfloat`` bits of which 8 are the exponent's; 0 and 32 return ``A``. Overflow is infinite.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx._quantize_bfloat(torch.tensor([1.3, 100.0]), bfloat=12)
        tensor([  1.2500, 104.0000])
    """
    if bfloat in (0, 32):
        return A
    bits = bfloat - 7
    largest = _get_max_norm(8, bits)
    return _quantize_elemwise_core(A, bits, 8, largest, round, allow_denorm=allow_denorm, custom_cuda=custom_cuda)


def _quantize_fp(
    A: Tensor,
    exp_bits: int | None = None,
    mantissa_bits: int | None = None,
    round: str = "nearest",
    custom_cuda: bool = False,
    allow_denorm: bool = True,
) -> Tensor:
    """``A`` in an IEEE-like format; ``mantissa_bits`` are the trailing ones. None returns ``A``; overflow is inf.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx._quantize_fp(torch.tensor([1.3, 1e6]), exp_bits=5, mantissa_bits=2)
        tensor([1.2500,    inf])
    """
    if exp_bits is None or mantissa_bits is None:
        return A
    bits = mantissa_bits + 2
    largest = _get_max_norm(exp_bits, bits)
    return _quantize_elemwise_core(
        A, bits, exp_bits, largest, round, allow_denorm=allow_denorm, custom_cuda=custom_cuda
    )


def quantize_elemwise_op(A: Tensor, mx_specs: Any, round: str | None = None) -> Tensor:
    """``A`` rounded as ``bfloat`` or ``fp`` of ``mx_specs`` says; without both, or with None, ``A`` itself.

    It has no gradient.

    Raises:
        ValueError: for both set, and for widths without a significand bit (bfloat up to 9, fp up to 6).

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.quantize_elemwise_op(torch.tensor([1.3, 100.0]), mx.MxSpecs(bfloat=12))
        tensor([  1.2500, 104.0000])
    """
    if mx_specs is None:
        return A
    how = mx_specs["round"] if round is None else round
    bfloat, fp = mx_specs["bfloat"], mx_specs["fp"]
    options = {"custom_cuda": mx_specs["custom_cuda"], "allow_denorm": mx_specs["bfloat_subnorms"]}
    if bfloat > 0 and fp > 0:
        raise ValueError(f"mx_specs: bfloat={bfloat} and fp={fp}; allowed: one of them. Set the other to 0.")
    if 0 < bfloat <= 9:
        raise ValueError(f"mx_specs: bfloat={bfloat}; allowed: 0 (off), or 10 and more. Choose a wider one.")
    if 0 < fp <= 6:
        raise ValueError(f"mx_specs: fp={fp}; allowed: 0 (off), or 7 and more. Choose a wider one.")
    if bfloat:
        return _quantize_bfloat(A, bfloat, how, **options)
    if fp:
        return _quantize_fp(A, 5, fp - 6, how, **options)
    return A


class _QuantizeBfloat(torch.autograd.Function):
    """Element-wise rounding of the value and of its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, specs: MxSpecs, round: str) -> Tensor:
        """The rounded value."""
        ctx.specs, ctx.round = get_backwards_mx_specs(specs), round
        return quantize_elemwise_op(x, specs, round).clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The rounded gradient."""
        return quantize_elemwise_op(grads[0], ctx.specs, ctx.round), None, None


def quantize_bfloat(x: Tensor, mx_specs: Any, round: str | None = None) -> Tensor:
    """``quantize_elemwise_op`` with a gradient that is rounded in the same way; ``mx_specs`` None returns ``x``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.quantize_bfloat(torch.tensor([1.3, 100.0]), mx.MxSpecs(bfloat=12))
        tensor([  1.2500, 104.0000])
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return x
    specs = apply_mx_specs(mx_specs)
    result: Tensor = _QuantizeBfloat.apply(x, specs, specs["round"] if round is None else round)
    return result
