"""The epilogue of a scaled product: ``acc * alpha + beta * c`` rounded once, then to the output.

It is what cuBLASLt does after the sum of a product of float8 operands, measured there with ``beta = 0`` on all binary32
accumulators. Steps of PyTorch alone, so that tracers and compilers follow them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim.backends.dtypes import fits
from gemmsim.formats import Cast, parse_cast

from ..cast_arguments import cast_of
from ..errors import message
from ..lazy_dynamo import assume_constant_result
from ..seeds import Site
from .operators import quantize_op

__all__ = ["OUTPUTS", "alpha_of", "epilogue", "finished", "with_library_nans"]

#: Dtype of a result -> the roundings by which cuBLASLt gets there: to float32, then to fewer bits.
OUTPUTS = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16/via(fp32)",
    torch.float16: "fp16/via(fp32)",
    torch.float8_e4m3fn: "e4m3/satfinite/via(fp32)",
    torch.float8_e5m2: "e5m2/satfinite/via(fp32)",
}

#: Casts that PyTorch's own conversion from float64 makes, and from float32. From float64 to 16 bits it rounds twice.
_FROM_FLOAT64 = {str(parse_cast("fp32")): torch.float32}
_FROM_FLOAT32 = {str(parse_cast("bf16")): torch.bfloat16, str(parse_cast("fp16")): torch.float16}


def alpha_of(scale_a: Tensor, scale_b: Tensor) -> Tensor:
    """The product of two factors, rounded to float32: what an accumulator is multiplied by, once.

    Example:
        >>> from gemmsim.ops.product.scaled_epilogue import alpha_of
        >>> alpha_of(torch.tensor(0.5), torch.tensor(3.0))
        tensor(1.5000)
    """
    return scale_a.float() * scale_b.float()


def epilogue(
    acc: Tensor,
    alpha: Tensor,
    beta: Tensor | None,
    c: Tensor | None,
    out: Cast | str,
    last_scale: Tensor | None = None,
) -> Tensor:
    """``acc * alpha + beta * c``, exactly, rounded as ``out`` says.

    Args:
        acc: sums (M, N), float32.
        alpha, beta: factors, float32, of a shape that broadcasts; beta None is 1 where there is a c.
        c: addend, float32, that broadcasts; None is +0, so that a product of exactly zero is +0 whatever its sign.
        out: a deterministic cast, or its name (compiled code takes names). Of a cast with ``via`` the first rounding
            comes right after the sum, the second last.
        last_scale: a factor, float32, by which what the first rounding gave is multiplied, rounded to float32 (to
            nearest even), before the second rounding. It needs an ``out`` with ``via``.

    The result is float32 where that holds the values of ``out``, else float64. A product that is not zero but rounds to
    zero keeps its sign. NaN and 0 * inf are NaN, of no particular bits; infinities and overflow follow ``out``.

    Raises:
        ValueError: for ``last_scale`` with an ``out`` of one rounding.

    Example:
        >>> from gemmsim.formats import parse_cast
        >>> from gemmsim.ops.product.scaled_epilogue import epilogue
        >>> epilogue(torch.tensor([3.0, -0.0]), torch.tensor(-0.1), None, None, parse_cast("bf16/via(fp32)"))
        tensor([-0.3008,  0.0000])
    """
    exact = acc.double() * alpha.double()  # 48 bits
    exact = torch.where(exact == 0, 0.0, exact) if c is None else _sum(exact, c.double(), beta)
    steps = _steps(out if isinstance(out, str) else str(out))
    found = _rounded(exact, *steps[0])
    if last_scale is not None:
        if len(steps) == 1:
            asked = f"epilogue: last_scale with {out}, a cast of one rounding"
            raise ValueError(message(asked, "casts with via", "Try 'e4m3/satfinite/via(fp32)'."))
        found = found.float() * last_scale
    for cast, is_narrow in steps[1:]:
        found = _rounded(found, cast, is_narrow)
    return found


@assume_constant_result
def _steps(out: str) -> tuple[tuple[str, bool], ...]:
    """The roundings of a cast, each with whether float32 holds its values; a constant of compiled code."""
    return tuple((str(cast), fits(cast.format, torch.float32)) for cast in cast_of(out).steps)


def finished(
    acc: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None,
    last_scale: Tensor | None,
    dtype: torch.dtype,
    out: str = "fp32",
) -> Tensor:
    """The result of a scaled product in ``dtype``.

    Args:
        acc: sums (M, N), float32.
        scale_a, scale_b: two factors, which are multiplied first (``alpha_of``); or factors (M, 1) of rows and (1, N)
            of columns: sums are multiplied by the columns' in float32, then by the rows'.
        bias: (N,), added in float32 to the scaled sums; None: nothing.
        last_scale: a factor of results of eight bits before they are rounded; ignored for other dtypes.
        dtype: of the result, which rounds as ``OUTPUTS`` says; for others float32 is converted by PyTorch.
        out: the cast of the scaled sums, before bias and dtype.

    NaN is a NaN of no particular bits. Results of eight bits saturate, infinities too.

    Example:
        >>> from gemmsim.ops.product.scaled_epilogue import finished
        >>> two = torch.tensor(2.0)
        >>> finished(torch.tensor([[300.0]]), two, two, None, None, torch.float8_e4m3fn)
        tensor([[448.]], dtype=torch.float8_e4m3fn)
    """
    cast = OUTPUTS.get(dtype, "fp32")
    last = last_scale if dtype in (torch.float8_e4m3fn, torch.float8_e5m2) else None
    is_whole = scale_a.numel() == 1 == scale_b.numel()
    if is_whole and bias is None and out == "fp32":
        return epilogue(acc, alpha_of(scale_a, scale_b).reshape(()), None, None, cast, last).to(dtype)
    if is_whole:
        scaled = epilogue(acc, alpha_of(scale_a, scale_b).reshape(()), None, None, out)
    else:
        rows = acc * scale_b.reshape(1, -1) * scale_a.reshape(-1, 1)
        scaled = rows if out == "fp32" else epilogue(rows, _one(acc), None, _one(acc) * -0.0, out)
    # An addend of -0 changes nothing, zeros included.
    addend = _one(acc) * -0.0 if bias is None else bias.float()
    return epilogue(scaled, _one(acc), None, addend, cast, last).to(dtype)


#: Dtype -> integers of its width, and the NaN that cuBLASLt writes.
_NANS = {
    torch.float32: (torch.int32, 0x7FFFFFFF),
    torch.bfloat16: (torch.int16, 0x7FFF),
    torch.float16: (torch.int16, 0x7FFF),
    torch.float8_e4m3fn: (torch.uint8, 0x7F),
    torch.float8_e5m2: (torch.uint8, 0x7F),
}


def with_library_nans(result: Tensor) -> Tensor:
    """``result`` with the bits of cuBLASLt's NaN wherever it is NaN; itself in a dtype that cuBLASLt does not write.

    Example:
        >>> from gemmsim.ops.product.scaled_epilogue import with_library_nans
        >>> with_library_nans(torch.tensor([float("nan")])).view(torch.int32).item() == 0x7FFFFFFF
        True
    """
    if result.dtype not in _NANS:
        return result
    integers, bits = _NANS[result.dtype]
    return result.view(integers).masked_fill(result.float().isnan(), bits).view(result.dtype)


def _one(like: Tensor) -> Tensor:
    return torch.ones((), dtype=torch.float32, device=like.device)


def _sum(exact: Tensor, c: Tensor, beta: Tensor | None) -> Tensor:
    """A float64 that every narrower format rounds as it would round ``exact + beta * c``, and of its sign if zero.

    It is the sum rounded to odd: 53 bits, of which the last one is set where the sum has more.
    """
    addend = c if beta is None else c * beta.double()
    total = exact + addend
    shifted = total - exact
    rest = (exact - (total - shifted)) + (addend - shifted)  # the error of the addition (Knuth, Moller)
    bits = total.view(torch.int64)
    inexact = (rest != 0) & torch.isfinite(rest) & ((bits & 1) == 0)
    # Away from zero if total and rest have one sign, else towards it.
    step = torch.where((rest > 0) == (total > 0), 1, -1)
    return torch.where(inexact, bits + step, bits).view(torch.float64)


def _rounded(x: Tensor, cast: str, is_narrow: bool) -> Tensor:
    """``x`` rounded to ``cast``; float32 where that holds it."""
    plain = (_FROM_FLOAT64 if x.dtype == torch.float64 else _FROM_FLOAT32).get(cast)
    if plain is not None:
        return x.to(plain).float()
    rounded = quantize_op(x, cast, None, int(Site.QUANTIZE), 0, True, None)
    return rounded.float() if is_narrow else rounded
