"""Overrides of recurrent networks: a layer makes one product with its input, and one with its state at each step.

Gates are native, unless a rule names sigmoid, tanh or relu.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ..autocast import autocast, is_enabled
from .matmul import FLOATS, linear, nth
from .rowwise import gate
from .table import Site, overrides, packets

__all__: list[str] = []

_KINDS = ("rnn.ih", "rnn.hh", "rnn.hr", "sigmoid", "tanh", "relu")
#: (h,) or (h, c).
_States: TypeAlias = tuple[Tensor, ...]


class _Sites(NamedTuple):
    """The call sites of one call, one for each kind."""

    ih: Site
    hh: Site
    hr: Site
    sigmoid: Site
    tanh: Site
    relu: Site


class _Weights(NamedTuple):
    """The weights of one direction of one layer. ``number``: how many directions of layers come before it."""

    ih: Tensor
    hh: Tensor
    b_ih: Tensor | None
    b_hh: Tensor | None
    hr: Tensor | None
    number: int


_Step: TypeAlias = Callable[[_Sites, Tensor, _States, _Weights, int], _States]


def _place(w: _Weights, step: int, gate: int = 0) -> int:
    """Number of an operation among those of its kind in a call."""
    return (w.number << 40) + (step << 2) + gate


def _state_product(at: _Sites, h: Tensor, w: _Weights, step: int) -> Tensor:
    found: Tensor = linear(nth(at.hh, _place(w, step)), h, w.hh, w.b_hh)
    return found


def _lstm_step(at: _Sites, left: Tensor, states: _States, w: _Weights, step: int) -> _States:
    h, c = states
    i, f, g, o = (_state_product(at, h, w, step) + left).chunk(4, 1)
    i = gate(nth(at.sigmoid, _place(w, step)), i)
    f = gate(nth(at.sigmoid, _place(w, step, 1)), f)
    o = gate(nth(at.sigmoid, _place(w, step, 2)), o)
    c = f * c + i * gate(nth(at.tanh, _place(w, step)), g)
    h = o * gate(nth(at.tanh, _place(w, step, 1)), c)
    if w.hr is not None:
        h = linear(nth(at.hr, _place(w, step)), h, w.hr)
    return h, c


def _gru_step(at: _Sites, left: Tensor, states: _States, w: _Weights, step: int) -> _States:
    (h,) = states
    hidden, width = _state_product(at, h, w, step), h.shape[1]
    # PyTorch's r and z are slices of rows. The end of a row that does not fill a SIMD register uses another sigmoid,
    # with other last bits. In a contiguous tensor all rows would be one.
    r, z = (hidden[:, : 2 * width] + left[:, : 2 * width]).chunk(2, 1)
    n, hidden_n = left[:, 2 * width :], hidden[:, 2 * width :]
    r = gate(nth(at.sigmoid, _place(w, step)), r)
    z = gate(nth(at.sigmoid, _place(w, step, 1)), z)
    n = gate(nth(at.tanh, _place(w, step)), n + hidden_n * r)
    return ((h - n) * z + n,)


def _tanh_step(at: _Sites, left: Tensor, states: _States, w: _Weights, step: int) -> _States:
    return (gate(nth(at.tanh, _place(w, step)), _state_product(at, states[0], w, step) + left),)


def _relu_step(at: _Sites, left: Tensor, states: _States, w: _Weights, step: int) -> _States:
    return (gate(nth(at.relu, _place(w, step)), _state_product(at, states[0], w, step) + left),)


def _direction(
    at: _Sites, step: _Step, x: Tensor, sizes: list[int], states: _States, w: _Weights, back: bool
) -> tuple[Tensor, _States]:
    """One direction of one layer: its outputs, in the layout of the rows of ``x``, and its last states.

    ``x``: (T, B, I), or rows of which the first ``sizes[0]`` are the first step of as many sequences, longest first.
    """
    product = linear(nth(at.ih, _place(w, 0)), x, w.ih, w.b_ih)
    lefts = list(product.unbind(0) if x.dim() == 3 else product.split(sizes))
    outputs: list[Any] = [None] * len(sizes)
    given = states
    batch = sizes[-1] if back else sizes[0]
    states = tuple(s[:batch] for s in given) if back and batch < sizes[0] else given
    ended: list[_States] = []  # of sequences that have ended, the shortest first
    for t in reversed(range(len(sizes))) if back else range(len(sizes)):
        n = sizes[t]
        if n < batch:
            ended.append(tuple(s[n:batch] for s in states))
            states = tuple(s[:n] for s in states)
        elif n > batch:
            begun = [g[batch:n] for g in given]
            states = tuple(torch.cat((s, b)) for s, b in zip(states, begun, strict=True))
        batch = n
        states = step(at, lefts[t], states, w, t)
        outputs[t] = states[0]
    if ended:
        parts = [states, *reversed(ended)]
        states = tuple(torch.cat(column) for column in zip(*parts, strict=True))
    return (torch.stack(outputs) if x.dim() == 3 else torch.cat(outputs)), states


def _layers(
    at: _Sites, step: _Step, x: Tensor, sizes: list[int], hx: _States, weights: list[_Weights],
    directions: int, dropout: float,
) -> tuple[Tensor, _States]:  # fmt: skip
    """All layers: (outputs, states stacked as PyTorch stacks them)."""
    last: list[_States] = []
    first = list(zip(*(s.unbind(0) for s in hx), strict=True))
    count = len(weights) // directions
    for layer in range(count):
        outputs = []
        for direction in range(directions):
            n = layer * directions + direction
            out, states = _direction(at, step, x, sizes, first[n], weights[n], direction == 1)
            outputs.append(out)
            last.append(states)
        x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if dropout != 0 and layer + 1 < count:
            x = torch.dropout(x, dropout, True)
    return x, tuple(torch.stack(column) for column in zip(*last, strict=True))


def _weights(params: Sequence[Tensor], has_biases: bool, projected: bool, count: int) -> list[_Weights] | None:
    """The parameters of each direction of each layer; None if there are too few or too many."""
    width = (4 if has_biases else 2) + projected
    if len(params) != width * count:
        return None
    found = []
    for n in range(count):
        ih, hh, *rest = params[n * width : (n + 1) * width]
        b_ih, b_hh = rest[:2] if has_biases else (None, None)
        found.append(_Weights(ih, hh, b_ih, b_hh, rest[-1] if projected else None, n))
    return found


_COMMON = ("hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional")


def _arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], Tensor | None] | None:
    """The arguments of a call, and the sizes of steps if it takes a packed sequence; None for other arguments.

    The arguments are (input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first).
    """
    given = list(args)
    sized = {2: "hx" in kwargs, 3: "params" in kwargs}.get(
        len(given), len(given) > 3 and not isinstance(given[3], bool)
    )
    packed = sized or "batch_sizes" in kwargs
    names = ("data", "batch_sizes", *_COMMON) if packed else ("input", *_COMMON, "batch_first")
    for name in names[len(given) :]:
        if name not in kwargs:
            return None
        given.append(kwargs[name])
    if len(given) != len(names):
        return None
    sizes = given.pop(1) if packed else None
    return (given, None) if sizes is None else ([*given, False], sizes)


def _network(step: _Step, at: _Sites, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """(output, states...), as PyTorch's functions return them; NotImplemented for calls that PyTorch has to check."""
    read = _arguments(args, kwargs)
    if read is None:
        return NotImplemented
    (x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first), batch_sizes = read
    states = tuple(hx) if isinstance(hx, (list, tuple)) else (hx,)
    lstm, directions = step is _lstm_step, 2 if bidirectional else 1
    if len(states) != (2 if lstm else 1) or not all(isinstance(s, Tensor) and s.dim() == 3 for s in states):
        return NotImplemented
    projected = lstm and states[0].shape[2] != states[1].shape[2]
    weights = _weights(params, has_biases, projected, num_layers * directions)
    if weights is None or not _fits(x, states, weights, batch_sizes):
        return NotImplemented
    if x.device.type != "cpu" or (lstm and not projected):
        # One kernel computes these, and autocast casts its operands once. Otherwise it casts for each product.
        x, states = autocast(x)[0], autocast(*states)
    if batch_sizes is not None:
        sizes = batch_sizes.tolist()
    else:
        x = x.transpose(0, 1) if batch_first else x
        sizes = [x.shape[1]] * x.shape[0]
    if not sizes:
        return NotImplemented
    out, last = _layers(at, step, x, sizes, states, weights, directions, dropout if train else 0.0)
    if batch_sizes is None and batch_first:
        out = out.transpose(0, 1)
    return (out, *last)


