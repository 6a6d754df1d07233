"""``torch.ops.gemmsim.row_*``: row operations as operators with fake kernels and batching rules.

They work on the last dimension, take casts as strings ("" for a step rounded to the tensors' own dtype; several steps
are separated by ";"), and have no gradient of their own. ``counter`` is added to the seed when the kernel runs, as in
products (``product/operators.py``). float16 and bfloat16 are computed in float32 and rounded to their dtype at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gemmsim.backends import cpu
from gemmsim.backends.backend import backend_name, backend_of
from gemmsim.formats import Cast

from .. import last_run
from ..cast_arguments import cast_of
from ..errors import DeviceError, message
from ..registration import define
from ..seeds import Bits, at_counter, derive_seed, draw_seed

__all__ = ["row_map_op", "row_norm_grad_op", "row_norm_op", "row_softmax_grad_op", "row_softmax_op", "row_sum_op"]

#: Streams of the members of a batch are this many bits apart.
_MEMBER = 16
_SEED = "SymInt? seed=None, int stream=0, Tensor? counter=None"


@lru_cache(maxsize=1024)
def _steps(text: str) -> tuple[Sequence[Cast | None], bool]:
    """The casts of ``text``, and whether one is stochastic."""
    casts = cpu.named_steps([cast_of(name) if name else None for name in text.split(";")])
    return casts, any(cast is not None and cast.is_stochastic for cast in casts)


def _work(*tensors: Tensor | None) -> torch.dtype:
    wide = any(t is not None and t.dtype is torch.float64 for t in tensors)
    return torch.float64 if wide else torch.float32


def _ready(t: Tensor | None) -> Tensor | None:
    """``t`` as backends read it."""
    return None if t is None else t.contiguous()


def _seed(stochastic: bool, bits: Bits, stream: int) -> int:
    if not stochastic:
        return 0
    seed = at_counter(*bits)
    return draw_seed() if seed is None else derive_seed(seed, stream)


def _run(
    op: str,
    casts: str,
    inputs: tuple[Tensor | None, ...],
    outputs: tuple[Tensor, ...],
    bits: Bits,
    stream: int,
    **how: Any,
) -> None:
    steps, stochastic = _steps(casts)
    device = outputs[0].device
    strays = [t for t in inputs if t is not None and t.device != device]
    if strays:
        asked = f"row_{op}: tensors on {device} and {strays[0].device}"
        raise DeviceError(message(asked, "all tensors on one device", "Move them with .to(device)."))
    seed = _seed(stochastic, bits, stream) if how["rows"] and how["cols"] else 0
    work = backend_of(outputs[0]).run_rows(op, inputs, outputs, steps, seed=seed, **how)
    last_run.record(f"row_{op}", backend_name(outputs[0]), casts, f"{how['rows']} x {how['cols']} {work}")


def _rows_of(x: Tensor) -> dict[str, int]:
    cols = x.shape[-1]
    return {"rows": x.numel() // cols if cols else 0, "cols": cols}


def _map_shape(a: Tensor, b: Tensor | None) -> tuple[torch.Size, torch.dtype]:
    if b is None:
        return a.shape, a.dtype
    return torch.Size(torch.broadcast_shapes(a.shape, b.shape)), torch.promote_types(a.dtype, b.dtype)


def _map(
    a: Tensor,
    b: Tensor | None,
    function: str,
    cast: str,
    seed: int | None = None,
    stream: int = 0,
    counter: Tensor | None = None,
) -> Tensor:
    shape, dtype = _map_shape(a, b)
    left = _ready(a.expand(shape))
    right = None if b is None else _ready(b.expand(shape))
    out = a.new_empty(shape, dtype=dtype)
    _run("map", cast, (left, right), (out,), Bits(seed, counter), stream, rows=out.numel(), cols=1, function=function)
    return out


def _map_fake(a: Tensor, b: Tensor | None, function: str, cast: str, *rest: Any) -> Tensor:
    _steps(cast)
    shape, dtype = _map_shape(a, b)
    return a.new_empty(shape, dtype=dtype)


def _sum(
    x: Tensor,
    cast: str,
    order: int = 1,
    seed: int | None = None,
    stream: int = 0,
    counter: Tensor | None = None,
) -> Tensor:
    out = x.new_zeros(x.shape[:-1])
    _run("sum", cast, (_ready(x),), (out,), Bits(seed, counter), stream, order=order, **_rows_of(x))
    return out


def _sum_fake(x: Tensor, cast: str, *rest: Any) -> Tensor:
    _steps(cast)
    return x.new_empty(x.shape[:-1])


def _softmax(
    x: Tensor,
    casts: str,
    order: int,
    lse: bool,
    seed: int | None = None,
    stream: int = 0,
    counter: Tensor | None = None,
) -> Tensor:
    out = x.new_empty(x.shape)
    op = "log_softmax" if lse else "softmax"
    _run(op, casts, (_ready(x),), (out,), Bits(seed, counter), stream, order=order, **_rows_of(x))
    return out


def _softmax_fake(x: Tensor, casts: str, *rest: Any) -> Tensor:
    _steps(casts)
    return x.new_empty(x.shape)


def _softmax_grad(
    y: Tensor,
    g: Tensor,
    casts: str,
    order: int,
    seed: int | None = None,
    stream: int = 0,
    counter: Tensor | None = None,
) -> Tensor:
    out = y.new_empty(y.shape)
    _run("softmax_grad", casts, (_ready(y), _ready(g)), (out,), Bits(seed, counter), stream, order=order, **_rows_of(y))
    return out


def _softmax_grad_fake(y: Tensor, g: Tensor, casts: str, *rest: Any) -> Tensor:
    _steps(casts)
    return y.new_empty(y.shape)


def _norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, casts: str, eps: float, order: int, centered: bool,
    seed: int | None = None, stream: int = 0, counter: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    work = _work(x, weight, bias)
    out = x.new_empty(x.shape)
    mean, rstd = (torch.zeros(x.shape[:-1], dtype=work, device=x.device) for _ in range(2))
    inputs = (_ready(x), _ready(weight), _ready(bias))
    how = {"order": order, "centered": centered, "eps": eps, **_rows_of(x)}
    _run("norm", casts, inputs, (out, mean, rstd), Bits(seed, counter), stream, **how)
    return out, mean, rstd


def _norm_fake(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, casts: str, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    _steps(casts)
    work = _work(x, weight, bias)
    mean = x.new_empty(x.shape[:-1], dtype=work)
    return x.new_empty(x.shape), mean, torch.empty_like(mean)


def _norm_grad(
    x: Tensor, weight: Tensor | None, mean: Tensor, rstd: Tensor, g: Tensor, casts: str, order: int, centered: bool,
    seed: int | None = None, stream: int = 0, counter: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    work = _work(x, weight, mean, g)
    out, terms = (x.new_empty(x.shape, dtype=dtype) for dtype in (x.dtype, work))
    inputs = tuple(_ready(t) for t in (x, weight, mean, rstd, g))
    how = {"order": order, "centered": centered, **_rows_of(x)}
    _run("norm_grad", casts, inputs, (out, terms), Bits(seed, counter), stream, **how)
    return out, terms


def _norm_grad_fake(
    x: Tensor, weight: Tensor | None, mean: Tensor, rstd: Tensor, g: Tensor, casts: str, *rest: Any
) -> tuple[Tensor, Tensor]:
    _steps(casts)
    return x.new_empty(x.shape), x.new_empty(x.shape, dtype=_work(x, weight, mean, g))


def _batched(tensors: int, broadcasts: bool = False) -> Any:
    """Batching rule: the batch becomes the leading dimension of every tensor argument, the first ``tensors``.

    Where the operator ``broadcasts``, arguments without a batch stay as they are.
    """

    def rule(op: Any, info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        rank = max(a.dim() - (d is not None) for a, d in zip(args[:tensors], in_dims, strict=False) if a is not None)
        moved = []
        for a, d in zip(args[:tensors], in_dims, strict=False):
            if a is not None and d is not None:
                a = a.movedim(d, 0)
                a = a.reshape(a.shape[:1] + (1,) * (rank - a.dim() + 1) + a.shape[1:])
            elif a is not None and not broadcasts:
                a = a.expand(info.batch_size, *a.shape)
            moved.append(a)
        out = op(*moved, *args[tensors:])
        return out, tuple(0 for _ in out) if isinstance(out, tuple) else 0

    return rule


def _batched_norm(vectors: tuple[int, ...]) -> Any:
    """Batching rule of normalisations: rows join the batch, but members with weights of their own run one by one."""

    def rule(op: Any, info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        arguments = op._schema.arguments
        *moved, seed, stream, counter = [*args, *(argument.default_value for argument in arguments[len(args) :])]
        each = any(in_dims[i] is not None for i in vectors)
        for i, (a, d) in enumerate(zip(tuple(moved), in_dims, strict=False)):
            if isinstance(a, Tensor) and (each or i not in vectors):
                moved[i] = a.movedim(d, 0) if d is not None else a.expand(info.batch_size, *a.shape)
        if not each:
            out = op(*moved, seed, stream, counter)
            return out, tuple(0 for _ in out)
        results = []
        for b in range(info.batch_size):
            one = [m[b] if isinstance(m, Tensor) else m for m in moved]
            results.append(op(*one, seed, stream + (b << _MEMBER), counter))  # random bits of its own
        out = tuple(torch.stack(column) for column in zip(*results, strict=True))
        return out, tuple(0 for _ in out)

    return rule


row_map_op = define(
    f"row_map(Tensor a, Tensor? b, str function, str cast, {_SEED}) -> Tensor",
    _map,
    _map_fake,
    vmap=_batched(2, broadcasts=True),
)
row_sum_op = define(f"row_sum(Tensor x, str cast, int order=1, {_SEED}) -> Tensor", _sum, _sum_fake, vmap=_batched(1))
row_softmax_op = define(
    f"row_softmax(Tensor x, str casts, int order, bool lse, {_SEED}) -> Tensor",
    _softmax,
    _softmax_fake,
    vmap=_batched(1),
)
row_softmax_grad_op = define(
    f"row_softmax_grad(Tensor y, Tensor g, str casts, int order, {_SEED}) -> Tensor",
    _softmax_grad,
    _softmax_grad_fake,
    vmap=_batched(2),
)
row_norm_op = define(
    f"row_norm(Tensor x, Tensor? weight, Tensor? bias, str casts, float eps, int order, bool centered, {_SEED})"
    " -> (Tensor, Tensor, Tensor)",
    _norm,
    _norm_fake,
    vmap=_batched_norm((1, 2)),
)
row_norm_grad_op = define(
    f"row_norm_grad(Tensor x, Tensor? weight, Tensor mean, Tensor rstd, Tensor g, str casts, int order,"
    f" bool centered, {_SEED}) -> (Tensor, Tensor)",
    _norm_grad,
    _norm_grad_fake,
    vmap=_batched_norm((1,)),
)
