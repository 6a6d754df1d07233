"""Element-wise arithmetic and sums, rounded after each operation, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gemmsim._keywords import says_keywords

from ..checks import check_device, check_flags, check_float, check_numbers
from ..errors import DTypeError, ShapeError, message
from ..fx import traceable
from ..product.affine_formats import QuantLike
from ..product.affine_plan import Step
from ..seeds import Bits, check_seed
from ..single_differentiation import differentiable_once
from ..strides import like_operand
from .formats import order_length, quant_step
from .powers import TensorPower
from .steps import applied, map_step, normal_dims, quantized, sum_step, sum_to

__all__ = ["StepChain", "count_for", "qadd", "qdiv", "qmean", "qmul", "qpow", "qrelu", "qsqrt", "qsum", "relu"]


class _Binary(torch.autograd.Function):
    """add, mul or div with its gradients, each step rounded; broadcast gradients are summed in the backward step."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, y: Tensor, name: str, fwd: Step, bwd: Step, at: int, seed: int | None, counter: Tensor | None
    ) -> Tensor:
        return map_step(name, x, y, fwd, Bits(seed, counter), at)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, y, ctx.name, _, ctx.bwd, ctx.at, ctx.seed, counter = inputs
        ctx.shapes, ctx.dtypes = (x.shape, y.shape), (x.dtype, y.dtype)
        kept = {"add": (), "mul": (x, y), "div": (y, output)}[ctx.name]
        ctx.save_for_backward(counter, *kept)

    @staticmethod
    @differentiable_once("qadd, qmul, qdiv")
    def backward(ctx: Any, saved: tuple[Any, ...], g: Tensor) -> Any:
        counter, saved = saved[0], saved[1:]
        bwd, bits, at = ctx.bwd, Bits(ctx.seed, counter), ctx.at
        dx = dy = None
        if ctx.needs_input_grad[0]:
            if ctx.name == "add":
                dx = quantized(g, bwd, bits, at + 1)
            else:
                dx = map_step(ctx.name, g, saved[1] if ctx.name == "mul" else saved[0], bwd, bits, at + 1)
            dx = sum_to(dx, ctx.shapes[0], bwd, bits, at + 2).to(ctx.dtypes[0])
        if ctx.needs_input_grad[1]:
            if ctx.name == "add":
                dy = quantized(g, bwd, bits, at + 3)
            elif ctx.name == "mul":
                dy = map_step("mul", g, saved[0], bwd, bits, at + 3)
            else:
                dy = map_step("div", map_step("mul", -g, saved[1], bwd, bits, at + 3), saved[0], bwd, bits, at + 4)
            dy = sum_to(dy, ctx.shapes[1], bwd, bits, at + 5).to(ctx.dtypes[1])
        return dx, dy, None, None, None, None, None, None


def _power(x: Tensor, n: float, step: Step, bits: Bits, at: int) -> Tensor:
    """``x ** n`` rounded once; x and x * x by a product, which has the same bits and needs no test for ties."""
    if n == 2:
        return map_step("mul", x, x, step, bits, at)
    one_or_n = torch.full((), n, dtype=x.dtype, device=x.device)
    return map_step("mul" if n == 1 else "pow", x, one_or_n, step, bits, at)


