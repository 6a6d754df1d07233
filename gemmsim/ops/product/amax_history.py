"""The histories of largest magnitudes that delayed scales are made of ("@tensor/delayed(1024)").

A history is a float32 tensor (3, 2 + calls): a row for the first operand, the second operand and the gradient of a
product; in each the amax of the present call, -1 for none, the amax of which its scale is made, 0 for none yet (the
scale is 1), and those of the calls before, newest first. A training call moves the first entry to the others. A row
whose tensor was not seen, as the gradient's in an evaluation, stays as it is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim.arithmetic import SpecError, UnsupportedSpec
from gemmsim.backends.scaled_cast import largest_magnitude
from gemmsim.formats import ScaledCast

from ..errors import message
from ..registration import define
from .affine_formats import QAffineFormats

__all__ = ["NAME", "Lengths", "empty_history", "has_delayed", "lengths_of", "note_gradient", "scales_of_call"]

#: The buffer of a layer that is its history.
NAME = "amax_history"
#: Calls whose amax counts, for the first operand, the second one and the gradient; 0: its scale is not delayed.
Lengths = tuple[int, int, int]
_NAMES = ("the first operand", "the second operand", "the gradient")


def _in_backward() -> bool:
    """Whether PyTorch runs a backward pass in this thread: a forward pass in it repeats one from before."""
    return torch._C._current_graph_task_id() != -1


def _next(history: Tensor, lengths: list[int]) -> Tensor:
    if not _in_backward():
        for row, length in enumerate(lengths):
            if length:
                _move(history[row], length)
    return history[:, 1].clone()


def _move(row: Tensor, length: int) -> None:
    """Without waiting for a GPU: the present amax becomes the newest of the history, if there is one."""
    seen = row[0] >= 0
    moved = torch.where(seen, torch.cat([row[:1], row[2:-1]]), row[2:])
    row[2:] = moved
    row[1] = torch.where(seen, moved[:length].amax(), row[1])
    row[0] = -1.0


def _note(history: Tensor, x: Tensor, row: int) -> None:
    torch.maximum(history[row, 0], largest_magnitude(x), out=history[row, 0])


_next_op = define(
    "next_amax(Tensor(a!) history, int[] lengths) -> Tensor",
    _next,
    lambda history, lengths: history.new_empty(3),
    tags=(torch.Tag.needs_exact_strides,),
)
_note_op = define(
    "note_amax(Tensor(a!) history, Tensor x, int row) -> ()", _note, tags=(torch.Tag.needs_exact_strides,)
)


def lengths_of(formats: QAffineFormats) -> Lengths:
    """How many calls count for each tensor of a layer with these formats.

    Raises:
        SpecError: where two products delay the scale of one tensor by different numbers of calls.
    """
    found = [0, 0, 0]
    for role, rows in (("fprop", (0, 1)), ("dgrad", (2, 1)), ("wgrad", (2, 0))):
        spec = getattr(formats, role)
        for row, fmt in zip(rows, (None, None) if spec is None else (spec.a, spec.b), strict=True):
            calls = fmt.delayed if isinstance(fmt, ScaledCast) else 0
            if calls and found[row] not in (0, calls):
                asked = f"{_NAMES[row]} delayed by {found[row]} and, in {role}, by {calls} calls"
                raise SpecError(message(asked, "one number of calls for a tensor", "Give all its products the same."))
            found[row] = calls or found[row]
    return found[0], found[1], found[2]


def has_delayed(formats: QAffineFormats) -> bool:
    """Whether a scale of any product is delayed."""
    return lengths_of(formats) != (0, 0, 0)


def empty_history(lengths: Lengths, device: torch.device | str | None = None) -> Tensor:
    """A history before the first call."""
    history = torch.zeros(3, 2 + max(lengths), dtype=torch.float32, device=device)
    history[:, 0] = -1.0
    return history


def scales_of_call(history: Tensor, lengths: Lengths, x: Tensor, weight: Tensor, training: bool) -> Tensor:
    """The amax of which this call's scales are made, (3,), for ``matmul.affine``; in training it is noted what x and
    weight have, and earlier notes move on. A call that a backward pass repeats has the scales of the first one.

    Raises:
        UnsupportedSpec: for operands that several processes share.
    """
    if type(x).__name__ == "DTensor" or type(weight).__name__ == "DTensor":
        asked, allowed = "delayed scales of a DTensor", "tensors of one process each, whose amax ranks may reduce"
        raise UnsupportedSpec(message(asked, allowed, "Take current scales, hopper_fp8_current."))
    if not training:
        return history[:, 1].clone()
    amax: Tensor = _next_op(history, list(lengths))
    for row, (t, length) in enumerate(zip((x, weight), lengths, strict=False)):
        if length:
            _note_op(history, t.detach(), row)
    return amax


def note_gradient(history: Tensor, grad: Tensor) -> None:
    """What the gradient of this call has."""
    _note_op(history, grad, 2)
