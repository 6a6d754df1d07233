"""Scaled dot-product attention whose two products and softmax each have their own arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from gemmsim._keywords import takes_spec
from gemmsim.formats import FormatError

from .checks import check_device, check_flags, check_float, check_numbers
from .errors import DTypeError, ShapeError, message
from .fx import traceable
from .product.affine_formats import QAffineFormats, QuantLike
from .product.affine_plan import Quant
from .product.format_warnings import warn_of_format_alone
from .product.matmul import FormatsLike, qmatmul
from .rowwise.elementwise import qmul
from .rowwise.formats import QSoftmaxFormats, RowFormatsLike, read_quant
from .rowwise.softmax import qsoftmax

__all__ = ["QAttentionFormats", "qattention"]


@dataclass(frozen=True, init=False)
class QAttentionFormats:
    """Formats of attention: of the products ``qk`` (scores) and ``pv`` (result) and of the ``softmax`` between them.

    ``qk`` and ``pv``: ``QAffineFormats``, a spec or a string as ``qmatmul`` takes them; None is PyTorch's own product.
    ``scale_quant``: rounding of the scaled scores and of their gradient; None leaves them in their dtype. If the
    softmax leaves ``masked_rows`` open, a row that a mask hides entirely is 0, as in PyTorch's attention. Immutable,
    hashable and picklable; two are equal if their fields are.

    Example:
        >>> spec = gs.QAttentionFormats(qk="e4m3 : fp32", softmax="bf16", pv="e4m3 : fp16")
        >>> spec.pv.fprop, spec.softmax.fwd_exp
        (GemmSpec.parse('e4m3 : e5m10'), parse_cast('e8m7'))
    """

    qk: QAffineFormats
    softmax: QSoftmaxFormats
    pv: QAffineFormats
    scale_quant: Quant
    #: ``softmax`` of scores under a mask; not a field.
    _masked: ClassVar[QSoftmaxFormats]

    def __init__(
        self,
        qk: FormatsLike | None = None,
        softmax: RowFormatsLike | None = None,
        pv: FormatsLike | None = None,
        scale_quant: QuantLike | None = None,
    ) -> None:
        put = object.__setattr__
        for name, spec in (("qk", qk), ("pv", pv)):
            warn_of_format_alone("QAttentionFormats", name, spec)
        put(self, "qk", QAffineFormats.of(qk))
        put(self, "softmax", QSoftmaxFormats.of(softmax))
        put(self, "pv", QAffineFormats.of(pv))
        put(self, "scale_quant", read_quant("QAttentionFormats", "scale_quant", scale_quant))
        put(self, "_masked", _zero_where_open(self.softmax))

    @classmethod
    @takes_spec("formats")
    def of(cls, spec: QAttentionFormats | None) -> QAttentionFormats:
        """``spec`` itself; of None, PyTorch's own attention.

        Raises:
            FormatError: for anything else, a string too.
        """
        if spec is None:
            return _NATIVE
        if isinstance(spec, cls):
            return spec
        asked = f"attention: spec={spec!r} of type {type(spec).__name__}"
        do = "Name the formats of each part: QAttentionFormats(qk=':e5m10', softmax='e5m10', pv=':e5m10')."
        raise FormatError(message(asked, "QAttentionFormats or None", do))

    def softmax_of(self, masked: bool) -> QSoftmaxFormats:
        """The softmax of scores; ``masked``: a mask may have hidden whole rows."""
        return self._masked if masked else self.softmax

    @property
    def is_native(self) -> bool:
        """Whether every step is PyTorch's own."""
        native = self.qk.plan.is_native and self.pv.plan.is_native and self.scale_quant is None
        return native and self.softmax.plan.is_native

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary; ``from_dict`` reads it back. ``FormatError`` for quantisers that are functions."""
        scale = None if self.scale_quant is None else str(self.scale_quant)
        parts = {"qk": self.qk, "softmax": self.softmax, "pv": self.pv}
        return {**{name: part.to_dict() for name, part in parts.items()}, "scale_quant": scale}  # type: ignore[attr-defined]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> QAttentionFormats:
        """Formats written by ``to_dict``."""
        return cls(
            QAffineFormats.from_dict(data["qk"]),
            QSoftmaxFormats.from_dict(data["softmax"]),
            QAffineFormats.from_dict(data["pv"]),
            data["scale_quant"],
        )


def _zero_where_open(softmax: QSoftmaxFormats) -> QSoftmaxFormats:
    if softmax.masked_rows is not None:
        return softmax
    return QSoftmaxFormats(
        **{**{f.name: getattr(softmax, f.name) for f in fields(QSoftmaxFormats)}, "masked_rows": "zero"}
    )


_NATIVE = QAttentionFormats()


def _check(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, causal: bool, gqa: bool) -> None:
    for name, t in (("query", q), ("key", k), ("value", v)):
        check_float("qattention", name, t)
    check_device("qattention", q, k, v, "query key value")
    check_flags("qattention", is_causal=causal, enable_gqa=gqa)
    check_numbers("qattention", dropout_p=p)
    if mask is not None:
        _check_mask_kind(mask, q)
    shapes = ", ".join(str(tuple(t.shape)) for t in (q, k, v))

    def refuse(asked: str, allowed: str, do: str) -> None:
        raise ShapeError(message(f"qattention: {asked}", allowed, do))

    if min(q.dim(), k.dim(), v.dim()) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        refuse(f"shapes {shapes}", "(..., L, E), (..., S, E), (..., S, Ev)", "Transpose or reshape them.")
    if q.dtype != k.dtype or q.dtype != v.dtype:
        refuse(f"dtypes {q.dtype}, {k.dtype}, {v.dtype}", "one dtype", "Convert them to one dtype.")
    if causal and mask is not None:
        refuse("attn_mask and is_causal", "one of the two", "Put the causal mask into attn_mask.")
    if not 0 <= p <= 1:
        refuse(f"dropout_p={p}", "from 0 to 1", "Correct dropout_p.")
    if gqa:
        heads = [t.shape[-3] if t.dim() > 2 else 0 for t in (q, k, v)]
        if not all(heads) or heads[0] % heads[1] or heads[0] % heads[2]:
            refuse(f"enable_gqa with shapes {shapes}", "query heads a multiple of the others'", "Correct the heads.")
    batches = [(*t.shape[:-3], q.shape[-3]) if gqa else t.shape[:-2] for t in (q, k, v)]
    try:
        torch.broadcast_shapes(*batches)
    except RuntimeError:
        refuse(f"shapes {shapes}", "leading dimensions that broadcast", "Reshape them, or give enable_gqa=True.")


@traceable
@takes_spec("formats")
def qattention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
    spec: QAttentionFormats | None = None,
) -> Tensor:  # fmt: skip
    """``torch.nn.functional.scaled_dot_product_attention`` with its products and softmax in the formats of ``spec``.

    Args:
        query, key, value: (..., L, E), (..., S, E), (..., S, Ev) of one dtype.
        attn_mask: bool (False hides) or of the query's dtype (added), two dimensions or more that broadcast to
            (..., L, S).
        dropout_p: probability of dropping a weight, from torch's generator; applied even in evaluation, as in PyTorch.
        is_causal: hide key j from query i where j > i; not with ``attn_mask``.
        scale: None is 1 / sqrt(E).
        enable_gqa: repeat the heads (dimension -3) of key and value to the query's.
        spec: ``QAttentionFormats``; None is PyTorch's own. (``formats``, its former keyword, is deprecated.)

    ``scores = qmatmul(query, key.mT)``, times scale, plus mask; ``qsoftmax``; dropout; ``qmatmul(weights, value)``. The
    scaling and the addition of the mask are steps in the query's dtype; ``spec.scale_quant`` rounds the first one too.
    A row that the mask hides entirely is 0, as in PyTorch, or NaN with ``QSoftmaxFormats(masked_rows="nan")``.
    Gradients are those of the parts. Differentiating twice raises where one of the parts does.

    Raises:
        DTypeError, DeviceError, ShapeError: for arguments that do not fit.

    Example:
        >>> q, k, v = torch.ones(1, 1, 4), torch.ones(1, 3, 4), torch.tensor([[[0.3], [0.6], [0.9]]])
        >>> gs.qattention(q, k, v, spec=gs.QAttentionFormats(pv="e4m3 : fp32"))  # mean of 0.3125, 0.625 and 0.875
        tensor([[[0.6230]]])
    """
    _check(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
    check_numbers("qattention", scale=1.0 if scale is None else scale)
    formats = QAttentionFormats.of(spec)
    length, source = query.shape[-2], key.shape[-2]
    if attn_mask is not None:
        _check_mask(attn_mask, query, key)
    if formats.is_native:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if enable_gqa:
        heads = query.shape[-3]
        key = key.repeat_interleave(heads // key.shape[-3], -3)
        value = value.repeat_interleave(heads // value.shape[-3], -3)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = qmatmul(query, key.mT, formats.qk)
    quant = formats.scale_quant
    scores = scores * factor if quant is None else qmul(scores, scores.new_full((), factor), quant, quant)
    if is_causal:
        attn_mask = torch.ones(length, source, dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None:
        hidden = scores.masked_fill(~attn_mask, float("-inf")) if attn_mask.dtype is torch.bool else scores + attn_mask
        scores = hidden
    weights = qsoftmax(scores, -1, formats.softmax_of(attn_mask is not None and not is_causal))
    if dropout_p > 0:
        weights = torch.nn.functional.dropout(weights, dropout_p)
    return qmatmul(weights, value, formats.pv)


def _check_mask_kind(mask: object, query: Tensor) -> None:
    if not isinstance(mask, Tensor) or mask.dtype not in (torch.bool, query.dtype):
        asked = f"qattention: attn_mask is {mask.dtype if isinstance(mask, Tensor) else type(mask).__name__}"
        raise DTypeError(message(asked, f"a tensor of torch.bool or {query.dtype}", "Convert attn_mask."))
    check_device("qattention", query, mask, names="query attn_mask")


def _check_mask(mask: Tensor, query: Tensor, key: Tensor) -> None:
    shape = (query.shape[-2], key.shape[-2])
    try:
        fits = mask.dim() > 1 and tuple(torch.broadcast_shapes(mask.shape[-2:], shape)) == shape
        torch.broadcast_shapes(mask.shape[:-2], query.shape[:-2])
    except RuntimeError:
        fits = False
    if not fits:
        asked = f"qattention: attn_mask of shape {tuple(mask.shape)}"
        raise ShapeError(message(asked, f"a shape that broadcasts to (..., {shape[0]}, {shape[1]})", "Reshape it."))
