"""Registration of the convolution operators with PyTorch: schemas, kernels, fake kernels and batching rules.

``torch.ops.gemmsim.conv``, ``conv_with_operands`` and ``conv_weight`` take the index map as lists of integers: the size
of the result, stride, padding before the input, dilation. They have no gradient of their own; ``gemmsim.qconv2d`` and
its kin do. Seeds, streams and autocast are those of ``library``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..cast_arguments import carrier_dtype
from ..product import eager
from ..product.batching import is_of_whole_tensor, seed_for_each
from ..registration import define
from ..seeds import at_counter, needs_seed
from . import kernels as conv_kernels
from .arguments import Geometry

__all__ = ["conv_op", "conv_weight_op", "conv_with_operands_op"]

_MAP = "SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt groups"
_LAST = "int stream=0, Tensor? counter=None, str? site=None"
_REST = "SymInt? seed=None, ScalarType? out_dtype=None"
_WHERE = f"SymInt[] output_size, {_MAP}, bool transposed, str order='col2im'"
_CONV = f"Tensor x, Tensor weight, str spec, {_WHERE}, {_REST}, Tensor? c=None"


class _Conv(NamedTuple):
    """Arguments of a convolution's operator after its spec."""

    output_size: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int
    transposed: bool
    order: str = "col2im"
    seed: int | None = None
    out_dtype: torch.dtype | None = None
    c: Tensor | None = None
    stream: int = 0
    counter: Tensor | None = None
    site: str | None = None

    def for_kernel(self) -> tuple[Geometry, int | None, torch.dtype | None, Tensor | None, int]:
        """Index map, seed, dtype, addend and stream."""
        sizes = (tuple(self.output_size), tuple(self.stride), tuple(self.padding), tuple(self.dilation))
        where = Geometry(*sizes, self.groups, self.transposed, self.order)
        return where, at_counter(self.seed, self.counter), self.out_dtype, self.c, self.stream


class _ConvWeight(NamedTuple):
    """Arguments of the operator of a weight's gradient after its spec."""

    kernel: list[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int
    seed: int | None = None
    out_dtype: torch.dtype | None = None
    stream: int = 0
    counter: Tensor | None = None
    site: str | None = None


def _conv(x: Tensor, weight: Tensor, spec: str, *rest: Any) -> Tensor:
    return conv_kernels.conv(x, weight, eager.spec_of(spec), *_Conv(*rest).for_kernel())


def _conv_with_operands(x: Tensor, weight: Tensor, spec: str, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return conv_kernels.conv_with_operands(x, weight, eager.spec_of(spec), *_Conv(*rest).for_kernel())


def _conv_weight(large: Tensor, small: Tensor, spec: str, *rest: Any) -> Tensor:
    given = _ConvWeight(*rest)
    where = Geometry((), tuple(given.stride), tuple(given.padding), tuple(given.dilation), given.groups, False)
    seed = at_counter(given.seed, given.counter)
    last = (seed, given.out_dtype, given.stream)
    return conv_kernels.conv_weight(large, small, eager.spec_of(spec), given.kernel, where, *last)


def _conv_fake(x: Tensor, weight: Tensor, spec: str, *rest: Any) -> Tensor:
    given = _Conv(*rest)
    conv_kernels.check_spec("conv", eager.spec_of(spec))
    dtype = eager.result_dtype("conv", x, weight, given.out_dtype)
    channels = weight.shape[1] * given.groups if given.transposed else weight.shape[0]
    return x.new_empty((x.shape[0], channels, *given.output_size), dtype=dtype)


def _conv_with_operands_fake(x: Tensor, weight: Tensor, spec: str, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    meaning = eager.spec_of(spec)
    out = _conv_fake(x, weight, spec, *rest)
    cast_a, cast_b = (
        x.new_empty(0) if cast is None else torch.empty_like(t, dtype=carrier_dtype(cast.format, t.dtype))
        for t, cast in ((x, meaning.cast_a), (weight, meaning.cast_b))
    )
    return out, cast_a, cast_b


def _conv_weight_fake(large: Tensor, small: Tensor, spec: str, *rest: Any) -> Tensor:
    given = _ConvWeight(*rest)
    conv_kernels.check_spec("conv_weight", eager.spec_of(spec))
    dtype = eager.result_dtype("conv_weight", large, small, given.out_dtype)
    return large.new_empty((small.shape[1], large.shape[1] // given.groups, *given.kernel), dtype=dtype)


def _batch(n: int, seed_at: int, counter_at: int) -> Any:
    """The batching rule of an operator: a deterministic convolution of images alone is one of more images, everything
    else runs example by example. ``n``: results; ``seed_at``, ``counter_at``: indices of these arguments."""

    def rule(op: Any, info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        spec = eager.spec_of(args[2])
        seed = args[seed_at] if len(args) > seed_at else None
        if len(args) > counter_at:
            seed, args = at_counter(seed, args[counter_at]), (*args[:counter_at], None, *args[counter_at + 1 :])
        mapped = [i for i, d in enumerate(in_dims) if isinstance(d, int)]
        separately = False
        if spec.is_stochastic:
            separately, seed = seed_for_each(info, "conv", seed) if needs_seed(spec) else (True, seed)
        separately = separately or any(is_of_whole_tensor(fmt) for fmt in (spec.a, spec.b))
        if mapped == [0] and n == 1 and not separately and seed_at == 10:
            x = args[0].movedim(in_dims[0], 0)
            out = op(x.flatten(0, 1), *args[1:])
            return out.unflatten(0, x.shape[:2]), 0
        results = []
        for i in range(info.batch_size):
            example = [t.select(in_dims[j], i) if j in mapped else t for j, t in enumerate(args)]
            if len(example) > seed_at:
                example[seed_at] = seed
            results.append(op(*example))
        if n == 1:
            return torch.stack(results), 0
        return tuple(torch.stack(column) for column in zip(*results, strict=True)), (0,) * n

    return rule


_INSTEAD = "Call gemmsim.qconv2d and similar functions, which define the backward pass."
conv_op = define(f"conv({_CONV}, {_LAST}) -> Tensor", _conv, _conv_fake, vmap=_batch(1, 10, 14), instead=_INSTEAD)
conv_with_operands_op = define(
    f"conv_with_operands({_CONV}, {_LAST}) -> (Tensor, Tensor, Tensor)",
    _conv_with_operands,
    _conv_with_operands_fake,
    vmap=_batch(3, 10, 14),
    instead=_INSTEAD,
)
conv_weight_op = define(
    f"conv_weight(Tensor large, Tensor small, str spec, SymInt[] kernel, {_MAP}, {_REST}, {_LAST}) -> Tensor",
    _conv_weight,
    _conv_weight_fake,
    vmap=_batch(1, 8, 11),
    instead=_INSTEAD,
)
