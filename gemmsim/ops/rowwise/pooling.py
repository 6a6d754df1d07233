"""Average pooling with every addition and division rounded."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from gemmsim._keywords import says_keywords

from ..checks import check_device, check_float, check_ints
from ..errors import DTypeError, ShapeError, message
from ..fx import traceable
from ..lazy_dynamo import assume_constant_result
from ..product.affine_formats import QuantLike
from ..product.affine_plan import Step
from ..seeds import Bits, check_seed
from ..single_differentiation import differentiable_once
from .formats import quant_step
from .steps import applied, map_step, sum_step

__all__ = ["qadaptive_avgpool", "qavgpool", "qavgpool1d", "qavgpool2d", "qavgpool3d"]

_NATIVE: dict[int, Callable[..., Tensor]] = {
    1: torch.nn.functional.avg_pool1d,
    2: torch.nn.functional.avg_pool2d,
    3: torch.nn.functional.avg_pool3d,
}
_ADAPTIVE: dict[int, Callable[..., Tensor]] = {
    1: torch.nn.functional.adaptive_avg_pool1d,
    2: torch.nn.functional.adaptive_avg_pool2d,
    3: torch.nn.functional.adaptive_avg_pool3d,
}


@dataclass(frozen=True)
class _Windows:
    """Where windows lie, for one or several dimensions. ``kernel`` empty: ``out`` adaptive windows."""

    sizes: tuple[int, ...]
    out: tuple[int, ...]
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    include_pad: bool = True
    divisor: int | None = None

    def span(self, d: int, o: int) -> tuple[int, int, int]:
        """First index, last index + 1 and counted length of window ``o`` of dimension ``d``."""
        n = self.sizes[d]
        if not self.kernel:
            first, last = o * n // self.out[d], -(-(o + 1) * n // self.out[d])
            return first, last, last - first
        first = o * self.stride[d] - self.padding[d]
        last = min(first + self.kernel[d], n + self.padding[d])
        inside = max(first, 0), min(last, n)
        return *inside, last - first if self.include_pad else inside[1] - inside[0]


@assume_constant_result
def _text(*fields: Any) -> str:
    """Fields of ``_Windows`` as text, which compiled code takes as a constant where it knows no object of ours."""
    return repr(fields)


@assume_constant_result
def _tables(windows: str) -> tuple[Tensor, Tensor, Tensor, bool]:
    """Input positions of each output, row-major; output positions of each input, ascending; divisors, and if one.

    Positions that there are not are the one past the end. Constants of compiled code. Exporters look on: what they see
    being made is theirs and not kept.
    """
    return _make_tables(windows) if torch._C._len_torch_dispatch_stack() else _kept_tables(windows)


@lru_cache(maxsize=64)
def _kept_tables(windows: str) -> tuple[Tensor, Tensor, Tensor, bool]:
    return _make_tables(windows)


def _make_tables(windows: str) -> tuple[Tensor, Tensor, Tensor, bool]:
    rows, back, divisors = _lists(windows)
    one = len(set(divisors)) <= 1
    return _padded(rows, len(back)), _padded(back, len(rows)), torch.tensor(divisors), one


@lru_cache(maxsize=64)
def _lists(text: str) -> tuple[list[list[int]], list[list[int]], list[float]]:
    """Rows of positions as ``_tables`` has them, and the divisors."""
    windows = _Windows(*literal_eval(text))
    total = 1
    for n in windows.sizes:
        total *= n
    rows: list[list[int]] = []
    divisors = []
    back: list[list[int]] = [[] for _ in range(total)]
    for at, place in enumerate(product(*(range(n) for n in windows.out))):
        spans = [windows.span(d, o) for d, o in enumerate(place)]
        counted = 1
        for _, _, length in spans:
            counted *= length
        row = []
        for index in product(*(range(first, last) for first, last, _ in spans)):
            flat = 0
            for i, n in zip(index, windows.sizes, strict=True):
                flat = flat * n + i
            row.append(flat)
            back[flat].append(at)
        rows.append(row)
        divisors.append(float(windows.divisor or counted))
    return rows, back, divisors


def _padded(rows: list[list[int]], filler: int) -> Tensor:
    width = max((len(row) for row in rows), default=0)
    return torch.tensor([row + [filler] * (width - len(row)) for row in rows], dtype=torch.int64).reshape(
        len(rows), width
    )


def _gathered_sums(x: Tensor, table: Tensor, step: Step, bits: Bits, stream: int) -> Tensor:
    """Sums, in the order of ``table``, of the elements of ``x``'s last dimension that each of its rows names."""
    extended = torch.cat([x, x.new_zeros(*x.shape[:-1], 1)], -1)
    terms = extended[..., table.to(x.device)]
    return sum_step(terms, [terms.dim() - 1], step, 1, bits, stream).squeeze(-1)


