"""Arguments of convolutions, those of ``torch.nn.functional.conv*``: read and checked before anything runs."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from ..checks import check_device, check_float
from ..errors import ShapeError, message

__all__ = [
    "PADDING_MODES",
    "ConvArguments",
    "Geometry",
    "Sizes",
    "conv_geometry",
    "output_padding",
    "transposed_geometry",
]

Sizes: TypeAlias = int | Sequence[int]

#: Names of padding modes, those of torch.nn.Conv2d.
PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class ConvArguments(NamedTuple):
    """The arguments of a convolution besides its tensors, as given; transposed ones have the last two."""

    stride: Sizes
    padding: str | Sizes
    dilation: Sizes
    groups: int
    output_padding: Sizes = 0
    output_size: Sequence[int] | None = None


class Geometry(NamedTuple):
    """Index map of a convolution: output o meets input ``o * stride + k * dilation - padding`` (transposed: the other
    way round). Outputs past the padding that was asked for are part of ``output_size``; all else is zero.

    ``order``: how a transposed one sums, a value of ``QAffineFormats.transposed_sum``.
    """

    output_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool = False
    order: str = "col2im"


def _tuple_of(owner: str, name: str, value: Sizes, n: int, least: int) -> tuple[int, ...]:
    """``value`` as n integers of at least ``least``, one for all dimensions repeated."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(given) == 1:
        given *= n
    fits = len(given) == n
    for part in given:
        if isinstance(part, torch.SymInt):
            continue
        try:
            fits = fits and not isinstance(part, bool) and operator.index(part) >= least
        except TypeError:
            fits = False
    if not fits:
        allowed = f"an integer of at least {least}, or {n} of them"
        raise ShapeError(message(f"{owner}: {name}={value!r}", allowed, f"Give {name} for each of the {n} dimensions."))
    return given


