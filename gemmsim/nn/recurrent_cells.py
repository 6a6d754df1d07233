"""LSTM and GRU cells: ``torch.nn``'s, with products in any arithmetic and every step of the gates rounded."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from gemmsim._keywords import takes_spec
from gemmsim.functional import qadd, qmul, qsigmoid, qtanh
from gemmsim.ops import qlinear
from gemmsim.ops.product.affine_formats import QuantLike

from .affine_base import AffineModule, FormatsLike
from .layer_base import HasQuants

__all__ = ["QGRUCell", "QLSTMCell", "RecurrentModule", "gru_step", "lstm_step"]

Steps = dict[str, Any]


def lstm_step(gates: Tensor, c: Tensor, steps: Steps) -> tuple[Tensor, Tensor]:
    """(h, c) after one step: ``c' = add(mul(f c), mul(i g))``, ``h' = mul(o, tanh(c'))`` with the gates i, f, g, o."""
    i, f, g, o = gates.chunk(4, -1)
    i, f, o = (qsigmoid(gate, **steps) for gate in (i, f, o))
    c = qadd(qmul(f, c, **steps), qmul(i, qtanh(g, **steps), **steps), **steps)
    return qmul(o, qtanh(c, **steps), **steps), c


def gru_step(left: Tensor, right: Tensor, h: Tensor, steps: Steps) -> Tensor:
    """h after one step, of the products with the input and with h.

    ``r, z = sigmoid(add(left + right))``, ``n = tanh(add(left + mul(r, right)))``,
    ``h' = add(mul(sub(1 - z), n), mul(z, h))``.
    """
    (rl, zl, nl), (rr, zr, nr) = left.chunk(3, -1), right.chunk(3, -1)
    r, z = (qsigmoid(qadd(a, b, **steps), **steps) for a, b in ((rl, rr), (zl, zr)))
    n = qtanh(qadd(nl, qmul(r, nr, **steps), **steps), **steps)
    rest = qadd(torch.ones((), dtype=z.dtype, device=z.device), -z, **steps)
    return qadd(qmul(rest, n, **steps), qmul(z, h, **steps), **steps)


_Recurrent = TypeVar("_Recurrent", bound="RecurrentModule")


class RecurrentModule(HasQuants, AffineModule):
    """A recurrent module of ``torch.nn``: ``spec`` of its products (as ``QLinear``), ``fwd_quant`` and ``bwd_quant``
    of every other step and of its gradient (as ``gemmsim.qadd``)."""

    @takes_spec("formats")
    def __init__(
        self, *args: Any, spec: FormatsLike | None = None, fwd_quant: QuantLike | None = None,
        bwd_quant: QuantLike | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(*args, spec=spec, **kwargs)
        self._put(fwd_quant, bwd_quant)

    @classmethod
    @takes_spec("formats")
    def from_float(
        cls: type[_Recurrent], module: nn.Module, spec: FormatsLike | None = None,
        fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None,
    ) -> _Recurrent:  # fmt: skip
        """The module that ``module`` is, with ``spec``: the same parameters, hooks and training flag.

        Raises:
            TypeError: for a module of another class than the one of torch.nn that this one extends.
        """
        new = super().from_float(module, spec)
        for name, value in new.__dict__.items():
            if isinstance(value, list):
                new.__dict__[name] = list(value)
        new._put(fwd_quant, bwd_quant)
        return new


def _check(owner: str, input: Tensor, states: tuple[Tensor, ...], sizes: tuple[int, int]) -> None:
    """torch's errors of cells: ranks, widths, equal batches."""
    if input.dim() not in (1, 2):
        raise ValueError(f"{owner}: Expected input to be 1D or 2D, got {input.dim()}D instead")
    if input.shape[-1] != sizes[0]:
        raise RuntimeError(f"input has inconsistent input_size: got {input.shape[-1]} expected {sizes[0]}")
    for i, state in enumerate(states):
        if state.dim() not in (1, 2):
            raise ValueError(f"{owner}: Expected hx[{i}] to be 1D or 2D, got {state.dim()}D instead")
        if state.dim() != input.dim() or state.shape[:-1] != input.shape[:-1]:
            asked = f"Input batch size {tuple(input.shape[:-1])} doesn't match hidden{i} batch size"
            raise RuntimeError(f"{asked} {tuple(state.shape[:-1])}")
        if state.shape[-1] != sizes[1]:
            raise RuntimeError(f"hidden{i} has inconsistent hidden_size: got {state.shape[-1]}, expected {sizes[1]}")


class QLSTMCell(RecurrentModule, nn.LSTMCell):
    """``torch.nn.LSTMCell(input_size, hidden_size, bias, device, dtype)`` with rounded steps.

    Both products are ``gemmsim.qlinear(..., spec)``, including biases. Then ``i, f, o = sigmoid(.)`` and ``g =
    tanh(.)`` of ``add(x product + h product)``, ``c' = add(mul(f c), mul(i g))`` and ``h' = mul(o, tanh(c'))``. Each
    step is the exact value, rounded once by ``fwd_quant``; ``bwd_quant`` rounds each step of the gradient. Without
    formats and quantisers the cell computes what PyTorch's cell computes, except for the last bits.

    Example:
        >>> cell = gs.nn.QLSTMCell(16, 8, spec="e4m3 : e5m10", fwd_quant="e4m3")
        >>> h, c = cell(torch.ones(3, 16))
        >>> torch.equal(h, gs.quantize(h.detach(), "e4m3")), tuple(c.shape)
        (True, (3, 8))
    """

    float_class = nn.LSTMCell

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """(h, c), each (hidden_size) or (batch, hidden_size); errors as torch's."""
        _check("LSTMCell", input, hx or (), (self.input_size, self.hidden_size))
        if hx is None:
            zeros = input.new_zeros(*input.shape[:-1], self.hidden_size)
            hx = (zeros, zeros)
        left = qlinear(input, self.weight_ih, self.bias_ih, self.formats)
        right = qlinear(hx[0], self.weight_hh, self.bias_hh, self.formats)
        return lstm_step(qadd(left, right, **self._steps), hx[1], self._steps)


class QGRUCell(RecurrentModule, nn.GRUCell):
    """``torch.nn.GRUCell(input_size, hidden_size, bias, device, dtype)`` with rounded steps.

    Both products are ``gemmsim.qlinear(..., spec)``, including biases. Then ``r, z = sigmoid(add(. + .))``, ``n =
    tanh(add(. + mul(r, .)))``, ``h' = add(mul(sub(1 - z), n), mul(z, h))``. The roundings are those of ``QLSTMCell``.

    Example:
        >>> cell = gs.nn.QGRUCell.from_float(torch.nn.GRUCell(16, 8), "e4m3 : e5m10", "e5m10", "e5m10")
        >>> cell(torch.ones(3, 16)).shape
        torch.Size([3, 8])
    """

    float_class = nn.GRUCell

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """h, (hidden_size) or (batch, hidden_size); errors as torch's."""
        _check("GRUCell", input, () if hx is None else (hx,), (self.input_size, self.hidden_size))
        h = input.new_zeros(*input.shape[:-1], self.hidden_size) if hx is None else hx
        left = qlinear(input, self.weight_ih, self.bias_ih, self.formats)
        right = qlinear(h, self.weight_hh, self.bias_hh, self.formats)
        return gru_step(left, right, h, self._steps)
