"""microxcaling's ``mx.rnn``: LSTM of quantised products, activations and element-wise steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .activations import sigmoid, tanh
from .gemms import linear
from .module import Specified
from .simd_ops import simd_add, simd_mul

__all__ = ["LSTM"]

_State = tuple[Tensor, Tensor]


class LSTM(Specified, torch.nn.LSTM):
    """``torch.nn.LSTM`` of (L, N, features) tensors, computed with this package's functions.

    It calls ``linear``, ``sigmoid``, ``tanh``, ``simd_add`` and ``simd_mul``. One ``linear`` computes the input's
    products of all times; each time step adds the product of the hidden state.

    Raises:
        AssertionError: for ``batch_first`` and ``proj_size``.
        ValueError: in ``forward``, for packed sequences.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> output, (hidden, cell) = mx.LSTM(4, 2, mx_specs={"bfloat": 16})(torch.ones(3, 1, 4))
        >>> output.shape, hidden.shape
        (torch.Size([3, 1, 2]), torch.Size([1, 1, 2]))
    """

    def __init__(self, *args: Any, mx_specs: Any = None, name: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.batch_first or self.proj_size:
            raise AssertionError("LSTM: batch_first or proj_size; allowed: neither. Transpose the input.")
        self._specify(mx_specs, name)

    def _weights(self, layer: int, backwards: bool) -> list[Any]:
        end = f"l{layer}_reverse" if backwards else f"l{layer}"
        names = ("weight_ih_", "bias_ih_", "weight_hh_", "bias_hh_")
        return [getattr(self, name + end, None) for name in names]

    def _run(self, x: Tensor, state: _State, layer: int, backwards: bool) -> tuple[Tensor, _State]:
        """Outputs of all times and the last state of one direction of a layer."""
        specs = self.mx_specs
        weight, bias, recurrent, recurrent_bias = self._weights(layer, backwards)
        projected = linear(x, weight, bias, specs)
        hidden, cell = (part[None] for part in state)
        outputs: list[Tensor] = []
        times = range(x.shape[0])
        for time in reversed(times) if backwards else times:
            gates = simd_add(projected[time], linear(hidden, recurrent, recurrent_bias, specs), specs)
            enter, forget, candidate, leave = gates.chunk(4, dim=-1)
            kept = simd_mul(sigmoid(forget, specs), cell, specs)
            new = simd_mul(sigmoid(enter, specs), tanh(candidate, specs), specs)
            cell = simd_add(kept, new, specs)
            hidden = simd_mul(sigmoid(leave, specs), tanh(cell, specs), specs)
            outputs.append(hidden)
        return torch.cat(outputs[::-1] if backwards else outputs), (hidden[0], cell[0])

    def forward(self, input: Any, hx: _State | None = None) -> tuple[Any, _State]:
        """Outputs (L, N, D * H) and the last states, each (D * layers, N, H); as PyTorch's.

        Raises:
            ValueError: for a PackedSequence, and for inputs of other than three dimensions.
            RuntimeError: for sizes that do not fit each other.
        """
        if isinstance(input, PackedSequence):
            raise ValueError("LSTM of a PackedSequence; allowed: a tensor (L, N, features). Pad it.")
        if self.mx_none:
            return super().forward(input, hx)
        if input.dim() != 3:
            raise ValueError(f"LSTM of a tensor of {input.dim()} dimensions; allowed: (L, N, features).")
        directions = 2 if self.bidirectional else 1
        if hx is None:
            zeros = input.new_zeros(self.num_layers * directions, input.shape[1], self.hidden_size)
            hx = (zeros, zeros)
        self.check_forward_args(input, hx, None)
        hiddens, cells = [], []
        x = input
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(directions):
                at = layer * directions + direction
                out, (hidden, cell) = self._run(x, (hx[0][at], hx[1][at]), layer, direction == 1)
                outputs.append(out)
                hiddens.append(hidden)
                cells.append(cell)
            x = torch.cat(outputs, dim=-1)
            if self.dropout and layer + 1 < self.num_layers:
                x = torch.nn.functional.dropout(x, self.dropout, self.training)
        return x, (torch.stack(hiddens), torch.stack(cells))
