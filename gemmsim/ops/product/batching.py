"""Batching rules: what ``torch.vmap`` makes of one call.

A deterministic spec runs as one batched call, whose matrices are those of the separate calls. With an explicit seed, or
``randomness="same"``, every example must see the bits of a call of its own, so the examples run one by one. With
``randomness="different"`` one batched call gives every example bits of its own.

Each rule is given the operator that it belongs to (``operators.define``), those of products ``gemmsim::quantize`` too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gemmsim.formats import TENSOR_FORMATS, BlockFloatFormat, BlockFormat, FiniteFloatFormat, Sharing, TensorFormat

from ..cast_arguments import target_of
from ..errors import SeedError, message
from ..seeds import Site, at_counter, draw_seed, needs_seed
from . import eager
from .epilogue import is_wide
from .matmul_extras import MatmulExtras

__all__ = [
    "count_events",
    "count_overflows",
    "is_of_whole_tensor",
    "matmul",
    "matmul_with_operands",
    "quantize",
    "seed_for_each",
]


def _front(t: Tensor, dim: int | None) -> Tensor:
    return t if dim is None else t.movedim(dim, 0)


def _one_by_one(
    info: Any, dims: tuple[int | None, ...], tensors: tuple[Tensor | None, ...], call: Callable[..., Any]
) -> list[Any]:
    """The results of ``call`` on each example."""
    fronted = [None if t is None else _front(t, d) for t, d in zip(tensors, dims, strict=True)]
    results = []
    for i in range(info.batch_size):
        results.append(call(*(t if d is None or t is None else t[i] for t, d in zip(fronted, dims, strict=True))))
    return results


def seed_for_each(info: Any, owner: str, seed: int | None) -> tuple[bool, int | None]:
    """Whether the examples must run one by one, and with which seed.

    Raises:
        SeedError: without a seed where randomness is an error.
    """
    if seed is not None:
        return True, seed
    if info.randomness == "different":
        return False, None
    if info.randomness == "same":
        return True, draw_seed() >> 1
    raise SeedError(
        message(
            f"{owner} with stochastic rounding and no seed under vmap(..., randomness='error')",
            "randomness='different' (different bits for each example) or 'same', or an explicit seed",
            "Choose one in the call of torch.vmap.",
        )
    )


def quantize(
    op: Callable[..., Any],
    info: Any,
    in_dims: tuple[int | None, ...],
    x: Tensor,
    cast: str,
    seed: int | None = None,
    site: int = 16,
    stream: int = 0,
    widen: bool = False,
    counter: Tensor | None = None,
) -> tuple[Tensor, int]:
    """Batching rule of ``gemmsim::quantize``."""
    dim, seed = in_dims[0], at_counter(seed, counter)
    target = target_of(cast)
    if isinstance(target, TENSOR_FORMATS):
        return _quantize_blocks(op, info, dim, x, target, seed, stream), 0
    if not target.is_stochastic:
        return op(x, cast, None, site, stream, widen), dim  # type: ignore[return-value]
    separately, seed = seed_for_each(info, "quantize", seed)
    if not separately:
        return op(_front(x, dim), cast, None, site, stream, widen), 0
    results = _one_by_one(info, (dim,), (x,), lambda t: op(t, cast, seed, site, stream, widen))
    return torch.stack(results), 0


def matmul(
    quantize_op: Callable[..., Any],
    op: Callable[..., Any],
    info: Any,
    in_dims: tuple[int | None, ...],
    a: Tensor,
    b: Tensor,
    spec: str,
    *given: Any,
    **named: Any,
) -> tuple[Tensor, int]:
    """Batching rule of ``gemmsim::matmul``."""
    extras = _at_counter(MatmulExtras(*given, **named))
    if extras.bias is not None or extras.output is not None:
        dtype, bare = _without_epilogue(a, b, spec, extras)
        out, _ = matmul(quantize_op, op, info, in_dims, a, b, spec, *bare)
        return _finished(quantize_op, out, extras, in_dims).to(dtype), 0
    dims = _operand_dims(in_dims)
    separately, seed = _matmul_seed(info, spec, extras.seed)
    extras = extras._replace(seed=seed)
    if separately or dims[:2] == (None, None):
        call = partial(_call, op, spec, extras)
        return torch.stack(_one_by_one(info, dims, (a, b, extras.c, extras.select), call)), 0
    return _call(op, spec, extras, *_with_equal_ranks(dims, a, b, extras.c, extras.select)), 0


def matmul_with_operands(
    quantize_op: Callable[..., Any],
    op: Callable[..., Any],
    info: Any,
    in_dims: tuple[int | None, ...],
    a: Tensor,
    b: Tensor,
    spec: str,
    *given: Any,
    **named: Any,
) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[int | None, int | None, int | None]]:
    """Batching rule of ``gemmsim::matmul_with_operands``."""
    extras = _at_counter(MatmulExtras(*given, **named))
    if extras.bias is not None or extras.output is not None:
        dtype, bare = _without_epilogue(a, b, spec, extras)
        (raw, *casts), where = matmul_with_operands(quantize_op, op, info, in_dims, a, b, spec, *bare)
        return (_finished(quantize_op, raw, extras, in_dims).to(dtype), casts[0], casts[1]), where
    dims = _operand_dims(in_dims)
    separately, seed = _matmul_seed(info, spec, extras.seed)
    extras = extras._replace(seed=seed)
    if separately or dims[:2] == (None, None):
        call = partial(_call, op, spec, extras)
        columns = zip(*_one_by_one(info, dims, (a, b, extras.c, extras.select), call), strict=True)
        out, cast_a, cast_b = (torch.stack(column) for column in columns)
        return (out, cast_a, cast_b), (0, 0, 0)
    out, cast_a, cast_b = _call(op, spec, extras, *_with_equal_ranks(dims, a, b, extras.c, extras.select))
    meaning = eager.spec_of(spec)
    cast_a, dim_a = _as_example(cast_a, a, dims[0], meaning.cast_a is not None)
    cast_b, dim_b = _as_example(cast_b, b, dims[1], meaning.cast_b is not None)
    return (out, cast_a, cast_b), (0, dim_a, dim_b)


def count_events(
    op: Callable[..., Any],
    info: Any,
    in_dims: tuple[int | None, ...],
    a: Tensor,
    b: Tensor,
    spec: str,
    seed: int | None = None,
    c: Tensor | None = None,
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    """Batching rule of ``gemmsim::count_events``."""
    dims = (in_dims[0], in_dims[1], in_dims[4] if len(in_dims) > 4 else None)
    separately, seed = _matmul_seed(info, spec, seed)
    if separately:
        columns = zip(*_one_by_one(info, dims, (a, b, c), lambda x, y, z: op(x, y, spec, seed, z)), strict=True)
        out, counts = (torch.stack(column) for column in columns)
        return (out, counts), (0, 0)
    a, b, c = _with_equal_ranks(dims, a, b, c)
    return op(a, b, spec, seed, c), (0, 1)


def count_overflows(
    op: Callable[..., Any],
    info: Any,
    in_dims: tuple[int | None, ...],
    a: Tensor,
    b: Tensor,
    spec: str,
    seed: int | None = None,
) -> tuple[Tensor, int]:
    """Batching rule of ``gemmsim::count_overflows``."""
    dims = (in_dims[0], in_dims[1], None)
    separately, seed = _matmul_seed(info, spec, seed)
    if separately:
        examples = _one_by_one(info, dims[:2], (a, b), lambda x, y: op(x, y, spec, seed))
        return torch.stack(examples), 0
    a, b, _ = _with_equal_ranks(dims, a, b, None)
    return op(a, b, spec, seed), 0


def _quantize_blocks(
    op: Callable[..., Any], info: Any, dim: int | None, x: Tensor, fmt: TensorFormat, seed: int | None, stream: int
) -> Tensor:
    """Block floating point of each example, the examples in front."""
    separately = False
    if fmt.is_stochastic:
        separately, seed = seed_for_each(info, "quantize", seed)
    batched = _beside_examples(fmt)
    if separately or batched is None or dim is None:
        examples = _one_by_one(info, (dim,), (x,), lambda t: op(t, str(fmt), seed, Site.QUANTIZE, stream))
        return torch.stack(examples)
    return op(_front(x, dim), str(batched), seed, Site.QUANTIZE, stream)


def _beside_examples(fmt: TensorFormat) -> TensorFormat | None:
    """``fmt`` for tensors with a dimension of examples in front; None: no format says that."""
    if isinstance(fmt, FiniteFloatFormat):
        return fmt
    if isinstance(fmt, BlockFloatFormat) and fmt.sharing is Sharing.TENSOR:
        return replace(fmt, sharing=Sharing.INDEX, dim=0)
    if fmt.sharing is Sharing.INDEX:
        return None
    return fmt if fmt.dim < 0 else replace(fmt, dim=fmt.dim + 1)


def _at_counter(extras: MatmulExtras) -> MatmulExtras:
    """``extras`` with the counter added to the seed."""
    return extras._replace(seed=at_counter(extras.seed, extras.counter), counter=None)


def _without_epilogue(a: Tensor, b: Tensor, spec: str, extras: MatmulExtras) -> tuple[torch.dtype, MatmulExtras]:
    """The result's dtype, and ``extras`` of the product alone, in the dtype in which a bias is added."""
    dtype = eager.result_dtype("matmul", a, b, extras.out_dtype)
    wide = dtype == torch.float64 or is_wide(eager.spec_of(spec))
    work = torch.float64 if wide else torch.float32
    return dtype, extras._replace(out_dtype=work, bias=None, output=None)


