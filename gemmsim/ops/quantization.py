"""Rounding tensors to a number format."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim._keywords import says_keywords

from . import quantize_eager as steps
from .cast_arguments import RoundingLike, TargetLike, cast_name, resolve_target, target_of
from .checks import check_device, check_float
from .dispatch import unobserved
from .errors import GradError, message
from .fx import traceable
from .overlap import check_out
from .product.operators import quantize_inplace_op, quantize_op, quantize_out_op
from .product.sharding import prepare
from .seeds import check_seed

__all__ = ["quantize"]


@traceable
@says_keywords("fmt")
def quantize(
    x: Tensor,
    fmt: TargetLike,
    *,
    rounding: RoundingLike | None = None,
    overflow: object = None,
    out: Tensor | None = None,
    seed: int | None = None,
) -> Tensor:
    """Each element of ``x`` rounded once to the format ``fmt``, in ``x``'s dtype or into ``out``.

    Args:
        x: float32, float64, float16 or bfloat16; any strides.
        fmt: a cast or format, or its name: "e4m3", "e5m10/rtz", "fixed(8,4)/sr8", "bfp(8,16)". In block floating point
            the elements of a block share an exponent; see ``BlockFloatFormat``, and ``FiniteFloatFormat`` and
            ``ScaledBlockFormat`` for d-Matrix's "FP[1|4|3,7](_N)" and "MXFP8[E4M3]{32}".
        rounding, overflow: replace what ``fmt`` says; the defaults are rne and "infinity".
        out: receives and is the result: ``x``'s shape, any of the four dtypes, ``x`` itself for in place.
        seed: seed of the random bits, 0 to 2**64 - 1, for stochastic rounding. None takes one from torch's default CPU
            generator, so that ``torch.manual_seed`` makes the result repeatable. The bits of an element only depend on
            the seed and its row-major index.

    NaN stays NaN. Infinities and results beyond the largest value follow the overflow policy. Zero keeps its sign where
    the format has -0; otherwise it is +0. A value that the result's dtype does not hold is rounded to it (nearest even)
    after the rounding to ``fmt``: a bfloat16 tensor cannot hold an e5m10 value of eleven bits. Rounding has no
    derivative: in grad mode a tensor that requires grad raises ``GradError``.

    Raises:
        FormatError: for an unknown format, rounding or overflow policy.
        DTypeError, DeviceError: for other dtypes and devices.
        ShapeError: for an ``out`` of another shape, and for a dimension of blocks that ``x`` does not have.
        OverlapError: for an ``out`` that shares memory with itself or, other than entirely, with ``x``.
        GradError: for an ``x`` or ``out`` that requires grad in grad mode.

    Example:
        >>> gs.quantize(torch.tensor([0.3, 17.1]), "e4m3")
        tensor([ 0.3125, 18.0000])
        >>> gs.quantize(torch.tensor([0.3]), "fixed(8,4)/rd")
        tensor([0.2500])
    """
    if seed is not None:
        seed = check_seed("quantize", seed)
    if x is not None and out is None and unobserved(x) and not x.requires_grad:
        plain = type(fmt) is str and rounding is None and overflow is None
        return steps.quantize(x, target_of(fmt) if plain else resolve_target(fmt, rounding, overflow), seed)
    prepare()
    cast = cast_name(fmt, rounding, overflow)
    _check(x, out, torch.compiler.is_compiling())
    if out is None:
        return quantize_op(x, cast, seed)
    if unobserved(x, out):
        steps.overwrite(x, target_of(cast), out, seed)
    elif x is out:
        quantize_inplace_op(x, cast, seed)
    else:
        quantize_out_op(x, cast, out, seed)
    return out


def _check(x: Tensor, out: Tensor | None, compiling: bool) -> None:
    check_float("quantize", "x", x)
    if out is not None:
        check_float("quantize", "out", out)
    check_device("quantize", x, out, names="x out")
    if torch.is_grad_enabled() and (x.requires_grad or (out is not None and out.requires_grad)):
        raise GradError(
            message(
                "quantize of a tensor that requires grad",
                "tensors without grad, or a call under torch.no_grad()",
                "Use gemmsim.quantizer(fmt)(x), whose gradient passes straight through, or x.detach().",
            )
        )
    # Compiled code makes memory explicit itself, and its tensors have no addresses yet.
    if out is not None and not compiling:
        check_out("quantize", x, out)
