"""Registration of the operators with PyTorch: schemas, kernels, fake kernels and batching rules.

``torch.ops.gemmsim.matmul`` and its kin are what ``torch.compile`` graphs, modes and profilers see. They take specs and
casts as strings. They have no gradient of their own: ``gemmsim.qmatmul``, ``gemmsim.qlinear`` and ``gemmsim.quantizer``
do. There is no autocast rule on purpose: under ``torch.autocast`` operands keep their dtype, because the spec says how
they are rounded.

Seeds cross as optional integers: None means "draw from torch's default CPU generator when the kernel runs, if the spec
needs bits".
``stream`` names the step of a layer that shares the seed (see ``seeds.derive_seed``), ``counter`` is added to the seed
when the kernel runs: a tensor, so that code compiled once serves all steps of a training run. ``site`` says whose
product this is ("encoder.0.linear1|linear"); it changes nothing and is what observers read. ``amax`` has the largest
magnitudes of earlier operands, of which delayed scales are made.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from gemmsim.backends import acceleration

from .. import quantize_eager
from ..cast_arguments import carrier_dtype, target_dtype, target_of
from ..checks import check_float, check_integers
from ..dispatch import unobserved
from ..registration import define
from ..seeds import Site, Stream, at_counter
from . import batching, eager
from .epilogue import check_bias
from .matmul_extras import MatmulExtras
from .shapes import matmul_shape

__all__ = [
    "count_events_op",
    "count_overflows_op",
    "matmul_op",
    "matmul_with_operands_op",
    "multiply",
    "multiply_with_operands",
    "quantize_inplace_op",
    "quantize_op",
    "quantize_out_op",
]


def _matmul(a: Tensor, b: Tensor, spec: str, *given: Any, **named: Any) -> Tensor:
    return _run(a, b, spec, MatmulExtras(*given, **named))


def _run(a: Tensor, b: Tensor, spec: str, extras: MatmulExtras) -> Tensor:
    meaning = eager.spec_of(spec)
    if extras.stream == Stream.ADDEND_GRAD and acceleration.asked() is not None:
        with acceleration.restored(None):  # a sum of rows, written as a product by ones: no library's product
            return eager.matmul(a, b, meaning, extras)
    return eager.matmul(a, b, meaning, extras)


def _matmul_with_operands(a: Tensor, b: Tensor, spec: str, *given: Any, **named: Any) -> tuple[Tensor, Tensor, Tensor]:
    return eager.matmul_with_operands(a, b, eager.spec_of(spec), MatmulExtras(*given, **named))


def _count_overflows(a: Tensor, b: Tensor, spec: str, seed: int | None = None) -> Tensor:
    return eager.count_overflows(a, b, eager.spec_of(spec), seed)


def _count_events(
    a: Tensor, b: Tensor, spec: str, seed: int | None = None, c: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    return eager.count_events(a, b, eager.spec_of(spec), seed, c)


def _quantize(
    x: Tensor,
    cast: str,
    seed: int | None = None,
    site: int = Site.QUANTIZE,
    stream: int = 0,
    widen: bool = False,
    counter: Tensor | None = None,
) -> Tensor:
    return quantize_eager.quantize(x, target_of(cast), at_counter(seed, counter), site, stream, widen)


def _quantize_into(x: Tensor, cast: str, out: Tensor, seed: int | None = None) -> None:
    quantize_eager.overwrite(x, target_of(cast), out, seed)


def _quantize_inplace(x: Tensor, cast: str, seed: int | None = None) -> None:
    quantize_eager.overwrite(x, target_of(cast), x, seed)


def _matmul_fake(a: Tensor, b: Tensor, spec: str, *given: Any, **named: Any) -> Tensor:
    extras = MatmulExtras(*given, **named)
    eager.spec_of(spec)
    if extras.select is not None:
        check_integers("qmatmul", "select", extras.select)
    if extras.bias is not None:
        check_bias("qmatmul", extras.bias, b.shape[-1])
    dtype = eager.result_dtype("qmatmul", a, b, extras.out_dtype)
    return a.new_empty(matmul_shape("qmatmul", a, b), dtype=dtype)


def _matmul_with_operands_fake(
    a: Tensor, b: Tensor, spec: str, *given: Any, **named: Any
) -> tuple[Tensor, Tensor, Tensor]:
    meaning = eager.spec_of(spec)
    out = _matmul_fake(a, b, spec, *given, **named)
    cast_a, cast_b = (
        t.new_empty(0) if cast is None else torch.empty_like(t, dtype=carrier_dtype(cast.format, t.dtype))
        for t, cast in ((a, meaning.cast_a), (b, meaning.cast_b))
    )
    return out, cast_a, cast_b


def _count_overflows_fake(a: Tensor, b: Tensor, spec: str, seed: int | None = None) -> Tensor:
    eager.spec_of(spec)
    return a.new_empty(matmul_shape("count_overflows", a, b), dtype=torch.int64)


def _count_events_fake(
    a: Tensor, b: Tensor, spec: str, seed: int | None = None, c: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    eager.spec_of(spec)
    dtype = eager.result_dtype("count_events", a, b, None)
    shape = matmul_shape("count_events", a, b)
    return a.new_empty(shape, dtype=dtype), a.new_empty((4, *shape), dtype=torch.int64)


def _quantize_fake(
    x: Tensor,
    cast: str,
    seed: int | None = None,
    site: int = Site.QUANTIZE,
    stream: int = 0,
    widen: bool = False,
    counter: Tensor | None = None,
) -> Tensor:
    target = target_of(cast)
    quantize_eager.check_target(target, x)
    return torch.empty_like(x, dtype=target_dtype(target, x.dtype) if widen else x.dtype)


def _quantize_into_fake(x: Tensor, cast: str, out: Tensor, seed: int | None = None) -> None:
    quantize_eager.check_target(target_of(cast), x)
    check_float("quantize", "out", out)


def _quantize_inplace_fake(x: Tensor, cast: str, seed: int | None = None) -> None:
    quantize_eager.check_target(target_of(cast), x)


quantize_op = define(
    "quantize(Tensor x, str cast, SymInt? seed=None, int site=16, int stream=0, bool widen=False,"
    " Tensor? counter=None) -> Tensor",
    _quantize,
    _quantize_fake,
    vmap=batching.quantize,
    instead="Call gemmsim.quantizer(...), whose gradient passes straight through.",
)
quantize_out_op = define(
    "quantize_into(Tensor x, str cast, Tensor(a!) out, SymInt? seed=None) -> ()", _quantize_into, _quantize_into_fake
)
quantize_inplace_op = define(
    "quantize_(Tensor(a!) x, str cast, SymInt? seed=None) -> ()", _quantize_inplace, _quantize_inplace_fake
)
#: ``MatmulExtras`` has the arguments after the spec.
_MATMUL = (
    "Tensor a, Tensor b, str spec, SymInt? seed=None, ScalarType? out_dtype=None, Tensor? c=None, int stream=0,"
    " Tensor? select=None, Tensor? bias=None, str? output=None, SymInt row=0, Tensor? counter=None,"
    " str? site=None, Tensor? amax=None"
)
_INSTEAD = "Call gemmsim.qmatmul or gemmsim.qlinear, which define the backward pass."
matmul_op = define(
    f"matmul({_MATMUL}) -> Tensor",
    _matmul,
    _matmul_fake,
    vmap=partial(batching.matmul, quantize_op),
    instead=_INSTEAD,
)
matmul_with_operands_op = define(
    f"matmul_with_operands({_MATMUL}) -> (Tensor, Tensor, Tensor)",
    _matmul_with_operands,
    _matmul_with_operands_fake,
    vmap=partial(batching.matmul_with_operands, quantize_op),
    instead=_INSTEAD,
)
count_events_op = define(
    "count_events(Tensor a, Tensor b, str spec, SymInt? seed=None, Tensor? c=None) -> (Tensor, Tensor)",
    _count_events,
    _count_events_fake,
    vmap=batching.count_events,
    instead="Call gemmsim.qmatmul for a product with a gradient.",
)
count_overflows_op = define(
    "count_overflows(Tensor a, Tensor b, str spec, SymInt? seed=None) -> Tensor",
    _count_overflows,
    _count_overflows_fake,
    vmap=batching.count_overflows,
)


def multiply(a: Tensor, b: Tensor, spec: str, extras: MatmulExtras) -> Tensor:
    """``matmul_op``, without the dispatcher, which takes longer than a small product, where no mode observes it."""
    if unobserved(a, b, extras.c, extras.select, extras.bias, extras.amax):
        return _run(a, b, spec, extras)
    result: Tensor = matmul_op(a, b, spec, *extras)
    return result


def multiply_with_operands(a: Tensor, b: Tensor, spec: str, extras: MatmulExtras) -> tuple[Tensor, Tensor, Tensor]:
    """``matmul_with_operands_op``, as ``multiply``."""
    if unobserved(a, b, extras.c, extras.select, extras.bias, extras.amax):
        return eager.matmul_with_operands(a, b, eager.spec_of(spec), extras)
    result: tuple[Tensor, Tensor, Tensor] = matmul_with_operands_op(a, b, spec, *extras)
    return result
