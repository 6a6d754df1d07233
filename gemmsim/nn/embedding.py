"""``torch.nn.Embedding`` with quantisers."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from gemmsim.functional import qembedding
from gemmsim.ops.product.affine_formats import QuantLike

from .layer_base import WithQuants

__all__ = ["QEmbedding"]


class QEmbedding(WithQuants, nn.Embedding):
    """``torch.nn.Embedding`` that rounds its weight with ``fwd_quant`` and the summed gradient of its weight with
    ``bwd_quant``.

    ``state_dict`` holds the weight without rounding.

    Example:
        >>> layer = gs.nn.QEmbedding.from_float(torch.nn.Embedding.from_pretrained(torch.tensor([[0.3, 1.7]])), "e2m1")
        >>> layer(torch.tensor([0, 0]))
        tensor([[0.5000, 1.5000],
                [0.5000, 1.5000]])
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None,
        _freeze: bool = False, device: Any = None, dtype: Any = None, *, fwd_quant: QuantLike | None = None,
        bwd_quant: QuantLike | None = None,
    ) -> None:  # fmt: skip
        more = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight, _freeze, device, dtype)
        super().__init__(num_embeddings, embedding_dim, *more)
        self._put(fwd_quant, bwd_quant)

    def forward(self, input: Tensor) -> Tensor:
        settings = (self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)
        return qembedding(input, self.weight, *settings, **self._steps)