def _read_padding(
    owner: str, padding: str | Sizes, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after the input, for each dimension. "same" puts an odd one after it."""
    n = len(kernel)
    if not isinstance(padding, str):
        both = _tuple_of(owner, "padding", padding, n, 0)
        return both, both
    if padding == "valid":
        return (0,) * n, (0,) * n
    if padding != "same":
        allowed = "'same', 'valid', an integer or one for each dimension"
        raise ShapeError(message(f"{owner}: padding={padding!r}", allowed, "Give padding=0 for none."))
    if any(s != 1 for s in stride):
        asked = f"{owner}: padding='same' with stride {tuple(stride)}"
        raise ShapeError(message(asked, "stride 1", "Give the padding as integers."))
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)


def _check_tensors(owner: str, n: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    check_float(owner, "x", x)
    check_float(owner, "weight", weight)
    if bias is not None:
        check_float(owner, "bias", bias)
    check_device(owner, x, weight, bias, "x weight bias")
    if x.dim() not in (n + 1, n + 2) or weight.dim() != n + 2:
        asked = f"{owner}: shapes x {tuple(x.shape)}, weight {tuple(weight.shape)}"
        allowed = f"x of {n + 1} (unbatched) or {n + 2} dimensions, weight of {n + 2}"
        raise ShapeError(message(asked, allowed, "Reshape them."))
    if 0 in (*weight.shape[2:], *x.shape[x.dim() - n :], weight.shape[0]):
        asked = f"{owner}: shapes x {tuple(x.shape)}, weight {tuple(weight.shape)}"
        allowed = "sizes of at least 1, except for the batch and the input channels"
        raise ShapeError(message(asked, allowed, "Leave out the call."))


def _check_channels(owner: str, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int, transposed: bool) -> None:
    n = weight.dim() - 2
    channels, per_group = x.shape[-n - 1], weight.shape[1]
    wanted, outputs = (weight.shape[0], per_group * groups) if transposed else (per_group * groups, weight.shape[0])
    if channels != wanted or weight.shape[0] % groups != 0:
        asked = f"{owner}: x {tuple(x.shape)}, weight {tuple(weight.shape)}, groups={groups}"
        shape = "(in, out / groups, ...)" if transposed else "(out, in / groups, ...)"
        allowed = f"a weight {shape} whose first size is a multiple of groups, x with {wanted} channels"
        raise ShapeError(message(asked, allowed, "Reshape the weight or change groups."))
    if bias is not None and tuple(bias.shape) != (outputs,):
        asked = f"{owner}: bias {tuple(bias.shape)} with {outputs} output channels"
        raise ShapeError(message(asked, f"a bias ({outputs},)", "Reshape it."))


def _read_groups(owner: str, groups: object) -> int:
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1:
        raise ShapeError(message(f"{owner}: groups={groups!r}", "an integer of at least 1", "Give groups=1 for one."))
    return groups


def conv_geometry(
    owner: str, n: int, x: Tensor, weight: Tensor, bias: Tensor | None, given: ConvArguments
) -> tuple[Geometry, tuple[int, ...]]:
    """The index map of a convolution and its padding after the input.

    Raises:
        DTypeError, DeviceError, ShapeError: for everything PyTorch refuses.
    """
    _check_tensors(owner, n, x, weight, bias)
    groups = _read_groups(owner, given.groups)
    _check_channels(owner, x, weight, bias, groups, False)
    steps = _tuple_of(owner, "stride", given.stride, n, 1)
    spread = _tuple_of(owner, "dilation", given.dilation, n, 1)
    kernel = weight.shape[2:]
    before, after = _read_padding(owner, given.padding, kernel, steps, spread)
    sizes = []
    for i, size in enumerate(x.shape[x.dim() - n :]):
        room = size + before[i] + after[i] - spread[i] * (kernel[i] - 1) - 1
        if room < 0:
            asked = f"{owner}: kernel {tuple(kernel)} with dilation {spread} on x {tuple(x.shape)}"
            allowed = "a kernel no larger than the padded input"
            raise ShapeError(
                message(asked, allowed, f"Add padding (here {before} and {after}), or use a smaller kernel.")
            )
        sizes.append(room // steps[i] + 1)
    return Geometry(tuple(sizes), steps, before, spread, groups), after


def transposed_geometry(
    owner: str, n: int, x: Tensor, weight: Tensor, bias: Tensor | None, given: ConvArguments
) -> Geometry:
    """The index map of a transposed convolution.

    Raises:
        DTypeError, DeviceError, ShapeError: for everything PyTorch refuses.
    """
    _check_tensors(owner, n, x, weight, bias)
    groups = _read_groups(owner, given.groups)
    _check_channels(owner, x, weight, bias, groups, True)
    if weight.shape[1] == 0:
        asked = f"{owner}: weight {tuple(weight.shape)}"
        raise ShapeError(message(asked, "at least one output channel", "Leave out the call."))
    steps = _tuple_of(owner, "stride", given.stride, n, 1)
    spread = _tuple_of(owner, "dilation", given.dilation, n, 1)
    before = _tuple_of(owner, "padding", given.padding, n, 0)  # type: ignore[arg-type]  # a word is refused there
    extra = _tuple_of(owner, "output_padding", given.output_padding, n, 0)
    least = _least_size(x.shape[x.dim() - n :], steps, before, spread, weight.shape[2:])
    if given.output_size is not None:
        sizes = _asked_size(owner, given.output_size, n, least, steps)
    else:
        if any(e >= s and e >= d for e, s, d in zip(extra, steps, spread, strict=True)):
            asked = f"{owner}: output_padding={extra} with stride {steps}, dilation {spread}"
            raise ShapeError(message(asked, "less than stride or dilation", "Pad the result instead."))
        sizes = tuple(size + e for size, e in zip(least, extra, strict=True))
    if any(size < 1 for size in sizes):
        asked = f"{owner}: output size {sizes} of x {tuple(x.shape)}, weight {tuple(weight.shape)}, padding {before}"
        raise ShapeError(message(asked, "sizes of at least 1", "Take less padding."))
    return Geometry(sizes, steps, before, spread, groups, True)


def output_padding(where: Geometry, x: Tensor, weight: Tensor) -> tuple[int, ...]:
    """PyTorch's argument for the output size of a transposed convolution."""
    least = _least_size(x.shape[2:], where.stride, where.padding, where.dilation, weight.shape[2:])
    return tuple(size - low for size, low in zip(where.output_size, least, strict=True))


def _least_size(
    x: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], kernel: Sequence[int]
) -> list[int]:
    parts = zip(x, stride, padding, dilation, kernel, strict=True)
    return [(size - 1) * s - 2 * p + d * (k - 1) + 1 for size, s, p, d, k in parts]


def _asked_size(
    owner: str, asked: Sequence[int], n: int, least: Sequence[int], stride: Sequence[int]
) -> tuple[int, ...]:
    """``output_size``, whose last n entries are what counts, if the stride allows it."""
    given = tuple(asked)[-n:] if len(tuple(asked)) in (n, n + 1, n + 2) else ()
    fits = len(given) == n and all(low <= g < low + s for g, low, s in zip(given, least, stride, strict=True))
    if not fits:
        most = tuple(low + s - 1 for low, s in zip(least, stride, strict=True))
        allowed = f"{n} sizes from {tuple(least)} to {most}"
        raise ShapeError(message(f"{owner}: output_size={tuple(asked)}", allowed, "Leave it out for the smallest."))
    return given