class _AvgPool(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, windows: str, out: tuple[int, ...], fwd: Step, bwd: Step, seed: int | None) -> Tensor:
        table, _, divisors, _ = _tables(windows)
        rank = len(out)
        total = _gathered_sums(x.flatten(x.dim() - rank), table, fwd, Bits(seed), 0)
        result = map_step("div", total, divisors.to(x.device, x.dtype), fwd, Bits(seed), 1)
        return result.reshape(*x.shape[: x.dim() - rank], *out)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.windows, out, _, ctx.bwd, ctx.seed = inputs
        ctx.rank = len(out)
        ctx.shape = x.shape

    @staticmethod
    @differentiable_once("qavgpool")
    def backward(ctx: Any, saved: tuple[Any, ...], g: Tensor) -> Any:
        _, back, divisors, uniform = _tables(ctx.windows)
        g = g.flatten(g.dim() - ctx.rank)
        divisors = divisors.to(g.device, g.dtype)
        if not uniform:
            g = map_step("div", g, divisors, ctx.bwd, Bits(ctx.seed), 3)
        total = _gathered_sums(g, back, ctx.bwd, Bits(ctx.seed), 2)
        if uniform:
            total = map_step("div", total, divisors[:1], ctx.bwd, Bits(ctx.seed), 3)
        return total.reshape(ctx.shape), None, None, None, None, None


