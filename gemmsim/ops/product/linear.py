"""The linear layer as a function."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gemmsim._keywords import takes_spec

from ..checks import check_device, check_float, check_out_dtype
from ..dispatch import unobserved
from ..errors import ShapeError, message
from ..fx import traceable
from ..lazy_dynamo import assume_constant_result
from ..seeds import check_row, check_seed
from . import eager, fast_path
from .affine_formats import QAffineFormats
from .amax_history import Lengths, scales_of_call
from .int8_fp8_operands import as_numbers, is_narrow
from .matmul import FormatsLike, affine, check_row_steps, formats_of
from .matmul_extras import MatmulExtras
from .sharding import prepare

__all__ = ["delayed_linear", "qlinear"]


@traceable
@takes_spec("formats")
def qlinear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    spec: FormatsLike | None = None,
    *,
    seed: int | None = None,
    arithmetic: str | None = None,
    out_dtype: torch.dtype | None = None,
    row: int = 0,
) -> Tensor:
    """``torch.nn.functional.linear(x, weight, bias)`` in the arithmetic of ``spec``, with gradients.

    Leading dimensions of ``x`` (any number, or none) are flattened first: one product (M, K) x (K, N), one sum of M
    terms in the weight's gradient, one scale for all of ``x``. Without bias it is ``qmatmul(x, weight.mT, spec)``.

    Args:
        x, weight, bias: shapes (..., K), (N, K) and (N,); dtypes as in ``qmatmul``.
        spec: a string, ``GemmSpec``, accumulator or cast for every product with the gradient rule of ``qmatmul``, or
            ``QAffineFormats``. None is PyTorch's own ``linear``. (``formats``, its former keyword, is deprecated.)
        seed, arithmetic, out_dtype, row: as in ``qmatmul``; rows are those of the flattened x. The default dtype is
            what x and weight promote to.

    Forward: ``output_quant(gemm(input_quant(x), weight_quant(weight).mT) + bias_quant(bias))``. The bias is added in
    float32 (float64 where the result or the accumulator is wider than float32), then the result is rounded to its
    dtype. Backward, with ``qg = grad_quant(grad)``: ``grad_x = grad_quant(dgrad(qg, qweight))``, ``grad_weight =
    grad_quant(wgrad(qg.mT, qx))``, ``grad_bias = grad_quant(sum(qg))``. The last sum is sequential over the rows, each
    addition rounded as in wgrad's accumulator (it is PyTorch's sum where wgrad is PyTorch's or ``bias_sum`` is
    "torch").

    NaN, infinities, -0 and overflow are those of ``qmatmul``.

    Raises:
        SpecError, FormatError, GradError, UnsupportedSpec: as ``qmatmul``.
        DTypeError, DeviceError, ShapeError, SeedError: for arguments that do not fit; the message names them.

    Example:
        >>> x, weight = torch.full((1, 64), 0.1), torch.ones(1, 64)
        >>> gs.qlinear(x, weight, torch.ones(1), "e4m3 : fp16")
        tensor([[7.5000]])
        >>> gs.qlinear(x, weight, torch.ones(1), "hopper_fp8")
        tensor([[7.5000]])
    """
    chosen = formats_of(spec, arithmetic)
    seed, row = check_seed("qlinear", seed), check_row("qlinear", row)
    if is_narrow(x, weight):
        x, weight, out_dtype = as_numbers("qlinear", x, weight, chosen, out_dtype, "x weight")
    dtype = _check_arguments(x, weight, bias, out_dtype)
    plan = chosen.plan
    if plan.is_plain and x.dim() > 1:
        if fast_path.way_of(plan, x, weight, bias) == fast_path.KERNEL:
            extras = MatmulExtras(plan.seed if seed is None else seed, dtype, bias=bias, row=row)
            return eager.matmul(x, weight.mT, eager.spec_of(str(plan.fprop.spec)), extras)
    if not unobserved(x, weight):
        prepare()
    if plan.is_native:
        return _native(x, weight, bias, dtype)
    check_row_steps("qlinear", row, plan)
    if bias is None and chosen.bias_in_accumulator:
        plan = _without_bias(chosen).plan
    rows = x if x.dim() == 2 else x.reshape(x.shape[:-1].numel(), x.shape[-1])
    out = affine(rows, weight, bias, plan, seed, True, dtype, row=row)
    return out if x.dim() == 2 else out.reshape(*x.shape[:-1], weight.shape[0])


def delayed_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    formats: QAffineFormats,
    history: Tensor,
    lengths: Lengths,
    training: bool,
) -> Tensor:
    """``qlinear`` of formats with delayed scales, whose ``history`` it reads and in training moves on.

    Raises:
        SpecError, DTypeError, DeviceError, ShapeError: as ``qlinear``.
    """
    dtype = _check_arguments(x, weight, bias, None)
    check_device("qlinear", x, history, None, "x amax_history")
    rows = x if x.dim() == 2 else x.reshape(x.shape[:-1].numel(), x.shape[-1])
    amax = scales_of_call(history, lengths, rows, weight, training)
    learns = history if training and lengths[2] else None
    out = affine(rows, weight, bias, formats.plan, None, True, dtype, amax=amax, history=learns)
    return out if x.dim() == 2 else out.reshape(*x.shape[:-1], weight.shape[0])


@assume_constant_result
def _without_bias(formats: QAffineFormats) -> QAffineFormats:
    return replace(formats, bias_in_accumulator=False)


def _native(x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    common = torch.promote_types(x.dtype, weight.dtype)
    bias = None if bias is None else bias.to(common)
    return torch.nn.functional.linear(x.to(common), weight.to(common), bias).to(dtype)


def _fit(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    if x.dim() == 0 or weight.dim() != 2 or x.shape[-1] != weight.shape[1]:
        return False
    return bias is None or (bias.dim() == 1 and bias.shape[0] == weight.shape[0])


def _check_arguments(x: Tensor, weight: Tensor, bias: Tensor | None, out_dtype: torch.dtype | None) -> torch.dtype:
    check_float("qlinear", "x", x)
    check_float("qlinear", "weight", weight)
    if bias is not None:
        check_float("qlinear", "bias", bias)
    check_device("qlinear", x, weight, bias, "x weight bias")
    if not _fit(x, weight, bias):
        shapes = f"x {tuple(x.shape)}, weight {tuple(weight.shape)}"
        shapes += "" if bias is None else f", bias {tuple(bias.shape)}"
        allowed = "x (..., K), weight (N, K), bias (N,)"
        raise ShapeError(message(f"qlinear: shapes {shapes}", allowed, "The weight is stored as torch.nn.Linear does."))
    if out_dtype is not None:
        check_out_dtype("qlinear", out_dtype)
        return out_dtype
    return torch.promote_types(x.dtype, weight.dtype)
