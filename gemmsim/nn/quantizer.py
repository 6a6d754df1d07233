"""Rounding as a layer."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from gemmsim.ops import quantizer
from gemmsim.ops.cast_arguments import RoundingLike, TargetLike
from gemmsim.ops.straight_through import GradHook

from .emulated_marker import Emulated

__all__ = ["Quantizer"]


class Quantizer(Emulated, nn.Module):
    """Round the input in the forward pass, and the gradient in the backward pass (straight-through estimator).

    Args:
        forward_number, backward_number: a cast, format or name ("e4m3", "bfp(8,16)"); None rounds nothing.
        forward_rounding, backward_rounding: replace the rounding of the format. By default a format keeps its own,
            which is "nearest" unless it names another.
        clamping_grad_zero: set the gradient to zero where the forward pass clamped; for fixed point only.
        backward_hooks: functions of the gradient, applied in this order before it is masked and rounded.

    The module has no parameters and adds nothing to ``state_dict``. NaN, infinities, signed zeros, overflow and
    random bits are those of ``gemmsim.quantizer``, which ``forward`` calls.

    Raises:
        FormatError: for unknown names, and for ``clamping_grad_zero`` with a forward format that is not fixed point.

    Example:
        >>> x = torch.tensor([0.3, 1.7], requires_grad=True)
        >>> (gs.nn.Quantizer("e2m1", "e5m2")(x) * torch.tensor([1.1, 2.3])).sum().backward()
        >>> gs.nn.Quantizer("e2m1")(x).tolist(), x.grad.tolist()
        ([0.5, 1.5], [1.0, 2.5])
    """

    def __init__(
        self,
        forward_number: TargetLike | None = None,
        backward_number: TargetLike | None = None,
        forward_rounding: RoundingLike | None = None,
        backward_rounding: RoundingLike | None = None,
        clamping_grad_zero: bool = False,
        backward_hooks: Sequence[GradHook] = (),
    ) -> None:
        super().__init__()
        self.function = quantizer(
            forward_number, backward_number, forward_rounding, backward_rounding, clamping_grad_zero, backward_hooks
        )

    def forward(self, x: Tensor) -> Tensor:
        """``x`` rounded, in its dtype."""
        return self.function(x)

    def extra_repr(self) -> str:
        """The formats, and what else is not the default."""
        f = self.function
        parts = [f"forward={f.forward}", f"backward={f.backward}"]
        parts += ["clamping_grad_zero=True"] if f.clamping_grad_zero else []
        parts += [f"{len(f.backward_hooks)} backward hooks"] if f.backward_hooks else []
        return ", ".join(parts)