class _Unary(torch.autograd.Function):
    """sqrt or a power with its gradient, each step rounded."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, n: float | None, fwd: Step, bwd: Step, at: int, seed: int | None, counter: Tensor | None
    ) -> Tensor:
        if n is None:
            return map_step("sqrt", x, None, fwd, Bits(seed, counter), at)
        return _power(x, n, fwd, Bits(seed, counter), at)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.n, _, ctx.bwd, ctx.at, ctx.seed, counter = inputs
        ctx.save_for_backward(output if ctx.n is None else x, counter)

    @staticmethod
    @differentiable_once("qsqrt, qpow")
    def backward(ctx: Any, saved: tuple[Any, ...], g: Tensor) -> Any:
        x, counter = saved
        bwd, bits, at = ctx.bwd, Bits(ctx.seed, counter), ctx.at
        if ctx.n is None:
            dx = map_step("div", g, quantized(2 * x, bwd, bits, at + 1), bwd, bits, at + 2)
            return like_operand(dx, g), None, None, None, None, None, None
        if ctx.n == 0:
            return torch.zeros_like(x), None, None, None, None, None, None
        n = torch.full((), ctx.n, dtype=x.dtype, device=x.device)
        factor = map_step("mul", _power(x, ctx.n - 1, bwd, bits, at + 1), n, bwd, bits, at + 2)
        return like_operand(map_step("mul", g, factor, bwd, bits, at + 3), g), None, None, None, None, None, None


def count_for(t: Tensor, count: int) -> Tensor:
    """``count`` as what ``t`` is divided by: in ``t``'s dtype if that holds it, else in a wider one."""
    wider = (t.dtype, torch.float32, torch.float64)
    exact = (dtype for dtype in wider if dtype == torch.float64 or count <= round(2 / torch.finfo(dtype).eps))
    return torch.full((), count, dtype=next(exact), device=t.device)


