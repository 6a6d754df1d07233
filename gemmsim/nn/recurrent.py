"""LSTM and GRU over sequences: ``torch.nn``'s, with products in any arithmetic and every step of the gates rounded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from gemmsim.functional import qadd
from gemmsim.ops import qlinear

from .recurrent_cells import RecurrentModule, gru_step, lstm_step

__all__ = ["QGRU", "QLSTM"]

States = tuple[Tensor, ...]


class _Recurrent(RecurrentModule):
    """Layers, directions, batches of unequal lengths. A state is a tuple: (h,) or (h, c).

    The input's product of a layer is one product over the whole sequence, so its weight's gradient is one sum over
    (step, batch). That of the hidden state is one product a step; PyTorch adds the steps' gradients.
    """

    _owner: str

    def _step(self: Any, left: Tensor, states: States, weights: dict[str, Tensor]) -> States:
        raise TypeError(f"{type(self).__name__} is not a recurrent layer; use QLSTM or QGRU")

    def _widths(self: Any) -> tuple[int, ...]:
        return (self.hidden_size,)

    def forward(self: Any, input: Any, hx: Any = None) -> Any:
        """(output, hidden) as torch's; a ``PackedSequence``, too. Errors are those of torch."""
        packed = input if isinstance(input, PackedSequence) else None
        x = packed.data if packed is not None else input
        batch_sizes: Any = packed.batch_sizes if packed is not None else None
        if packed is None and x.dim() not in (2, 3):
            raise ValueError(f"{self._owner}: Expected input to be 2D or 3D, got {x.dim()}D instead")
        alone = packed is None and x.dim() == 2
        if alone:
            x = x.unsqueeze(0 if self.batch_first else 1)
        states = self._states(x, hx, packed, alone)
        self.check_forward_args(x, states if len(states) > 1 else states[0], batch_sizes)
        if packed is not None:
            sizes, flat = batch_sizes.tolist(), x
        else:
            x = x.transpose(0, 1) if self.batch_first else x
            sizes, flat = [x.shape[1]] * x.shape[0], x.flatten(0, 1)
        flat, states = self._layers(flat, sizes, states)
        if packed is not None:
            found = PackedSequence(flat, batch_sizes, packed.sorted_indices, packed.unsorted_indices)
            states = self._permuted(states, packed.unsorted_indices)
            return found, states if len(states) > 1 else states[0]
        out = flat.unflatten(0, x.shape[:2])
        out = out.transpose(0, 1) if self.batch_first else out
        if alone:
            out, states = out.squeeze(0 if self.batch_first else 1), tuple(s.squeeze(1) for s in states)
        return out, states if len(states) > 1 else states[0]

    def _states(self: Any, x: Tensor, hx: Any, packed: PackedSequence | None, alone: bool) -> States:
        directions = 2 if self.bidirectional else 1
        if hx is None:
            if packed is not None:
                batch = int(packed.batch_sizes[0])
            else:
                batch = x.shape[0 if self.batch_first else 1]
            return tuple(x.new_zeros(self.num_layers * directions, batch, w) for w in self._widths())
        given = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
        rank = 2 if alone else 3
        if any(s.dim() != rank for s in given):
            ranks = ", ".join(f"{s.dim()}-D" for s in given)
            raise RuntimeError(f"For {'un' if alone else ''}batched input, hx should be {rank}-D but got ({ranks})")
        if alone:
            given = tuple(s.unsqueeze(1) for s in given)
        return given if packed is None else self._permuted(given, packed.sorted_indices)

    @staticmethod
    def _permuted(states: States, indices: Tensor | None) -> States:
        return states if indices is None else tuple(s.index_select(1, indices) for s in states)

    def _layers(self: Any, x: Tensor, sizes: list[int], states: States) -> tuple[Tensor, States]:
        directions = 2 if self.bidirectional else 1
        last: list[States] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(directions):
                number = layer * directions + direction
                weights = self._weights(layer, direction)
                first = tuple(s[number] for s in states)
                out, end = self._run(x, sizes, first, weights, direction == 1)
                outputs.append(out)
                last.append(end)
            x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
            if self.dropout and self.training and layer + 1 < self.num_layers:
                x = nn.functional.dropout(x, self.dropout, True)
        return x, tuple(torch.stack(column) for column in zip(*last, strict=True))

    def _weights(self: Any, layer: int, direction: int) -> dict[str, Tensor]:
        suffix = f"_l{layer}" + ("_reverse" if direction else "")
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        return {kind: getattr(self, kind + suffix) for kind in kinds if hasattr(self, kind + suffix)}

    def _run(
        self: Any, x: Tensor, sizes: list[int], states: States, weights: dict[str, Tensor], reverse: bool
    ) -> tuple[Tensor, States]:
        """One direction of one layer: rows of ``x`` are steps of ``sizes[t]`` sequences, longest first."""
        left = qlinear(x, weights["weight_ih"], weights.get("bias_ih"), self.formats)
        steps = list(left.split(sizes))
        outputs: list[Tensor | None] = [None] * len(sizes)
        for t in reversed(range(len(sizes))) if reverse else range(len(sizes)):
            n, batch = sizes[t], states[0].shape[0]
            moved = self._step(steps[t], tuple(s[:n] for s in states), weights)
            outputs[t] = moved[0]
            # sequences that ended (or have not begun, backwards) keep their states
            states = moved if n == batch else tuple(torch.cat((m, s[n:])) for m, s in zip(moved, states, strict=True))
        found = [o for o in outputs if o is not None]
        return torch.cat(found) if found else left.new_zeros(0, states[0].shape[-1]), states


