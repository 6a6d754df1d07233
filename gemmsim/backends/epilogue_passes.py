"""Applies an epilogue (``Finish``) as passes over the result of a product.

The result and the bias are rounded to the working dtype and added there, to nearest even. The cast follows, then
PyTorch's conversion to the result's own dtype. ``cast_into`` is ``Conversions.cast_into`` of the device's backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from gemmsim.formats import Cast
from gemmsim.lowering.abi_constants import Site

from .dtypes import carrier_dtype
from .epilogue import Finish

__all__ = ["finish_into", "followed"]

_Result = TypeVar("_Result")
_CastInto = Callable[[Tensor, Cast, Tensor, int, int], None]


def finish_into(raw: Tensor, finish: Finish, out: Tensor, cast_into: _CastInto) -> None:
    """Apply ``finish`` to ``raw`` and write the result to ``out``.

    ``raw`` has dtype ``finish.work``, may be ``out``, and is overwritten.
    """
    if finish.bias is not None:
        raw.add_(finish.bias.to(raw.dtype))
    if finish.cast is not None:
        rounded = torch.empty_like(raw, dtype=carrier_dtype(finish.cast.format, raw.dtype))
        cast_into(raw, finish.cast, rounded, 0, Site.QUANTIZE)
        raw = rounded
    if raw is not out:
        out.copy_(raw)


def followed(product: Callable[[Tensor], _Result], finish: Finish | None, out: Tensor, cast_into: _CastInto) -> _Result:
    """Run ``product``, which writes into the tensor that it gets, then ``finish``; return what ``product`` returned."""
    if finish is None:
        return product(out)
    raw = out if out.dtype == finish.work and finish.cast is None else torch.empty_like(out, dtype=finish.work)
    result = product(raw)
    finish_into(raw, finish, out, cast_into)
    return result
