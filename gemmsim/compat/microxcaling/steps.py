"""microxcaling's rounding in its own steps, on float32 (float64 tensors: on float64).

These reproduce the system's arithmetic where it is not that of a format: log2 rounded to float32, and ``|t| + 0.5``
rounded to float32. gemmsim's kernels give the same bits for what they cover, and are used there.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["ROUNDS", "_round_mantissa", "_safe_lshift", "_safe_rshift", "floor_log2", "power_of_two", "rounded"]

ROUNDS = ("nearest", "even", "floor", "dither")


def floor_log2(x: Tensor, *, from_bits: bool = False) -> Tensor:
    """floor(log2 x) of x > 0 in x's dtype, with log2 rounded to float32 first unless ``from_bits``; inf and NaN stay.

    The rounding lifts values just below powers of two. A float64 log2 decides it: the nearest any float32 comes to the
    middle of two float32 logarithms is far beyond float64's error. float64 tensors have the exact exponent.
    """
    if from_bits or x.dtype == torch.float64:
        exponent = torch.frexp(x).exponent.to(x.dtype) - 1
        return torch.where(torch.isfinite(x), exponent, x)
    return torch.log2(x.double()).float().floor()


def power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent in the exponents' dtype: subnormal or 0 below, infinite above; NaN stays."""
    whole = exponent.nan_to_num(0.0, 1024.0, -1023.0).clamp(-1023, 1024).long()
    normal = ((whole + 1023) << 52).view(torch.float64).to(exponent.dtype)
    return torch.where(exponent.isnan(), exponent, normal)


def _integral(t: Tensor, how: str) -> Tensor:
    """``t`` rounded to integers; -0 becomes +0, what underflows keeps its sign."""
    size = t.abs()
    if how == "dither":
        whole = torch.floor(size + torch.rand_like(size))
    elif how == "floor":
        whole = torch.floor(size)
    elif how in ("nearest", "even"):
        whole = torch.floor(size + 0.5)
        if how == "even":
            whole = whole - ((size - 0.5) % 2 == 0).to(t.dtype)
    else:
        raise Exception(f"Unrecognized round method {how}; allowed: {', '.join(ROUNDS)}")
    return torch.sign(t) * whole


def _round_mantissa(A: Tensor, bits: int, round: str, clamp: bool = False) -> Tensor:
    """``A`` rounded to integers, with ``clamp`` of at most 2^(bits-1) - 1 in magnitude.

    "nearest" has ties away from zero, "floor" is toward zero, "dither" draws from torch's generator. What underflows
    keeps its sign.

    Raises:
        Exception: for another ``round``.
    """
    whole = _integral(A, round)
    limit = 2 ** (bits - 1) - 1
    return whole.clamp(-limit, limit) if clamp else whole


def _power(exp: Tensor | float) -> Tensor | float:
    return power_of_two(exp) if isinstance(exp, Tensor) else 2.0**exp


def _safe_lshift(x: Tensor, bits: int, exp: Tensor | float | None) -> Tensor:
    """``x * 2^bits``, divided by 2^exp first unless that is None."""
    return x * 2.0**bits if exp is None else x / _power(exp) * 2.0**bits


def _safe_rshift(x: Tensor, bits: int, exp: Tensor | float | None) -> Tensor:
    """``x / 2^bits``, and that times 2^exp unless that is None."""
    return x / 2.0**bits if exp is None else x / 2.0**bits * _power(exp)


def rounded(
    x: Tensor,
    bits: int,
    exp_bits: int,
    max_norm: float,
    round: str,
    *,
    saturate: bool,
    subnormals: bool = True,
    from_bits: bool = False,
) -> Tensor:
    """``x`` rounded to a format of ``exp_bits`` exponent bits (0: integers) and ``bits`` with sign and leading bit."""
    kept = x
    smallest = 2 - 2 ** (exp_bits - 1) if exp_bits else 0
    if not subnormals and exp_bits:
        kept = x * (x.abs() >= 2.0**smallest).to(x.dtype)
    scale = 2.0 ** (bits - 2)
    if exp_bits:
        exponent = floor_log2(torch.where(x == 0, 1.0, x.abs()), from_bits=from_bits).clamp(min=smallest)
        unit = power_of_two(exponent)
        result = _integral(kept / unit * scale, round) / scale * unit
    else:
        result = _integral(kept * scale, round) / scale
    if saturate or not exp_bits:
        result = result.clamp(-max_norm, max_norm)
    else:
        result = torch.where(result.abs() > max_norm, torch.sign(result) * float("inf"), result)
    return torch.where(x.isinf(), x, result)
