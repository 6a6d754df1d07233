"""The rounded steps of optimizers: one tensor, and ``x + y * z``."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import torch
from torch import Tensor

from gemmsim.formats import Cast
from gemmsim.ops import quantize, quantizer
from gemmsim.ops.cast_arguments import carrier_dtype, target_of
from gemmsim.ops.errors import message
from gemmsim.ops.straight_through import Quantizer

__all__ = [
    "OptimizerError",
    "Rounded",
    "StepQuant",
    "TensorQuant",
    "check_held",
    "compensated_add",
    "holder",
    "multiply_add",
    "read_step",
    "read_tensor",
    "scalar",
    "work_dtype",
]

#: A step ``x + y * z`` as a function of three tensors.
StepQuant: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
#: A rounding as a function of one tensor.
TensorQuant: TypeAlias = Callable[[Tensor], Tensor]


class OptimizerError(TypeError, AssertionError):
    """Raised for an optimizer, gradient or quantiser that these optimizers do not take. Also an ``AssertionError``.

    Example:
        >>> gs.optim.QSGD([torch.nn.Parameter(torch.ones(1))], acc_quant=3)
        Traceback (most recent call last):
            ...
        gemmsim.optim.steps.OptimizerError: QSGD: acc_quant=3 (cast 3 of type int; allowed: a name, a ...
    """


class Rounded:
    """``quantize`` with its format; a value, so that optimizers pickle. ``seed``: of random bits, None for torch's
    generator."""

    #: The format as its user wrote it, for messages; None where it is no text. Older pickles have none.
    written: str | None = None

    def __init__(self, target: Any, written: str | None = None) -> None:
        self.target, self.written = target, written

    def __call__(self, x: Tensor, *, seed: int | None = None) -> Tensor:
        return quantize(x, self.target, seed=seed)

    def __repr__(self) -> str:
        return repr(str(self.target) if self.written is None else self.written)


class _RoundedStep(Rounded):
    def __call__(self, x: Tensor, y: Tensor, z: Tensor, *, seed: int | None = None) -> Tensor:  # type: ignore[override]
        return multiply_add(x, y, z, self.target, seed=seed)


@lru_cache(maxsize=256)
def holder(target: str, dtype: torch.dtype) -> torch.dtype:
    """``dtype`` if it holds every number of the format that ``target`` names, else float32 or float64."""
    fmt = target_of(target)
    return carrier_dtype(fmt.format, dtype) if isinstance(fmt, Cast) else dtype


def check_held(owner: str, name: str, quant: Any, t: Tensor) -> None:
    """``OptimizerError`` where ``quant`` rounds to numbers that ``t``, which keeps them, does not hold."""
    if isinstance(quant, Rounded) and holder(str(quant.target), t.dtype) != t.dtype:
        asked = f"{owner}: {name}={quant!r} of weights in {str(t.dtype).removeprefix('torch.')}"
        do = "Use QOptim, whose master copies are as wide as acc_quant, or weights in float32."
        raise OptimizerError(message(asked, "formats whose numbers that dtype holds", do))


def read_tensor(owner: str, name: str, quant: Any) -> TensorQuant | None:
    """A quantiser of one tensor: a cast, format, name or pair (format, rounding) as a function; functions as given."""
    return _read(owner, name, quant, Rounded)


def read_step(owner: str, name: str, quant: Any) -> StepQuant | None:
    """A quantiser of ``x + y * z``, read as ``read_tensor`` does; functions take three tensors."""
    return _read(owner, name, quant, _RoundedStep)


def _read(owner: str, name: str, quant: Any, wrap: Callable[[Any, str | None], Any]) -> Any:
    inner = getattr(quant, "function", None)  # of gemmsim.nn.Quantizer
    if isinstance(own := inner if isinstance(inner, Quantizer) else quant, Quantizer):
        quant = own.forward  # its format is known, and its random bits come from the optimizer's seed
    if quant is None or (callable(quant) and not isinstance(quant, type)):
        return quant
    try:
        pair = quant if isinstance(quant, tuple) and len(quant) == 2 else (quant, None)
        return wrap(quantizer(pair[0], None, pair[1]).forward, quant if isinstance(quant, str) else None)
    except (TypeError, ValueError) as error:
        allowed = "a cast, a format, a string, a pair (format, rounding), a function or None"
        asked = f"{owner}: {name}={quant!r} ({error})"
        raise OptimizerError(message(asked, allowed, "Try 'bf16/sr16'.")) from error


@torch.no_grad()
def multiply_add(x: Tensor, y: Tensor, z: Tensor | float, fmt: Any = None, *, seed: int | None = None) -> Tensor:
    """``x + y * z`` rounded once to ``fmt``, elementwise, in ``x``'s dtype.

    ``y`` and ``z`` broadcast to ``x``'s shape. A number ``z`` is rounded to float32 first (float64 for float64 x), as
    PyTorch's operators do. ``fmt`` is a cast, format or name; None computes in that dtype and rounds the product
    first. ``seed`` is that of the random bits of a stochastic ``fmt``; None takes torch's generator.

    The result is correctly rounded for operands of float32 and narrower. The product is exact in float64, and the sum
    is rounded to odd there. The one rounding to ``fmt`` is then correct (Boldo and Melquiond, IEEE Trans. Computers
    57(4), 2008) as long as its significand and random bits are 51 together; a format with more is rounded from that
    float64 sum. In float64 the product is rounded to float64 first. NaN, infinities and -0 are those of IEEE 754 for
    the sum. Overflow, and the rounding to ``x``'s dtype if it does not hold ``fmt``, are those of
    ``gemmsim.quantize``. There is no gradient.

    Example:
        >>> gs.optim.multiply_add(torch.ones(2), torch.tensor([1e-3, 1e-2]), -1.0, "bf16")
        tensor([1.0000, 0.9883])
    """
    work = work_dtype(x)
    factor = z if isinstance(z, Tensor) else torch.tensor(z, dtype=work, device=x.device)
    if fmt is None:
        return (x.to(work) + y.to(work) * factor.to(work)).to(x.dtype)
    total = _odd_sum(x.double(), y.double() * factor.double())
    return quantize(total, fmt, seed=seed).to(x.dtype)


def _odd_sum(x: Tensor, y: Tensor) -> Tensor:
    """``x + y`` in float64, rounded to odd."""
    total = x + y
    back = total - x
    error = (x - (total - back)) + (y - back)  # Knuth's TwoSum: exact unless something is infinite
    inexact = (error != 0) & error.isfinite() & total.isfinite()
    bits = total.view(torch.int64)
    outward = torch.where((error > 0) == (total > 0), 1, -1)
    return (bits + torch.where(inexact & (bits & 1 == 0), outward, 0)).view(torch.float64)


def work_dtype(t: Tensor) -> torch.dtype:
    """float64 for float64, else float32: the dtype in which updates of ``t`` are computed."""
    return torch.float64 if t.dtype == torch.float64 else torch.float32


def scalar(t: Tensor, value: float) -> Tensor:
    """``value`` as a tensor without dimensions in ``t``'s work dtype."""
    return torch.tensor(value, dtype=work_dtype(t), device=t.device)


def compensated_add(weight: Tensor, compensation: Tensor, direction: Tensor, rate: float, step: StepQuant) -> None:
    """``weight - rate * direction`` with Kahan's compensation, in place, every operation a ``step``.

    ``y = -step(c, d, rate)``, ``s = step(w, y, 1)``, ``c = step(step(s, w, -1), y, -1)``, ``w = s``.
    Source: docs/reference/optim.md#updates-smaller-than-an-ulp; Kahan, Communications of the ACM 8(1), 1965.
    """
    work, one = work_dtype(weight), scalar(weight, 1.0)
    before = weight.to(work)
    y = -step(compensation.to(work), direction.to(work), scalar(weight, rate))
    total = step(before, y, one)
    compensation.copy_(step(step(total, before, -one), y, -one))
    weight.copy_(total)
