"""GELU and SiLU with every step rounded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import SpecError

from ..checks import check_device, check_float
from ..errors import message
from ..fx import traceable
from ..seeds import Bits, Stream
from ..single_differentiation import differentiable_once
from ..strides import like_operand
from .formats import QGELUFormats, RowFormatsLike, RowPlan, row_formats
from .operators import row_map_op
from .steps import applied, cast_text, finish, map_step, quantized

__all__ = ["gelu", "qgelu", "qsilu", "silu"]

_GATES = {"none": "erf", "tanh": "tanh_cubic", "silu": "sigmoid"}
_ROOT = 0.7978845608028654  # sqrt(2 / pi), nearest double


def _map(function: str, a: Tensor, b: Tensor | float | None = None) -> Tensor:
    """A step in the dtype itself, correctly rounded."""
    other = torch.full((), b, dtype=a.dtype, device=a.device) if isinstance(b, float) else b
    result: Tensor = row_map_op(a, other, function, "", None, 0)
    return result


def _gelu_slope(x: Tensor, t: Tensor) -> Tensor:
    return _map("add", _map("add", t, 1.0) * 0.5, _map("density", x))


def _tanh_slope(x: Tensor, t: Tensor) -> Tensor:
    rest = _map("sub", torch.ones_like(t), _map("mul", t, t))
    inner = _map("add", _map("mul", _map("mul", x, x), 0.134145), 1.0)
    second = _map("mul", _map("mul", _map("mul", x * 0.5, rest), _ROOT), inner)
    return _map("add", _map("add", t, 1.0) * 0.5, second)


def _silu_slope(x: Tensor, t: Tensor) -> Tensor:
    inner = _map("mul", x, _map("sub", torch.ones_like(t), t))
    return _map("mul", t, _map("add", inner, 1.0))


_SLOPES = {"none": _gelu_slope, "tanh": _tanh_slope, "silu": _silu_slope}


class _Gated(torch.autograd.Function):
    """x * gate(x), each step rounded; differentiating twice raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, kind: str, plan: RowPlan, seed: int | None, counter: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        bits = Bits(seed, counter)
        xi = quantized(x, plan.input, bits, Stream.INPUT)
        work = torch.float64 if x.dtype is torch.float64 else torch.float32
        inter, out = plan.inter, plan.output
        wide = xi.to(work)
        t = map_step(_GATES[kind], wide, None, inter, bits, int(Stream.FPROP))
        if kind == "silu":
            y = row_map_op(wide, t, "mul", cast_text(out), seed, int(Stream.OUTPUT), counter)
        else:
            y = row_map_op(wide * 0.5, _map("add", t, 1.0), "mul", cast_text(out), seed, int(Stream.OUTPUT), counter)
        y = finish(y, out).to(x.dtype)
        return y, None if xi is x else xi, t  # an input is no output

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.kind, ctx.plan, ctx.seed, counter = inputs
        _, xi, t = output
        ctx.mark_non_differentiable(*(v for v in output[1:] if v is not None))
        ctx.save_for_backward(x if xi is None else xi, t, counter)

    @staticmethod
    @differentiable_once("qgelu, qsilu")
    def backward(ctx: Any, saved: tuple[Any, ...], g: Tensor, *unused: Any) -> Any:
        xi, t, counter = saved
        grad, bits = ctx.plan.grad, Bits(ctx.seed, counter)
        slope = _SLOPES[ctx.kind](xi.to(t.dtype), t)
        qg = quantized(g, grad, bits, Stream.GRAD)
        dx = row_map_op(qg.to(t.dtype), slope, "mul", cast_text(grad), ctx.seed, int(Stream.DGRAD), counter)
        return like_operand(finish(dx, grad).to(g.dtype), g), None, None, None, None


