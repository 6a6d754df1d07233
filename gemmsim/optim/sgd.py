"""Stochastic gradient descent with rounded states and weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .base import Closure, StatesMixin, evaluate, with_gradients
from .steps import compensated_add, scalar, work_dtype

__all__ = ["QSGD"]


class QSGD(StatesMixin, torch.optim.SGD):
    """``torch.optim.SGD`` that rounds momentum and weights at each update.

    Args:
        params, lr, momentum, dampening, weight_decay, nesterov, maximize: those of ``torch.optim.SGD``.
        momentum_quant: rounding of the momentum: ``buf = momentum_quant(momentum * buf + (1 - dampening) * d)``.
        acc_quant: rounding of the weights: ``w = acc_quant(w - lr * d)``.
        compensated: keep the rounding error of each update of a weight, rounded by acc_quant too, and add it to the
            next update.
        seed: seed of the random bits of stochastic roundings; None takes them from torch's generator. With a seed
            they are a function of the seed, the number of steps and the position of the parameter. Processes with
            equal gradients, as in DDP, therefore keep equal weights.

    A quantiser is a cast, a format, a string ("bf16/sr16": stochastic), a pair (format, rounding), or a function of
    three tensors that returns x + y * z rounded. With a format the update ``x + y * z`` is rounded once from its
    exact value (see ``multiply_add``). ``momentum * buf`` and ``d = grad + weight_decay * w`` are PyTorch's, in
    float32 (in float64 for float64 weights). The first momentum is ``momentum_quant(0 + d * 1)``. None is PyTorch's
    own update: without quantisers every weight has the bits that ``torch.optim.SGD`` gives.

    The optimizer reads gradients and never writes them. States keep torch's names, so ``state_dict`` can be exchanged
    with ``torch.optim.SGD`` in both directions; ``compensation`` is an additional state, and quantisers are not part
    of it. Without a seed, stochastic roundings use torch's default CPU generator: save its state with the
    optimizer's, and a resumed run repeats the bits. With a seed, ``state_dict`` counts the steps (``rounding_steps``
    of the groups), which is all that a resumed run needs.

    NaN and infinite gradients reach weights as in IEEE 754; overflow is that of the cast. The weights' dtype holds
    weights and momentum, so it must hold every number of the format; for wider formats use ``QOptim``, whose master
    copies are wide enough.
    Source: docs/reference/optim.md#one-rounding-per-update.

    Raises:
        OptimizerError: for other quantisers, for formats that the weights' dtype does not hold, and for sparse or
            complex gradients.
        ValueError: for arguments that ``torch.optim.SGD`` refuses.

    Example:
        >>> w = torch.nn.Parameter(torch.ones(2)); w.grad = torch.tensor([1e-3, 1e-2])
        >>> loss = gs.optim.QSGD([w], lr=1.0, acc_quant="bf16").step()
        >>> w.detach()  # bfloat16 has no number between 1 - 2**-8 and 1
        tensor([1.0000, 0.9883])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        momentum_quant: Any = None,
        acc_quant: Any = None,
        compensated: bool = False,
        *,
        maximize: bool = False,
        seed: int | None = None,
    ) -> None:
        self._put_quants(acc_quant, momentum_quant, compensated, seed)
        super().__init__(
            params, lr, momentum, dampening, weight_decay, nesterov, maximize=maximize, foreach=False, fused=False
        )

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Update the parameters once; return the closure's loss, or None without a closure.

        Raises:
            OptimizerError: for gradients and formats that the class names.

        Example:
            >>> w = torch.nn.Parameter(torch.ones(1)); w.grad = torch.ones(1)
            >>> gs.optim.QSGD([w], lr=0.1, acc_quant="bf16").step(lambda: 2.5), w.item()  # 0.9 in bfloat16
            (2.5, 0.8984375)
        """
        loss = evaluate(closure)
        self._begin_step()
        for group in self.param_groups:
            for parameter, gradient in with_gradients("QSGD", group):
                self._check_formats(parameter)
                self._update(parameter, self._direction(parameter, gradient, group), float(group["lr"]))
        return loss

    def _direction(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        """The gradient with weight decay and momentum."""
        if not self._is_plain() or self.compensated:
            gradient = gradient.to(work_dtype(parameter))
        if group["weight_decay"] != 0:
            gradient = gradient.add(parameter.to(gradient.dtype), alpha=group["weight_decay"])
        if group["momentum"] == 0:
            return gradient
        buffer = self._momentum(parameter, gradient, group)
        return gradient.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer

    def _momentum(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        """The momentum after this gradient, in its dtype."""
        state, rest = self.state[parameter], 1 - group["dampening"]
        quant = None if self.momentum_quant is None else self._step_of(parameter, self.momentum_quant)
        buffer = state.get("momentum_buffer")
        if buffer is None:
            buffer = state["momentum_buffer"] = torch.empty_like(parameter, memory_format=torch.preserve_format)
            zero, one = torch.zeros_like(gradient), scalar(gradient, 1.0)
            buffer.copy_(gradient if quant is None else quant(zero, gradient, one))
        elif quant is None:
            buffer.copy_((buffer.to(gradient.dtype) * group["momentum"]).add_(gradient, alpha=rest))
        else:
            buffer.copy_(quant(buffer.to(gradient.dtype) * group["momentum"], gradient, scalar(gradient, rest)))
        return buffer.to(gradient.dtype)

    def _update(self, parameter: Tensor, direction: Tensor, lr: float) -> None:
        if self.compensated:
            compensated_add(parameter, self._compensation(parameter), direction, lr, self._acc(parameter))
        elif self.acc_quant is None:
            parameter.add_(direction.to(parameter.dtype), alpha=-lr)
        else:
            operands = (parameter.to(direction.dtype), direction, scalar(parameter, -lr))
            parameter.copy_(self._rounded(parameter, self.acc_quant, *operands))
