"""Registration of the operators with PyTorch: schemas, kernels, fake kernels and batching rules.

``torch.ops.gemmsim.matmul`` and its kin are what ``torch.compile`` graphs, modes and profilers see. They take specs and
casts as strings. They have no gradient of their own: ``gemmsim.qmatmul``, ``gemmsim.qlinear`` and ``gemmsim.quantizer``
do. There is no autocast rule on purpose: under ``torch.autocast`` operands keep their dtype, because the spec says how
they are rounded.

Seeds cross as optional integers: None means "draw from torch's default CPU generator when the kernel runs, if the spec
needs bits". ``stream`` names the step of a layer that shares the seed (see ``seeds.derive_seed``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim.formats import Cast

from . import batching, kernels
from .casts import carrier_dtype, cast_of, target_dtype, target_of
from .checks import check_float, check_integers
from .errors import GradError, message
from .finishing import check_bias
from .seeds import Site
from .shapes import matmul_shape

__all__ = [
    "LIBRARY",
    "TAGS",
    "count_overflows_op",
    "matmul_op",
    "matmul_with_operands_op",
    "no_gradient",
    "quantize_inplace_op",
    "quantize_op",
    "quantize_out_op",
    "remember",
]

LIBRARY = torch.library.Library("gemmsim", "DEF")
# Draws from the generator: never merged with an equal call, never recomputed.
TAGS = (torch.Tag.nondeterministic_seeded, torch.Tag.needs_exact_strides)

LIBRARY.define(
    "matmul(Tensor a, Tensor b, str spec, SymInt? seed=None, ScalarType? out_dtype=None, Tensor? c=None, int stream=0,"
    " Tensor? select=None, Tensor? bias=None, str? output=None) -> Tensor",
    tags=TAGS,
)
LIBRARY.define(
    "matmul_with_operands(Tensor a, Tensor b, str spec, SymInt? seed=None, ScalarType? out_dtype=None, Tensor? c=None,"
    " int stream=0, Tensor? select=None, Tensor? bias=None, str? output=None) -> (Tensor, Tensor, Tensor)",
    tags=TAGS,
)
LIBRARY.define("count_overflows(Tensor a, Tensor b, str spec, SymInt? seed=None) -> Tensor", tags=TAGS)
LIBRARY.define(
    "quantize(Tensor x, str cast, SymInt? seed=None, int site=16, int stream=0, bool widen=False) -> Tensor",
    tags=TAGS,
)
LIBRARY.define("quantize_into(Tensor x, str cast, Tensor(a!) out, SymInt? seed=None) -> ()", tags=TAGS)
LIBRARY.define("quantize_(Tensor(a!) x, str cast, SymInt? seed=None) -> ()", tags=TAGS)


def _matmul(
    a: Tensor,
    b: Tensor,
    spec: str,
    seed: int | None = None,
    out_dtype: torch.dtype | None = None,
    c: Tensor | None = None,
    stream: int = 0,
    select: Tensor | None = None,
    bias: Tensor | None = None,
    output: str | None = None,
) -> Tensor:
    return kernels.matmul(a, b, kernels.spec_of(spec), seed, out_dtype, c, stream, select, bias, _cast(output))


def _matmul_with_operands(
    a: Tensor,
    b: Tensor,
    spec: str,
    seed: int | None = None,
    out_dtype: torch.dtype | None = None,
    c: Tensor | None = None,
    stream: int = 0,
    select: Tensor | None = None,
    bias: Tensor | None = None,
    output: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    meaning = kernels.spec_of(spec)
    return kernels.matmul_with_operands(a, b, meaning, seed, out_dtype, c, stream, select, bias, _cast(output))


def _cast(output: str | None) -> Cast | None:
    return None if output is None else cast_of(output)


def _count_overflows(a: Tensor, b: Tensor, spec: str, seed: int | None = None) -> Tensor:
    return kernels.count_overflows(a, b, kernels.spec_of(spec), seed)


def _quantize(
    x: Tensor,
    cast: str,
    seed: int | None = None,
    site: int = Site.QUANTIZE,
    stream: int = 0,
    widen: bool = False,
) -> Tensor:
    return kernels.quantize(x, target_of(cast), seed, site, stream, widen)


def _quantize_into(x: Tensor, cast: str, out: Tensor, seed: int | None = None) -> None:
    kernels.overwrite(x, target_of(cast), out, seed)


def _quantize_inplace(x: Tensor, cast: str, seed: int | None = None) -> None:
    kernels.overwrite(x, target_of(cast), x, seed)


for _key in ("CPU", "CUDA"):  # one function for both: it takes the backend of its operands' device
    LIBRARY.impl("matmul", _matmul, _key)
    LIBRARY.impl("matmul_with_operands", _matmul_with_operands, _key)
    LIBRARY.impl("count_overflows", _count_overflows, _key)
    LIBRARY.impl("quantize", _quantize, _key)
    LIBRARY.impl("quantize_into", _quantize_into, _key)
    LIBRARY.impl("quantize_", _quantize_inplace, _key)


@torch.library.register_fake("gemmsim::matmul", lib=LIBRARY)
def _matmul_fake(
    a: Tensor,
    b: Tensor,
    spec: str,
    seed: int | None = None,
    out_dtype: torch.dtype | None = None,
    c: Tensor | None = None,
    stream: int = 0,
    select: Tensor | None = None,
    bias: Tensor | None = None,
    output: str | None = None,
) -> Tensor:
    kernels.spec_of(spec)
    if select is not None:
        check_integers("matmul", "select", select)
    if bias is not None:
        check_bias("matmul", bias, b.shape[-1])
    dtype = kernels.result_dtype("matmul", a, b, out_dtype)
    return a.new_empty(matmul_shape("matmul", a, b), dtype=dtype)


@torch.library.register_fake("gemmsim::matmul_with_operands", lib=LIBRARY)
def _matmul_with_operands_fake(
    a: Tensor,
    b: Tensor,
    spec: str,
    seed: int | None = None,
    out_dtype: torch.dtype | None = None,
    c: Tensor | None = None,
    stream: int = 0,
    select: Tensor | None = None,
    bias: Tensor | None = None,
    output: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    meaning = kernels.spec_of(spec)
    out = _matmul_fake(a, b, spec, seed, out_dtype, c, stream, select, bias, output)
    operands = (
        t.new_empty(0) if cast is None else torch.empty_like(t, dtype=carrier_dtype(cast.format, t.dtype))
        for t, cast in ((a, meaning.cast_a), (b, meaning.cast_b))
    )
    return out, *operands


@torch.library.register_fake("gemmsim::count_overflows", lib=LIBRARY)
def _count_overflows_fake(a: Tensor, b: Tensor, spec: str, seed: int | None = None) -> Tensor:
    kernels.spec_of(spec)
    return a.new_empty(matmul_shape("count_overflows", a, b), dtype=torch.int64)


@torch.library.register_fake("gemmsim::quantize", lib=LIBRARY)
def _quantize_fake(
    x: Tensor,
    cast: str,
    seed: int | None = None,
    site: int = Site.QUANTIZE,
    stream: int = 0,
    widen: bool = False,
) -> Tensor:
    target = target_of(cast)
    kernels.check_target(target, x)
    return torch.empty_like(x, dtype=target_dtype(target, x.dtype) if widen else x.dtype)


@torch.library.register_fake("gemmsim::quantize_into", lib=LIBRARY)
def _quantize_into_fake(x: Tensor, cast: str, out: Tensor, seed: int | None = None) -> None:
    kernels.check_target(target_of(cast), x)
    check_float("quantize", "out", out)


@torch.library.register_fake("gemmsim::quantize_", lib=LIBRARY)
def _quantize_inplace_fake(x: Tensor, cast: str, seed: int | None = None) -> None:
    kernels.check_target(target_of(cast), x)


torch.library.register_vmap("gemmsim::matmul", batching.matmul, lib=LIBRARY)
torch.library.register_vmap("gemmsim::matmul_with_operands", batching.matmul_with_operands, lib=LIBRARY)
torch.library.register_vmap("gemmsim::count_overflows", batching.count_overflows, lib=LIBRARY)
torch.library.register_vmap("gemmsim::quantize", batching.quantize, lib=LIBRARY)


def no_gradient(instead: str) -> Any:
    """A backward pass that raises: ``instead`` says what has one."""

    def backward(ctx: Any, *grads: Tensor) -> None:
        raise GradError(message(f"gradient of the raw operator {ctx.op}", "gradients of the public functions", instead))

    return backward


def remember(name: str) -> Any:
    """A context that keeps the name of the operator for ``no_gradient``."""

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.op = name

    return setup_context


for _name, _instead in (
    ("matmul", "Call gemmsim.qmatmul or gemmsim.qlinear, which know what the backward pass computes."),
    ("matmul_with_operands", "Call gemmsim.qmatmul or gemmsim.qlinear, which know what the backward pass computes."),
    ("quantize", "Call gemmsim.quantizer(...), whose gradient passes straight through."),
):
    torch.library.register_autograd(
        f"gemmsim::{_name}", no_gradient(_instead), setup_context=remember(f"gemmsim::{_name}"), lib=LIBRARY
    )

matmul_op = torch.ops.gemmsim.matmul.default
matmul_with_operands_op = torch.ops.gemmsim.matmul_with_operands.default
count_overflows_op = torch.ops.gemmsim.count_overflows.default
quantize_op = torch.ops.gemmsim.quantize.default
quantize_out_op = torch.ops.gemmsim.quantize_into.default
quantize_inplace_op = torch.ops.gemmsim.quantize_.default
