"""Convolutions in any format with any accumulator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Concatenate, NamedTuple, ParamSpec, TypeAlias

import torch
from torch import Tensor

from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import SpecError

from ..checks import check_out_dtype
from ..dispatch import needs_autograd
from ..errors import ShapeError, message
from ..fx import traceable
from ..lazy_dynamo import assume_constant_result
from ..product.affine_formats import QAffineFormats
from ..product.affine_plan import AffinePlan
from ..product.autograd import work_dtype
from ..product.matmul import FormatsLike, formats_of
from ..seeds import check_seed
from .arguments import PADDING_MODES, ConvArguments, Geometry, Sizes, conv_geometry, output_padding, transposed_geometry
from .autograd import ConvFunction
from .memory_format import laid, memory_format_of
from .operators import conv_op

__all__ = [
    "affine_conv",
    "qconv1d",
    "qconv2d",
    "qconv3d",
    "qconv_transpose1d",
    "qconv_transpose2d",
    "qconv_transpose3d",
]

_F = torch.nn.functional
_CONVS = (_F.conv1d, _F.conv2d, _F.conv3d)
_TRANSPOSES = (_F.conv_transpose1d, _F.conv_transpose2d, _F.conv_transpose3d)

_Tensors: TypeAlias = tuple[Tensor, Tensor, Tensor | None]
_Arguments = ParamSpec("_Arguments")


class _How(NamedTuple):
    """What a call says about the arithmetic, as given."""

    spec: FormatsLike | None
    seed: int | None
    arithmetic: str | None
    out_dtype: torch.dtype | None


_CONV = """``torch.nn.functional.conv{n}d`` in the arithmetic of ``spec``, with gradients.

    ``out[b, co, o] = sum_k w[co, k] * x[b, ci, o * stride + j * dilation - padding]`` over k = (ci, j), ascending: the
    group's input channels slowest, then kernel positions row-major. Positions in the padding are terms too: +0
    times the weight, so that a NaN or infinite weight gives NaN there, as IEEE 754 says. Each group is a separate
    product. Without a bias the result has the bits of ``qmatmul`` of the matrix of windows and the weight, but no such
    matrix is made (see docs/reference/conv.md for memory).

    Args:
        x, weight, bias: (B, C, ...) or (C, ...); (out, C / groups, ...); (out,). Dtypes and devices as in ``qmatmul``,
            any strides.
        stride, padding, dilation, groups: as PyTorch's; padding an integer, one for each dimension, "same" or "valid".
        spec: a string, ``GemmSpec``, accumulator or cast for every product with the gradient rule of ``qmatmul``, or
            ``QAffineFormats``, of which x is the input; None is PyTorch's own convolution. (``formats``, its former
            keyword, is deprecated.)
        padding_mode: "zeros", or "reflect", "replicate", "circular": x is then padded with its own numbers first, and
            its gradient is PyTorch's for that padding (in PyTorch's order on each device).
        seed, arithmetic, out_dtype: as in ``qlinear``.

    Blocks of operand formats lie along k, the sum of each product; a scale of a whole tensor is that of the tensor as
    given. Every product encodes its operands anew, as in ``qmatmul``.

    Bias, quantisers and scaling are those of ``qlinear``, with one scale for all of x and one for the weight.
    Gradients, with ``qg = grad_quant(grad)``: that of x is the transposed convolution of qg with the weight in dgrad's
    spec, summed as ``QAffineFormats.transposed_sum`` says; that of the weight sums over (b, o) in wgrad's, images
    slowest; that of the bias too.
    Differentiating twice raises. NaN, infinities, -0, overflow and errors are those of ``qmatmul``.

    Raises:
        ShapeError: for every shape and argument that PyTorch refuses, before anything runs.
        SpecError: for palettes.

    Example:
        >>> x, weight = torch.ones(1, 600, *[1] * {n}), torch.ones(1, 600, *[1] * {n})
        >>> gs.qconv{n}d(x, weight, spec="e4m3 : bf16").item()  # 600 channels: the sum stagnates
        256.0
    """

_TRANSPOSED = """``torch.nn.functional.conv_transpose{n}d`` in the arithmetic of ``spec``, with gradients.

    For each position of x and each kernel position the spec sums over the group's channels, ascending. Results for one
    place are then added in float32 (float64 where the accumulator's numbers need it), kernel positions ascending,
    row-major, each addition rounded to nearest. A place without results is +0. These are the bits of ``col2im`` of one
    product. The spec's output cast rounds each result of the product and, where results were added, their sum.

    With ``QAffineFormats(transposed_sum="taps")`` each place of the result is one sum over the channels, slowest, and
    the kernel positions at which elements of x lie there, from the last to the first. With "zeros" it is the
    convolution with stride 1 of x, ``stride - 1`` zeros between its elements, with the flipped kernel: those zeros are
    then terms too (see ``qconv{n}d``).

    Args:
        x, weight, bias: (B, C, ...) or (C, ...); (C, out / groups, ...); (out,).
        stride, padding, output_padding, groups, dilation: as PyTorch's.
        output_size: the last dimensions of the result, in place of ``output_padding``, as ``torch.nn`` has it.
        spec, seed, arithmetic, out_dtype: as in ``qconv{n}d``. A bias in the accumulator starts the overlap-add, or
            comes last in it (``init=c_last``). (``formats``, the former keyword for ``spec``, is deprecated.)

    Gradients: that of x is the convolution of the gradient with the weight, in dgrad's spec; those of the weight and
    the bias are sums over (b, position), images slowest, in wgrad's. Everything else as in ``qconv{n}d``.

    Example:
        >>> x, weight = torch.ones(1, 600, *[1] * {n}), torch.ones(600, 1, *[1] * {n})
        >>> gs.qconv_transpose{n}d(x, weight, spec="e4m3 : bf16").item()  # 600 channels: the sum stagnates
        256.0
    """


def _qconv(
    n: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: str | Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    spec: FormatsLike | None = None,
    *,
    padding_mode: str = "zeros",
    seed: int | None = None,
    arithmetic: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    given = ConvArguments(stride, padding, dilation, groups)
    how = _How(spec, seed, arithmetic, out_dtype)
    return _conv(f"qconv{n}d", n, (x, weight, bias), given, padding_mode, how)


def _qconv_transpose(
    n: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    spec: FormatsLike | None = None,
    *,
    output_size: Sequence[int] | None = None,
    seed: int | None = None,
    arithmetic: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    given = ConvArguments(stride, padding, dilation, groups, output_padding, output_size)
    how = _How(spec, seed, arithmetic, out_dtype)
    return _transposed(f"qconv_transpose{n}d", n, (x, weight, bias), given, how)


def _of_rank(
    n: int, name: str, text: str, function: Callable[Concatenate[int, _Arguments], Tensor]
) -> Callable[_Arguments, Tensor]:
    """The public function of ``n`` spatial dimensions: ``function`` without its first argument."""

    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Tensor:
        return function(n, *args, **kwargs)

    shown = inspect.signature(function)
    call.__signature__ = shown.replace(parameters=list(shown.parameters.values())[1:])  # type: ignore[attr-defined]
    call.__name__ = call.__qualname__ = name
    call.__doc__ = text.format(n=n)
    call.__annotations__ = {key: kind for key, kind in function.__annotations__.items() if key != "n"}
    return traceable(takes_spec("formats")(call))


qconv1d = _of_rank(1, "qconv1d", _CONV, _qconv)
qconv2d = _of_rank(2, "qconv2d", _CONV, _qconv)
qconv3d = _of_rank(3, "qconv3d", _CONV, _qconv)
qconv_transpose1d = _of_rank(1, "qconv_transpose1d", _TRANSPOSED, _qconv_transpose)
qconv_transpose2d = _of_rank(2, "qconv_transpose2d", _TRANSPOSED, _qconv_transpose)
qconv_transpose3d = _of_rank(3, "qconv_transpose3d", _TRANSPOSED, _qconv_transpose)


def _conv(owner: str, n: int, tensors: _Tensors, given: ConvArguments, mode: str, how: _How) -> Tensor:
    chosen, seed = _formats(owner, how.spec, how.arithmetic), check_seed(owner, how.seed)
    x, weight, bias = tensors
    where, after = conv_geometry(owner, n, x, weight, bias, given)
    dtype = _dtype(owner, x, weight, how.out_dtype)
    images = x if x.dim() == n + 2 else x.unsqueeze(0)
    if mode != "zeros":
        images, where = _pad(owner, images, where, after, mode), where._replace(padding=(0,) * n)
    if chosen.plan.is_native:
        padding = given.padding if mode == "zeros" else 0
        arguments = (where.stride, padding, where.dilation, where.groups)
        out = _native(_CONVS[n - 1], images, weight, bias, arguments, dtype)
        return out if x.dim() == n + 2 else out.squeeze(0)
    out = _affine(images, weight, bias, chosen, seed, where, dtype)
    return out if x.dim() == n + 2 else out.squeeze(0)


def _transposed(owner: str, n: int, tensors: _Tensors, given: ConvArguments, how: _How) -> Tensor:
    chosen, seed = _formats(owner, how.spec, how.arithmetic), check_seed(owner, how.seed)
    x, weight, bias = tensors
    where = transposed_geometry(owner, n, x, weight, bias, given)
    dtype = _dtype(owner, x, weight, how.out_dtype)
    images = x if x.dim() == n + 2 else x.unsqueeze(0)
    if chosen.plan.is_native:
        extra = output_padding(where, images, weight)
        arguments = (where.stride, where.padding, extra, where.groups, where.dilation)
        out = _native(_TRANSPOSES[n - 1], images, weight, bias, arguments, dtype)
        return out if x.dim() == n + 2 else out.squeeze(0)
    out = _affine(images, weight, bias, chosen, seed, where, dtype)
    return out if x.dim() == n + 2 else out.squeeze(0)


def _formats(owner: str, spec: FormatsLike | None, arithmetic: str | None) -> QAffineFormats:
    """The formats, of which no product may be a palette's."""
    chosen = formats_of(spec, arithmetic)
    for product in (chosen.plan.fprop, chosen.plan.dgrad, chosen.plan.wgrad):
        if product.palette:
            asked = f"{owner} with {product.spec!r}"
            allowed = "accumulators other than palette(...)"
            raise SpecError(message(asked, allowed, "Use gemmsim.qmatmul with select on a matrix of windows."))
    return chosen


def _dtype(owner: str, x: Tensor, weight: Tensor, out_dtype: torch.dtype | None) -> torch.dtype:
    if out_dtype is None:
        return torch.promote_types(x.dtype, weight.dtype)
    check_out_dtype(owner, out_dtype)
    return out_dtype


def _pad(owner: str, x: Tensor, where: Geometry, after: tuple[int, ...], mode: str) -> Tensor:
    """``x`` with numbers of its own around it."""
    if mode not in PADDING_MODES:
        allowed = ", ".join(PADDING_MODES)
        raise ShapeError(message(f"{owner}: padding_mode={mode!r}", allowed, "Give padding_mode='zeros' for zeros."))
    amounts: list[int] = []
    for size, before, behind in zip(reversed(x.shape[2:]), reversed(where.padding), reversed(after), strict=True):
        most = size - 1 if mode == "reflect" else size
        if mode != "replicate" and max(before, behind) > most:
            asked = f"{owner}: padding_mode={mode!r} with padding {where.padding} of x {tuple(x.shape)}"
            raise ShapeError(message(asked, f"at most {most} for a size of {size}", "Take less padding."))
        amounts += [before, behind]
    return torch.nn.functional.pad(x, amounts, mode=mode) if any(amounts) else x


def _affine(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    formats: QAffineFormats,
    seed: int | None,
    where: Geometry,
    dtype: torch.dtype,
) -> Tensor:
    """The convolution of images as formats say."""
    plan = formats.plan
    if bias is None and formats.bias_in_accumulator:
        plan = _without_bias(formats).plan
    return affine_conv(x, weight, bias, plan, seed, where, dtype)


def affine_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    plan: AffinePlan,
    seed: int | None,
    where: Geometry,
    dtype: torch.dtype,
    counter: Tensor | None = None,
    site: str | None = None,
) -> Tensor:
    """The convolution of images (B, C, ...) plus a bias as ``plan`` says, with gradients; the index map is ``where``.

    By the operator alone where nothing else is to be done. ``counter`` and ``site``: as the operators have them.
    """
    seed, where = plan.seed if seed is None else seed, where._replace(order=plan.transposed_sum)
    if plan.is_plain and not needs_autograd(x, weight, bias):
        work = work_dtype(plan.fprop, dtype, bias is not None)
        out: Tensor = conv_op(x, weight, plan.fprop.spec, *where, seed, work, None, 0, counter, site)
        if bias is not None:
            out = (out + bias.to(work).reshape(-1, *((1,) * (x.dim() - 2)))).to(dtype)
    else:
        out = ConvFunction.apply(x, weight, bias, plan, seed, tuple(where), dtype, counter, site)[0]
    return laid(out, memory_format_of(x, weight, where))


@assume_constant_result
def _without_bias(formats: QAffineFormats) -> QAffineFormats:
    return replace(formats, bias_in_accumulator=False)


def _native(
    function: Callable[..., Tensor],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    arguments: tuple[object, ...],
    dtype: torch.dtype,
) -> Tensor:
    """PyTorch's own, in the dtype its operands promote to."""
    common = torch.promote_types(x.dtype, weight.dtype)
    bias = None if bias is None else bias.to(common)
    return function(x.to(common), weight.to(common), bias, *arguments).to(dtype)