class _Sum(torch.autograd.Function):
    """Sums over dimensions in order; with ``bwd``, divided by the number of terms."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, dims: tuple[int, ...], keepdim: bool, mean: bool, fwd: Step, bwd: Step, order: int, at: int,
        seed: int | None, counter: Tensor | None,
    ) -> Tensor:  # fmt: skip
        bits = Bits(seed, counter)
        total = sum_step(x, dims, fwd, order, bits, at)
        if mean:
            total = map_step("div", total, count_for(x, _count(x, dims)), fwd, bits, at + 100).to(total.dtype)
        return total if keepdim else total.reshape([n for d, n in enumerate(x.shape) if d not in dims])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.dims, _, ctx.mean, _, ctx.bwd, _, ctx.at, ctx.seed, counter = inputs
        ctx.save_for_backward(counter)
        ctx.shape, ctx.count = x.shape, _count(x, ctx.dims)

    @staticmethod
    @differentiable_once("qsum, qmean")
    def backward(ctx: Any, saved: tuple[Any, ...], g: Tensor) -> Any:
        bits = Bits(ctx.seed, *saved)
        if ctx.mean:
            g = map_step("div", g, count_for(g, ctx.count), ctx.bwd, bits, ctx.at + 101).to(g.dtype)
        else:
            g = quantized(g, ctx.bwd, bits, ctx.at + 101)
        g = g.reshape([1 if d in ctx.dims else n for d, n in enumerate(ctx.shape)])
        return (g.expand(ctx.shape), *[None] * 9)


class _Relu(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, fwd: Step, bwd: Step, seed: int | None, counter: Tensor | None) -> Tensor:
        # torch.relu leaves the sign of the zero that -0 gives to the processor.
        positive = torch.where(x <= 0, torch.zeros((), dtype=x.dtype, device=x.device), x)
        return quantized(positive, fwd, Bits(seed, counter), 0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, _, ctx.bwd, ctx.seed, counter = inputs
        ctx.save_for_backward(x > 0, counter)

    @staticmethod
    @differentiable_once("qrelu")
    def backward(ctx: Any, saved: tuple[Any, ...], g: Tensor) -> Any:
        positive, counter = saved
        dx = torch.where(positive, g, torch.zeros((), dtype=g.dtype, device=g.device))
        return like_operand(quantized(dx, ctx.bwd, Bits(ctx.seed, counter), 1), g), None, None, None, None


def _count(x: Tensor, dims: Sequence[int]) -> int:
    count = 1
    for d in dims:
        count = count * x.shape[d]
    return count


def _read(owner: str, *quants: QuantLike | None) -> list[Step]:
    return [quant_step(owner, quant) for quant in quants]


class _Call(NamedTuple):
    """A call of an elementary step: its name for errors, quantisers, random bits and the first stream of them."""

    owner: str
    fwd: QuantLike | None
    bwd: QuantLike | None
    bits: Bits
    at: int = 0

    def last(self) -> tuple[int, int | None, Tensor | None]:
        """What autograd functions take last: the first stream, the seed and the counter; ``SeedError`` for no seed."""
        return self.at, check_seed(self.owner, self.bits.seed), self.bits.counter


def _binary(call: _Call, name: str, x: Tensor, y: Tensor) -> Tensor:
    owner = call.owner
    steps = _read(owner, call.fwd, call.bwd)
    result: Tensor = applied(_Binary, x, _second(owner, x, y, "y"), name, *steps, *call.last())
    return result


def _second(owner: str, x: Tensor, y: Tensor, name: str) -> Tensor:
    """``y``, checked to go with ``x``; a view where it is ``x``, as compiled code wants distinct arguments."""
    check_float(owner, "x", x)
    check_float(owner, name, y)
    check_device(owner, x, y, names=f"x {name}")
    try:
        torch.broadcast_shapes(x.shape, y.shape)
    except RuntimeError:
        asked = f"{owner}: shapes {tuple(x.shape)} and {tuple(y.shape)}"
        raise ShapeError(message(asked, "shapes that broadcast", "Reshape or expand one of them.")) from None
    return y.view_as(y) if y is x else y


def _power_of_tensors(call: _Call, x: Tensor, n: Tensor) -> Tensor:
    owner = call.owner
    steps = _read(owner, call.fwd, call.bwd)
    check_float(owner, "x", x)
    whole = not (n.is_floating_point() or n.is_complex() or n.dtype is torch.bool)
    exponent = _second(owner, x, n.to(x.dtype) if whole else n, "n")
    result: Tensor = applied(TensorPower, x, exponent, *steps, *call.last())
    return result


def _unary(call: _Call, x: Tensor, n: float | None) -> Tensor:
    owner = call.owner
    steps = _read(owner, call.fwd, call.bwd)
    check_float(owner, "x", x)
    check_device(owner, x, names="x")
    result: Tensor = applied(_Unary, x, n, *steps, *call.last())
    return result


def _sum(call: _Call, x: Tensor, dim: int | Sequence[int] | None, keepdim: bool, mean: bool, order: str) -> Tensor:
    owner = call.owner
    steps = _read(owner, call.fwd, call.bwd)
    check_float(owner, "x", x)
    check_device(owner, x, names="x")
    check_flags(owner, keepdim=keepdim)
    dims = tuple(normal_dims(owner, dim, x.dim()))
    length = order_length(owner, order)
    result: Tensor = applied(_Sum, x, dims, keepdim, mean, *steps, length, *call.last())
    return result


class StepChain:
    """Elementary steps of one operation ``owner``, in its quantisers.

    Under one seed each step has random bits of its own: its streams start 1000 after those of the step before.
    """

    def __init__(
        self, owner: str, fwd: QuantLike | None, bwd: QuantLike | None, order: str, bits: Bits
    ) -> None:  # fmt: skip
        self.owner, self.fwd, self.bwd, self.order, self.bits = owner, fwd, bwd, order, bits
        self._at = 0

    def _next(self) -> _Call:
        at, self._at = self._at, self._at + 1000
        return _Call(self.owner, self.fwd, self.bwd, self.bits, at)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """``qadd(x, y)``."""
        return _binary(self._next(), "add", x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """``qmul(x, y)``."""
        return _binary(self._next(), "mul", x, y)

    def div(self, x: Tensor, y: Tensor) -> Tensor:
        """``qdiv(x, y)``."""
        return _binary(self._next(), "div", x, y)

    def sqrt(self, x: Tensor) -> Tensor:
        """``qsqrt(x)``."""
        return _unary(self._next(), x, None)

    def square(self, x: Tensor) -> Tensor:
        """``qpow(x)``."""
        return _unary(self._next(), x, 2.0)

    def mean(self, x: Tensor, dims: Sequence[int]) -> Tensor:
        """``qmean(x, dim=dims, keepdim=True)``."""
        return _sum(self._next(), x, dims, True, True, self.order)

    def sum(self, x: Tensor, dims: Sequence[int]) -> Tensor:
        """``qsum(x, dims, keepdim=True)``."""
        return _sum(self._next()._replace(bwd=None), x, dims, True, False, self.order)


@traceable
@says_keywords("fwd_quant")
def qadd(
    x: Tensor, y: Tensor, fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None, *,
    seed: int | None = None,
) -> Tensor:  # fmt: skip
    """``x + y`` for shapes that broadcast, rounded by ``fwd_quant``, with gradients rounded by ``bwd_quant``.

    Args:
        x, y: float32, float64, float16 or bfloat16, any strides, shapes that broadcast.
        fwd_quant, bwd_quant: a cast, format or name ("e5m10/rtz"), a pair (format, rounding), a function from tensor to
            tensor, or None for PyTorch's own operation.
        seed: of the random bits of stochastic casts; None takes one from torch's generator at each call.

    With a cast the exact sum is rounded once. Both gradients are ``bwd_quant(g)``; where an operand was broadcast, they
    are summed in the backward format, ascending, the last of the summed dimensions fastest. NaN, infinities and signed
    zeros follow IEEE 754; overflow follows the cast. Differentiating twice raises ``GradError``.

    Raises:
        FormatError, SeedError: for quantisers and seeds that mean nothing.
        DTypeError, DeviceError, ShapeError: for tensors that do not fit.

    Example:
        >>> gs.qadd(torch.tensor([16.0, 0.1]), torch.tensor([1.0, 0.2]), "e4m3")
        tensor([16.0000,  0.3125])
    """
    return _binary(_Call("qadd", fwd_quant, bwd_quant, Bits(seed)), "add", x, y)


@traceable
@says_keywords("fwd_quant")
def qmul(
    x: Tensor, y: Tensor, fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None, *,
    seed: int | None = None,
) -> Tensor:  # fmt: skip
    """``x * y`` rounded by ``fwd_quant``; gradients ``bwd_quant(g y)``, ``bwd_quant(g x)``. Otherwise as ``qadd``.

    Example:
        >>> gs.qmul(torch.tensor([1.1]), torch.tensor([1.1]), "e4m3")
        tensor([1.2500])
    """
    return _binary(_Call("qmul", fwd_quant, bwd_quant, Bits(seed)), "mul", x, y)


@traceable
@says_keywords("fwd_quant")
def qdiv(
    x: Tensor, y: Tensor, fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None, *,
    seed: int | None = None,
) -> Tensor:  # fmt: skip
    """``z = x / y`` rounded by ``fwd_quant``. Otherwise as ``qadd``.

    Gradients: ``bwd_quant(g / y)`` and ``bwd_quant(bwd_quant(-g * z) / y)``. Division by zero as IEEE 754.

    Example:
        >>> gs.qdiv(torch.tensor([1.0, 1.0, -1.0]), torch.tensor([3.0, 0.0, 0.0]), "e5m2")
        tensor([0.3125,    inf,   -inf])
    """
    return _binary(_Call("qdiv", fwd_quant, bwd_quant, Bits(seed)), "div", x, y)


@traceable
@says_keywords("fwd_quant")
def qsqrt(
    x: Tensor, fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None, *, seed: int | None = None
) -> Tensor:
    """``y = sqrt(x)`` rounded by ``fwd_quant``; gradient ``bwd_quant(g / bwd_quant(2 y))``. Otherwise as ``qadd``.

    Negative numbers give NaN, -0 gives -0.

    Example:
        >>> gs.qsqrt(torch.tensor([2.0, -1.0]), "e4m3")
        tensor([1.3750,    nan])
    """
    return _unary(_Call("qsqrt", fwd_quant, bwd_quant, Bits(seed)), x, None)


@traceable
@says_keywords("fwd_quant")
def qpow(
    x: Tensor, fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None, n: float | Tensor = 2.0, *,
    seed: int | None = None,
) -> Tensor:  # fmt: skip
    """``z = x ** n``, rounded by ``fwd_quant``. Otherwise as ``qadd``.

    ``n``: a number, which is rounded to ``x``'s dtype; or a tensor whose shape broadcasts with ``x``'s, of a float
    dtype or of integers, which are converted to ``x``'s dtype.

    The gradient of ``x`` is ``bwd_quant(g * bwd_quant(bwd_quant(x ** (n - 1)) * n))``, and 0 where ``n`` is 0. The
    gradient of a float tensor ``n`` is ``bwd_quant(g * bwd_quant(z * bwd_quant(log(x))))``, and 0 where ``x`` is 0 and
    ``n`` is not negative. Special values as IEEE 754-2019, 9.2.1 (pow).

    Raises:
        DTypeError: for an ``n`` that is neither a number nor a tensor; otherwise as ``qadd``.

    Example:
        >>> gs.qpow(torch.tensor([1.1, 3.0]), "e4m3", n=3)
        tensor([ 1.3750, 28.0000])
    """
    call = _Call("qpow", fwd_quant, bwd_quant, Bits(seed))
    if isinstance(n, Tensor):
        return _power_of_tensors(call, x, n)
    try:
        check_numbers("qpow", n=n)
    except DTypeError:
        raise DTypeError(message(f"qpow: n={n!r}", "a number or a tensor", "Give one of these.")) from None
    return _unary(call, x, float(n))


@traceable
@says_keywords("quant")
def qsum(
    x: Tensor, dim: int | Sequence[int] | None = None, quant: QuantLike | None = None, keepdim: bool = False, *,
    order: str = "sequential", seed: int | None = None,
) -> Tensor:  # fmt: skip
    """Sum of ``x`` over ``dim``, rounded by ``quant`` after every addition.

    Args:
        dim: a dimension, or several, which are summed in the order given; None for all.
        quant: as ``qadd``'s ``fwd_quant``. None sums as PyTorch does.
        keepdim: keep the summed dimensions with size one.
        order: "sequential" starts from +0 and takes the terms ascending; "tree(n)" is in docs/reference/functional.md.

    The gradient is the incoming one, broadcast, not rounded. Otherwise as ``qadd``; IndexError for a ``dim`` out of
    range.

    Example:
        >>> gs.qsum(torch.ones(1000), quant="bf16"), gs.qsum(torch.ones(1000), quant="bf16", order="tree(32)")
        (tensor(256.), tensor(1000.))
    """
    return _sum(_Call("qsum", quant, None, Bits(seed)), x, dim, keepdim, False, order)


@traceable
@says_keywords("fwd_quant")
def qmean(
    x: Tensor, fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None,
    dim: int | Sequence[int] | None = None, keepdim: bool = False, *, order: str = "sequential",
    seed: int | None = None,
) -> Tensor:  # fmt: skip
    """Mean of ``x`` over ``dim``: ``qsum`` rounded by ``fwd_quant``, then ``fwd_quant(sum / count)``.

    The gradient is ``bwd_quant(g / count)``, broadcast. Otherwise as ``qsum``.

    Example:
        >>> gs.qmean(torch.ones(1000), "bf16")  # the sum stagnates at 256, and 256 / 1000 is rounded
        tensor(0.2559)
    """
    return _sum(_Call("qmean", fwd_quant, bwd_quant, Bits(seed)), x, dim, keepdim, True, order)


@traceable
@says_keywords("fwd_quant")
def qrelu(
    x: Tensor, fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None, *, seed: int | None = None
) -> Tensor:
    """``fwd_quant(max(x, 0))``; gradient ``bwd_quant(g)`` where ``x > 0``, else 0. Otherwise as ``qadd``.

    Zeros of either sign give +0; NaN stays NaN.

    Raises:
        DTypeError, DeviceError: for other tensors.
        SeedError, FormatError: for other seeds and quantisers.

    Example:
        >>> gs.qrelu(torch.tensor([-1.0, 0.3, float("nan")]), "e4m3")
        tensor([0.0000, 0.3125,    nan])
    """
    return relu(x, fwd_quant, bwd_quant, Bits(seed))


def relu(x: Tensor, fwd: QuantLike | None, bwd: QuantLike | None, bits: Bits) -> Tensor:
    """``qrelu``, its errors too (``DTypeError``, ...), with random bits that a counter may move on."""
    steps = _read("qrelu", fwd, bwd)
    check_float("qrelu", "x", x)
    check_device("qrelu", x, names="x")
    result: Tensor = applied(_Relu, x, *steps, check_seed("qrelu", bits.seed), bits.counter)
    return result