def _tuple(owner: str, name: str, value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    items = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    for item in items:
        check_ints(owner, **{name: item})
    return items * rank if len(items) == 1 else items


def _read(owner: str, x: Tensor, rank: int, fwd: Any, bwd: Any, seed: int | None) -> tuple[Step, Step, int | None]:
    check_float(owner, "x", x)
    check_device(owner, x, names="x")
    if x.dim() not in (rank + 1, rank + 2):
        asked = f"{owner}: x of shape {tuple(x.shape)}"
        raise ShapeError(
            message(asked, f"{rank + 1} or {rank + 2} dimensions", "Reshape it to (N, C, ...) or (C, ...).")
        )
    steps = [quant_step(owner, q) for q in (fwd, bwd)]
    return steps[0], steps[1], check_seed(owner, seed)


def _torch_shape(owner: str, function: Callable[..., Tensor], x: Tensor, *args: Any) -> tuple[int, ...]:
    """The shape PyTorch's own operation would give; its complaints as ``ShapeError`` and ``DTypeError``."""
    try:
        return tuple(function(torch.empty(x.shape, dtype=x.dtype, device="meta"), *args).shape)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ShapeError(message(f"{owner}: {error}", "arguments that PyTorch takes", "Correct them.")) from None
    except TypeError as error:
        raise DTypeError(message(f"{owner}: {error}", "arguments that PyTorch takes", "Correct them.")) from None


@traceable
@says_keywords("fwd_quant")
def qavgpool(
    x: Tensor, kernel_size: int | Sequence[int], fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None,
    stride: int | Sequence[int] | None = None, padding: int | Sequence[int] = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None, *, rank: int = 2, seed: int | None = None,
) -> Tensor:  # fmt: skip
    """``torch.nn.functional.avg_pool{1,2,3}d`` (``rank``) with every addition and division rounded.

    The elements of a window are added row-major from +0, with ``fwd_quant`` after every addition; then ``fwd_quant(sum
    / divisor)`` with torch's divisor. Gradient: contributions are added in the order of the outputs, with ``bwd_quant``
    after every addition, then ``bwd_quant(sum / divisor)``. Where divisors differ between windows, the division comes
    first. Quantisers, NaN, infinities and ``seed`` as in ``qadd``. No quantiser: PyTorch's own.

    Raises:
        ShapeError: for arguments that PyTorch refuses; DTypeError, DeviceError: for other tensors.

    Example:
        >>> gs.qavgpool(torch.tensor([[[0.3, 0.3, 0.3]]]), 3, "e4m3", rank=1)  # sums 0.3125, 0.625, 0.9375
        tensor([[[0.3125]]])
    """
    owner = f"qavgpool{rank}d"
    fwd, bwd, seed = _read(owner, x, rank, fwd_quant, bwd_quant, seed)
    more = () if rank == 1 else (divisor_override,)
    arguments = (kernel_size, stride, padding, ceil_mode, count_include_pad, *more)
    if rank > 1 and isinstance(divisor_override, int) and not divisor_override:  # 3-d meta tensors: since 2.13
        raise ShapeError(message(f"{owner}: divisor_override=0", "other integers, or None", "Leave it out."))
    shape = _torch_shape(owner, _NATIVE[rank], x, *arguments)
    if fwd is None and bwd is None:
        return _NATIVE[rank](x, *arguments)
    kernel = _tuple(owner, "kernel_size", kernel_size, rank)
    steps = kernel if stride is None or stride == () else _tuple(owner, "stride", stride, rank)
    check_ints(owner, divisor_override=1 if divisor_override is None else divisor_override)
    out = shape[-rank:]
    pads = _tuple(owner, "padding", padding, rank)
    windows = _text(tuple(x.shape[-rank:]), out, kernel, steps, pads, count_include_pad, divisor_override)
    result: Tensor = applied(_AvgPool, x, windows, out, fwd, bwd, seed)
    return result


@traceable
def qavgpool1d(x: Tensor, kernel_size: int | Sequence[int], *args: Any, **kwargs: Any) -> Tensor:
    """``qavgpool`` of (N, C, L) or (C, L).

    Example:
        >>> gs.qavgpool1d(torch.tensor([[[1.0, 2.0, 30.0, 40.0]]]), 2, "e4m3")
        tensor([[[ 1.5000, 36.0000]]])
    """
    return qavgpool(x, kernel_size, *args, rank=1, **kwargs)


@traceable
def qavgpool2d(x: Tensor, kernel_size: int | Sequence[int], *args: Any, **kwargs: Any) -> Tensor:
    """``qavgpool`` of (N, C, H, W) or (C, H, W).

    Example:
        >>> gs.qavgpool2d(torch.full((1, 1, 2, 2), 0.3), 2, "e4m3")
        tensor([[[[0.3125]]]])
    """
    return qavgpool(x, kernel_size, *args, rank=2, **kwargs)


@traceable
def qavgpool3d(x: Tensor, kernel_size: int | Sequence[int], *args: Any, **kwargs: Any) -> Tensor:
    """``qavgpool`` of (N, C, D, H, W) or (C, D, H, W).

    Example:
        >>> gs.qavgpool3d(torch.full((1, 1, 2, 2, 2), 0.3), 2, "e4m3")
        tensor([[[[[0.2812]]]]])
    """
    return qavgpool(x, kernel_size, *args, rank=3, **kwargs)


@traceable
@says_keywords("fwd_quant")
def qadaptive_avgpool(
    x: Tensor, output_size: int | Sequence[int | None] | None, fwd_quant: QuantLike | None = None,
    bwd_quant: QuantLike | None = None, *, rank: int = 2, seed: int | None = None,
) -> Tensor:  # fmt: skip
    """``torch.nn.functional.adaptive_avg_pool{1,2,3}d`` (``rank``), otherwise as ``qavgpool``.

    Raises:
        ShapeError: for arguments that PyTorch refuses; DTypeError, DeviceError: for other tensors.

    Example:
        >>> gs.qadaptive_avgpool(torch.arange(8.0).reshape(1, 1, 2, 4), (1, 2), "e4m3")
        tensor([[[[2.5000, 4.5000]]]])
    """
    owner = f"qadaptive_avgpool{rank}d"
    fwd, bwd, seed = _read(owner, x, rank, fwd_quant, bwd_quant, seed)
    if 0 in x.shape[-rank:] or (rank == 3 and x.shape[-4] == 0):  # as PyTorch, which asks the channels in 3-d alone
        asked = f"{owner}: x of shape {tuple(x.shape)}"
        raise ShapeError(message(asked, "sizes of at least 1 where windows lie", "Leave out the call."))
    shape = _torch_shape(owner, _ADAPTIVE[rank], x, output_size)
    if fwd is None and bwd is None:
        return _ADAPTIVE[rank](x, output_size)
    out = shape[-rank:]
    result: Tensor = applied(_AvgPool, x, _text(tuple(x.shape[-rank:]), out), out, fwd, bwd, seed)
    return result