class QLSTM(_Recurrent, nn.LSTM):
    """``torch.nn.LSTM`` with its arguments and rounded steps, which are those of ``QLSTMCell``; it takes
    ``PackedSequence``.

    With ``proj_size``, ``h' = qlinear(mul(o, tanh(c')), weight_hr)``. Dropout is PyTorch's own.

    Example:
        >>> layer = gs.nn.QLSTM(16, 8, num_layers=2, spec="e4m3 : e5m10", fwd_quant="e5m10", bwd_quant="e5m10")
        >>> output, (h, c) = layer(torch.ones(5, 2, 16))
        >>> tuple(output.shape), tuple(h.shape), tuple(c.shape)
        ((5, 2, 8), (2, 2, 8), (2, 2, 8))
    """

    float_class = nn.LSTM
    _owner = "LSTM"

    def _widths(self) -> tuple[int, ...]:
        return (self.proj_size or self.hidden_size, self.hidden_size)

    def _step(self: Any, left: Tensor, states: States, weights: dict[str, Tensor]) -> States:
        h, c = states
        right = qlinear(h, weights["weight_hh"], weights.get("bias_hh"), self.formats)
        h, c = lstm_step(qadd(left, right, **self._steps), c, self._steps)
        if "weight_hr" in weights:
            h = qlinear(h, weights["weight_hr"], None, self.formats)
        return h, c


class QGRU(_Recurrent, nn.GRU):
    """``torch.nn.GRU`` with its arguments and rounded steps, which are those of ``QGRUCell``; it takes
    ``PackedSequence``, too.

    Dropout is PyTorch's own.

    Example:
        >>> layer = gs.nn.QGRU(16, 8, bidirectional=True, spec="e4m3 : e5m10", fwd_quant="e5m10", bwd_quant="e5m10")
        >>> [tuple(t.shape) for t in layer(torch.ones(5, 2, 16))]
        [(5, 2, 16), (2, 2, 8)]
    """

    float_class = nn.GRU
    _owner = "GRU"

    def _step(self: Any, left: Tensor, states: States, weights: dict[str, Tensor]) -> States:
        (h,) = states
        right = qlinear(h, weights["weight_hh"], weights.get("bias_hh"), self.formats)
        return (gru_step(left, right, h, self._steps),)