def _finished(
    quantize_op: Callable[..., Any], out: Tensor, extras: MatmulExtras, in_dims: tuple[int | None, ...]
) -> Tensor:
    """Products of all examples, these in front, after what follows them."""
    bias = extras.bias
    if bias is not None:
        dim = _extras_dims(in_dims).bias
        added = bias.to(out.dtype) if dim is None else bias.movedim(dim, 0).to(out.dtype)
        if dim is not None:
            added = added.reshape(added.shape[0], *((1,) * (out.dim() - 2)), added.shape[1])
        out = out + added
    return out if extras.output is None else quantize_op(out, extras.output, None, Site.QUANTIZE, 0, True)


def _extras_dims(in_dims: tuple[int | None, ...]) -> Any:
    """``MatmulExtras`` with the mapped dimension of each argument in its place."""
    given = in_dims[3:]
    return MatmulExtras._make((*given, *(None,) * (len(MatmulExtras._fields) - len(given))))


def _operand_dims(in_dims: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Mapped dimensions of a, b, c and select."""
    extras = _extras_dims(in_dims)
    return in_dims[0], in_dims[1], extras.c, extras.select


def _matmul_seed(info: Any, spec: str, seed: int | None) -> tuple[bool, int | None]:
    """Whether the examples must run one by one, and with which seed."""
    meaning = eager.spec_of(spec)
    if not meaning.is_stochastic:
        # One scale for the whole tensor: each example has its own.
        return any(is_of_whole_tensor(fmt) for fmt in (meaning.a, meaning.b)), None
    return seed_for_each(info, "matmul", seed) if needs_seed(meaning) else (True, None)


def is_of_whole_tensor(fmt: object) -> bool:
    """Whether all of a tensor shares one scale in ``fmt``."""
    if isinstance(fmt, TENSOR_FORMATS) and not isinstance(fmt, FiniteFloatFormat):
        return fmt.sharing is Sharing.TENSOR
    return isinstance(fmt, BlockFormat) and fmt.tensor_scale


def _call(op: Any, spec: str, extras: MatmulExtras, a: Any, b: Any, c: Any, select: Any) -> Any:
    return op(a, b, spec, *extras._replace(c=c, select=select))


def _with_equal_ranks(dims: tuple[int | None, ...], a: Tensor, b: Tensor, *others: Tensor | None) -> tuple[Any, ...]:
    """The examples in front, each with the rank of the largest; what is not mapped over keeps broadcasting."""
    rank = max(a.dim() - (dims[0] is not None), b.dim() - (dims[1] is not None))

    def pad(t: Tensor | None, dim: int | None) -> Tensor | None:
        if t is None or dim is None:
            return t
        t = t.movedim(dim, 0)
        return t.reshape(t.shape[0], *((1,) * (rank - t.dim() + 1)), *t.shape[1:])

    return tuple(pad(t, dim) for t, dim in zip((a, b, *others), dims, strict=True))


def _as_example(cast: Tensor, operand: Tensor, dim: int | None, present: bool) -> tuple[Tensor, int | None]:
    """A cast operand in the shape of its examples: the padding of ``_with_equal_ranks`` undone."""
    if dim is None or not present:
        return cast, None
    return cast.reshape(operand.movedim(dim, 0).shape), 0