def _fits(x: Tensor, states: _States, weights: list[_Weights], batch_sizes: Tensor | None) -> bool:
    """Whether PyTorch accepts these tensors; for others, its own error says what is wrong."""
    rank = 3 if batch_sizes is None else 2
    tensors = [t for w in weights for t in w[:5] if t is not None]
    if x.dim() != rank or x.dtype not in FLOATS or any(t.device != x.device for t in (*states, *tensors)):
        return False
    mixed = is_enabled(x.device.type)
    if not mixed and any(t.dtype != x.dtype for t in (*states, *tensors)):
        return False
    return len(states[0]) == len(weights) and x.shape[-1] == weights[0].ih.shape[-1]


def _cell(step: _Step, at: _Sites, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """(h, c) of an LSTM cell; the state of other cells."""
    given = list(args)
    for name in ("input", "hx", "w_ih", "w_hh", "b_ih", "b_hh")[len(given) :]:
        given.append(kwargs.get(name))
    x, hx, w_ih, w_hh, b_ih, b_hh = given
    states = tuple(hx) if isinstance(hx, (list, tuple)) else (hx,)
    tensors = [t for t in (x, *states, w_ih, w_hh) if isinstance(t, Tensor)]
    lstm = step is _lstm_step
    if len(tensors) != (5 if lstm else 4) or any(t.dim() != 2 or t.dtype not in FLOATS for t in tensors):
        return NotImplemented
    mixed = is_enabled(x.device.type)
    if not mixed and any(t.dtype != x.dtype for t in tensors) or x.shape[-1] != w_ih.shape[-1]:
        return NotImplemented
    if x.shape[0] != states[0].shape[0] or states[0].shape[1] != w_hh.shape[1]:
        return NotImplemented
    if x.device.type != "cpu":
        x, states = autocast(x)[0], autocast(*states)
    left = linear(at.ih, x, w_ih, b_ih)
    found = step(at, left, states, _Weights(w_ih, w_hh, b_ih, b_hh, None, 0), 0)
    return found if lstm else found[0]


def _register(name: str, step: _Step) -> None:
    cell = f"{name}_cell"

    @overrides(_KINDS, getattr(torch, name), *packets(name, "input", "data"))
    def network(*args: Any, **kwargs: Any) -> Any:
        return _network(step, _Sites(*args[: len(_KINDS)]), args[len(_KINDS) :], kwargs)

    @overrides(_KINDS, getattr(torch, cell), *packets(cell, "default"))
    def one(*args: Any, **kwargs: Any) -> Any:
        return _cell(step, _Sites(*args[: len(_KINDS)]), args[len(_KINDS) :], kwargs)


_register("lstm", _lstm_step)
_register("gru", _gru_step)
_register("rnn_tanh", _tanh_step)
_register("rnn_relu", _relu_step)
