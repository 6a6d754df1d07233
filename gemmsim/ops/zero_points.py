"""Products of quantised integers with zero points, in an emulated integer register."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import Accumulator, GemmSpec, Integer, SpecError, SpecLike

from .arrays import takes_arrays
from .checks import check_device, check_same_inner, check_tensor
from .errors import DTypeError, ShapeError, message
from .product.matmul import qmatmul

__all__ = ["integer_matmul", "integers_of"]

_TIMES = ("before", "after")
#: Magnitudes that float64 and float32 hold with all integers below.
_WHOLE, _WHOLE_32 = 1 << 53, 1 << 24


@takes_arrays
@takes_spec()
def integer_matmul(
    a: Tensor,
    b: Tensor,
    spec: SpecLike = "int(32)",
    *,
    a_zero: int | Tensor = 0,
    b_zero: int | Tensor = 0,
    subtract: str = "before",
) -> Tensor:
    """``sum over k of (a[m, k] - a_zero) * (b[k, n] - b_zero)`` in an integer accumulator, as int64.

    Args:
        a, b: (..., M, K) and (..., K, N): integers, in tensors of integers or floats.
        spec: the accumulator: "int(32)", "int(20, saturate)", "adder_tree([17, 18], 32)", ... It has no operand
            formats.
        a_zero, b_zero: zero points: an integer, or one for each row of a (M,) and each column of b (N,).
        subtract: "before": the differences are multiplied. "after": the operands are multiplied as they are, and the
            accumulated result r is corrected once: ``F(r - a_zero B - b_zero A + K a_zero b_zero)`` with the exact sums
            A of a's row and B of b's column. F wraps or saturates as the accumulator does. This is gemmlowp's form.

    Both forms are equal where nothing saturates, and for accumulators that wrap (a wrap is undone by the next one).
    With no terms the result is 0. There are no NaN and no infinities; gradients do not pass.

    Raises:
        SpecError: for a spec with operand formats or an output, an accumulator that is not of integers, and for
            "after" with products that are shifted.
        DTypeError: for operands that are not tensors of integers, or beyond 2^53 after the subtraction.
        ShapeError: for shapes that do not multiply, and zero points of another length.
        DeviceError: for operands on different devices.

    Source: gemmlowp, doc/low-precision.md and doc/quantization.md; "after" computes their four terms.

    Example:
        >>> a, b = torch.tensor([[255, 255, 0]]), torch.tensor([[2], [-1], [1]])
        >>> gs.integer_matmul(a, b, "int(9, saturate)", a_zero=128)
        tensor([[-1]])
        >>> gs.integer_matmul(a, b, "int(9, saturate)", a_zero=128, subtract="after")  # 510 saturates
        tensor([[-256]])
    """
    for name, x in (("a", a), ("b", b)):
        check_tensor("integer_matmul", name, x)
    check_device("integer_matmul", a, b)
    if a.dim() < 2 or b.dim() < 2:
        asked = f"integer_matmul: shapes {tuple(a.shape)} and {tuple(b.shape)}"
        raise ShapeError(message(asked, "matrices (..., M, K) and (..., K, N)", "Add the missing dimension."))
    check_same_inner("integer_matmul", a, b)
    accumulator = _register(spec)
    if subtract not in _TIMES:
        asked = f"integer_matmul: subtract={subtract!r}"
        raise SpecError(message(asked, " or ".join(map(repr, _TIMES)), "Use one of them."))
    left, right = integers_of("integer_matmul", "a", a), integers_of("integer_matmul", "b", b)
    zero_a = _zero("a_zero", a_zero, a.shape[-2], left)[..., None]
    zero_b = _zero("b_zero", b_zero, b.shape[-1], right)
    if subtract == "before":
        return _product(left - zero_a, right - zero_b, accumulator)
    _check_correction(accumulator, left, right, zero_a, zero_b)
    result = _product(left, right, accumulator)
    rows, columns = left.sum(-1, keepdim=True), right.sum(-2, keepdim=True)
    corrected = result - zero_a * columns - zero_b * rows + a.shape[-1] * zero_a * zero_b
    return _into(corrected, accumulator)


def integers_of(owner: str, name: str, x: Tensor) -> Tensor:
    """``x`` as int64.

    Raises:
        DTypeError: for what is not integers, or beyond 2^53.
    """
    if x.is_complex() or x.dtype is torch.bool:
        raise DTypeError(message(f"{owner}: {name} has dtype {x.dtype}", "integers, in any other dtype", "Convert it."))
    whole = x.detach().to(torch.int64) if not x.is_floating_point() else _whole(owner, name, x.detach().double())
    if whole.numel() and (int(whole.max()) > _WHOLE or int(whole.min()) < -_WHOLE):
        raise DTypeError(message(f"{owner}: {name} holds integers beyond 2^53", "magnitudes up to 2^53", "Split them."))
    return whole


def _whole(owner: str, name: str, x: Tensor) -> Tensor:
    wrong = (x != x.round()) | ~x.isfinite() | (x.abs() > 2.0**53)
    if bool(wrong.any()):
        first = float(x[wrong].flatten()[0])
        raise DTypeError(
            message(f"{owner}: {name} holds {first}", "integers up to 2^53, in any dtype", "Round it first.")
        )
    return x.to(torch.int64)


def _register(spec: SpecLike) -> Accumulator:
    """The accumulator of integers that ``spec`` is."""
    found = GemmSpec.of(spec)
    if found.a is not None or found.b is not None or found.out is not None:
        asked, allowed = f"integer_matmul: spec={str(found)!r}", "an accumulator alone, such as 'int(32)'"
        raise SpecError(message(asked, allowed, "Leave operand formats and the output out; see gemmsim.requantize."))
    if not found.accumulator.integer_operands:
        asked, allowed = f"integer_matmul in {found.accumulator}", "int(...), and chunked and adder_tree of it"
        raise SpecError(message(asked, allowed, "Name an integer register."))
    return found.accumulator


def _zero(name: str, value: int | Tensor, size: int, like: Tensor) -> Tensor:
    """A zero point as int64 (1,) or (size,)."""
    if isinstance(value, bool) or not isinstance(value, (int, Tensor)):
        asked = f"integer_matmul: {name}={value!r}"
        raise DTypeError(message(asked, "an integer or a tensor of them", "Give the zero point as an integer."))
    found = torch.as_tensor(value, device=like.device)
    found = integers_of("integer_matmul", name, found).reshape(1) if found.dim() == 0 else found
    if found.dim() != 1 or found.shape[0] not in (1, size):
        asked = f"integer_matmul: {name} of shape {tuple(found.shape)}"
        raise ShapeError(message(asked, f"one integer, or ({size},)", "Zero points do not vary along the sum."))
    return integers_of("integer_matmul", name, found)


def _product(a: Tensor, b: Tensor, accumulator: Accumulator) -> Tensor:
    most = max((int(x.abs().max()) for x in (a, b) if x.numel()), default=0)
    if most > _WHOLE:
        asked = "integer_matmul: operands beyond 2^53 after the zero point is subtracted"
        raise DTypeError(message(asked, "magnitudes up to 2^53", "Give smaller ones."))
    dtype = torch.float32 if most <= _WHOLE_32 else torch.float64
    result: Tensor = qmatmul(a.to(dtype), b.to(dtype), accumulator, out_dtype=torch.float64)
    return result.to(torch.int64)


def _into(sums: Tensor, accumulator: Accumulator) -> Tensor:
    """Sums brought into the register that the result is in."""
    fmt: Any = accumulator.add_cast.format
    low, high = int(fmt.min), int(fmt.max)
    if isinstance(accumulator, Integer) and accumulator.overflow == "wrap":
        return (sums - low) % (high - low + 1) + low
    return sums.clamp(low, high)


def _check_correction(accumulator: Accumulator, a: Tensor, b: Tensor, zero_a: Tensor, zero_b: Tensor) -> None:
    """``SpecError`` for a register that shifts products, ``DTypeError`` where int64 does not hold the four terms."""
    innermost: Any = accumulator
    while hasattr(innermost, "inner"):
        innermost = innermost.inner
    if getattr(innermost, "shift", 0):
        asked = f"integer_matmul: subtract='after' in {accumulator}, which shifts products"
        raise SpecError(message(asked, "registers without a shift", "Use subtract='before'."))
    left, right, x, y = (int(t.abs().max()) if t.numel() else 0 for t in (a, b, zero_a, zero_b))
    if a.shape[-1] * (left + x) * (right + y) >= 1 << 62:
        asked = f"integer_matmul: subtract='after' of {a.shape[-1]} products up to {(left + x) * (right + y):,}"
        raise DTypeError(message(asked, "sums below 2^62", "Use subtract='before'."))