def _gated(owner: str, x: Tensor, kind: str, formats: QGELUFormats, bits: Bits | None) -> Tensor:
    check_float(owner, "x", x)
    check_device(owner, x, names="x")
    result: Tensor = applied(_Gated, x, kind, formats.plan, *(bits or Bits(formats.plan.seed)))[0]
    return result


@traceable
@takes_spec("formats")
def qgelu(x: Tensor, spec: RowFormatsLike | None = None, approximate: str = "none") -> Tensor:
    """``torch.nn.functional.gelu(x, approximate=approximate)`` with its steps rounded to the formats of ``spec``.

    ``xi = input_quant(x)``; ``t = inter_quant(erf(xi / sqrt 2))``, or with approximate="tanh"
    ``t = inter_quant(tanh(sqrt(2 / pi) (xi + 0.044715 xi^3)))``, one rounding of the exact value;
    ``y = output_quant(xi / 2 * (1 + t))``, where 1 + t is rounded to float32 (float64 for float64). Gradient:
    ``grad_quant(grad_quant(g) * d)`` with d = (1 + t) / 2 + xi pdf(xi), or (1 + t) / 2 + xi / 2 (1 - t^2) sqrt(2 / pi)
    (1 + 0.134145 xi^2), each step in float32 (float64). NaN stays NaN; +inf gives +inf, -inf gives NaN (as 0 * inf).
    ``spec`` is ``QGELUFormats``; None is PyTorch's own; a cast or its name rounds at every quantiser. (``formats``,
    the former keyword, is deprecated.) Differentiating twice raises ``GradError``.

    Raises:
        DTypeError, DeviceError: for other tensors.
        SpecError: for another ``approximate``.

    Example:
        >>> x = torch.tensor([-1.0, 1.0])
        >>> gs.qgelu(x, "e4m3"), torch.nn.functional.gelu(x)
        (tensor([-0.1562,  0.8750]), tensor([-0.1587,  0.8413]))
    """
    return gelu(x, spec, approximate)


def gelu(x: Tensor, formats: RowFormatsLike | None, approximate: str = "none", bits: Bits | None = None) -> Tensor:
    """``qgelu``, its errors too (``DTypeError``, ...); ``bits`` in place of those of the formats."""
    if approximate not in ("none", "tanh"):
        asked = f"qgelu: approximate={approximate!r}"
        raise SpecError(message(asked, "'none' or 'tanh'", "Give one of these."))
    formats = row_formats(QGELUFormats, formats)
    if formats.plan.is_native:
        check_float("qgelu", "x", x)
        check_device("qgelu", x, names="x")
        return torch.nn.functional.gelu(x, approximate=approximate)
    return _gated("qgelu", x, approximate, formats, bits)


@traceable
@takes_spec("formats")
def qsilu(x: Tensor, spec: RowFormatsLike | None = None) -> Tensor:
    """``torch.nn.functional.silu(x)`` with its steps rounded to the formats of ``spec``; otherwise as ``qgelu``.

    ``t = inter_quant(1 / (1 + exp(-xi)))``, ``y = output_quant(xi t)``; gradient ``grad_quant(grad_quant(g) * d)`` with
    d = t (1 + xi (1 - t)), each step in float32 (float64).

    Raises:
        DTypeError, DeviceError: for other tensors.

    Example:
        >>> x = torch.tensor([-1.0, 1.0])
        >>> gs.qsilu(x, "e4m3"), torch.nn.functional.silu(x)
        (tensor([-0.2812,  0.7500]), tensor([-0.2689,  0.7311]))
    """
    return silu(x, spec)


def silu(x: Tensor, formats: RowFormatsLike | None, bits: Bits | None = None) -> Tensor:
    """``qsilu``, its errors too (``DTypeError``, ...); ``bits`` in place of those of the formats."""
    formats = row_formats(QGELUFormats, formats)
    if formats.plan.is_native:
        check_float("qsilu", "x", x)
        check_device("qsilu", x, names="x")
        return torch.nn.functional.silu(x)
    return _gated("qsilu", x, "silu", formats, bits)
