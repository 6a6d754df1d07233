"""Linear layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gemmsim.ops import QAffineFormats, ShapeError, qlinear
from gemmsim.ops.errors import message
from gemmsim.ops.product.amax_history import NAME, Lengths, empty_history, lengths_of
from gemmsim.ops.product.linear import delayed_linear

from .affine_base import AffineModule

__all__ = ["QLazyLinear", "QLinear"]


class _Linear(AffineModule):
    weight: Any
    bias: Any

    def forward(self, input: Tensor) -> Tensor:
        """``gemmsim.qlinear(input, weight, bias, spec)``."""
        lengths: Lengths | None = self.__dict__["_delays"]
        if lengths is None:
            return qlinear(input, self.weight, self.bias, self.formats)
        history = self._buffers[NAME]
        assert history is not None
        return delayed_linear(input, self.weight, self.bias, self.formats, history, lengths, self.training)

    def _takes(self, formats: QAffineFormats) -> None:
        """The history that delayed scales need is a buffer, which only such layers have."""
        lengths = lengths_of(formats)
        old = self._buffers.get(NAME)
        if not any(lengths):
            self._buffers.pop(NAME, None)
        elif old is None or old.shape[1] != 2 + max(lengths):
            self.register_buffer(NAME, empty_history(lengths, self.weight.device))
        self.__dict__["_delays"] = lengths if any(lengths) else None

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """As ``torch.nn.Module`` does; a history goes to another device, and stays float32."""
        before = self._buffers.get(NAME)
        found = super()._apply(fn, recurse)
        after = self._buffers.get(NAME)
        if before is not None and after is not None and after.dtype != torch.float32:
            self._buffers[NAME] = before.to(after.device)
        return found

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """A checkpoint without a history leaves an empty one.

        Raises:
            ShapeError: for a history of other calls.
        """
        key, own = prefix + NAME, self._buffers.get(NAME)
        stored = state_dict.get(key)
        if own is not None and stored is None:
            state_dict = {**state_dict, key: empty_history(self.__dict__["_delays"], own.device)}
        elif own is not None and stored.shape != own.shape:
            calls = stored.shape[-1] - 2, own.shape[1] - 2
            asked = f"load_state_dict: {key} of {calls[0]} calls in a layer that delays by {calls[1]}"
            raise ShapeError(message(asked, "the same number", "Give the layer the recipe it was saved with."))
        super()._load_from_state_dict(state_dict, prefix, *rest)


class QLinear(_Linear, nn.Linear):
    """``torch.nn.Linear(in_features, out_features, bias, device, dtype)`` computed as ``spec`` says.

    ``spec`` is a string, ``GemmSpec``, accumulator, cast or ``QAffineFormats``; None computes PyTorch's own product.
    The values and errors are those of ``gemmsim.qlinear``. ``formats``, the former keyword of this argument, is
    deprecated.

    Example:
        >>> layer = gs.nn.QLinear(4096, 1, bias=False, spec=":e5m10")  # an fp16 accumulator
        >>> layer.weight.data.fill_(1).shape
        torch.Size([1, 4096])
        >>> layer(torch.ones(4096)).item()  # in fp16, 2048 + 1 is 2048
        2048.0
    """

    float_class = nn.Linear


class QLazyLinear(_Linear, nn.LazyLinear):
    """``torch.nn.LazyLinear(out_features, bias, device, dtype)`` with ``spec``; its first input makes it a
    ``QLinear``.

    Example:
        >>> layer = gs.nn.QLazyLinear(2, spec="e4m3 : e5m10")
        >>> layer(torch.ones(3, 8)).shape, type(layer).__name__, layer.in_features
        (torch.Size([3, 2]), 'QLinear', 8)
    """

    cls_to_become = QLinear
    float_class = nn.Linear
    from_float = QLinear.from_float  # type: ignore[assignment]  # it is what the class becomes
