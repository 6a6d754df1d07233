"""Adam and AdamW with rounded states and weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .base import Closure, StatesMixin, evaluate, with_gradients
from .steps import compensated_add, scalar, work_dtype

__all__ = ["QAdam", "QAdamW"]


class _AdamSteps(StatesMixin):
    """The update, for weight decay in the gradient and beside it."""

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """One update; the closure's loss, if one is given.

        Raises:
            OptimizerError: for gradients and formats that the class names.
        """
        loss = evaluate(closure)
        self._begin_step()
        for group in self.param_groups:
            for parameter, gradient in with_gradients(type(self).__name__, group):
                self._check_formats(parameter)
                self._update(parameter, gradient, group)
        return loss

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self._started(parameter, group)
        state["step"] += 1
        lr, decay = float(group["lr"]), group["weight_decay"]
        decoupled = group["decoupled_weight_decay"]
        # Roundings act on float32: bfloat16 weights rounded by PyTorch first would leave them nothing to do.
        weight = parameter if self._is_plain() and not self.compensated else parameter.to(work_dtype(parameter))
        gradient = gradient.to(weight.dtype)
        if decay != 0 and not decoupled:
            gradient = gradient.add(weight, alpha=decay)
        self._moments(parameter, gradient, group)
        rate, denominator = _rate_and_denominator(state, group, lr, weight.dtype)
        mean = state["exp_avg"].to(weight.dtype)
        if self.compensated:
            self._compensated_update(parameter, mean / denominator, rate, lr * decay if decoupled else 0.0)
            return
        if decay != 0 and decoupled:
            weight.mul_(1 - lr * decay)
        weight.addcdiv_(mean, denominator, value=-rate)
        if self.acc_quant is not None:
            nothing = scalar(weight, 0.0)
            weight = self._rounded(parameter, self.acc_quant, weight, nothing, nothing)
        if weight is not parameter:
            parameter.copy_(weight)

    def _started(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if "step" not in state:
            state["step"] = torch.tensor(0.0)
            names = ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else [])]
            for name in names:
                state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return state

    def _moments(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        (beta1, beta2), state = group["betas"], self.state[parameter]
        quant = None if self.momentum_quant is None else self._step_of(parameter, self.momentum_quant)
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        if quant is None:
            gradient = gradient.to(mean.dtype)
            mean.lerp_(gradient, 1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        else:
            work = gradient.dtype
            mean.copy_(quant(mean.to(work) * beta1, gradient, scalar(gradient, 1 - beta1)))
            square.copy_(quant(square.to(work) * beta2, gradient * gradient, scalar(gradient, 1 - beta2)))
        if group["amsgrad"]:
            # Of two numbers of the format the larger is one too.
            torch.maximum(state["max_exp_avg_sq"], square, out=state["max_exp_avg_sq"])

    def _compensated_update(self, parameter: Tensor, direction: Tensor, rate: float, decay: float) -> None:
        compensation, acc = self._compensation(parameter), self._acc(parameter)
        if decay != 0:
            # The decay is one more term of the update, or weights would leave their format before it.
            work = direction.dtype
            compensation.copy_(acc(compensation.to(work), parameter.to(work), scalar(parameter, decay)))
        compensated_add(parameter, compensation, direction, rate, acc)


def _rate_and_denominator(
    state: dict[str, Any], group: dict[str, Any], lr: float, dtype: torch.dtype
) -> tuple[float, Tensor]:
    """Adam's step size and denominator; Kingma and Ba, ICLR 2015, in the order that ``torch.optim`` computes them."""
    count, (beta1, beta2) = float(state["step"]), group["betas"]
    root = (1 - beta2**count) ** 0.5
    square: Tensor = state["max_exp_avg_sq"] if group["amsgrad"] else state["exp_avg_sq"]
    return lr / (1 - beta1**count), (square.to(dtype).sqrt() / root).add_(group["eps"])


class QAdam(_AdamSteps, torch.optim.Adam):
    """``torch.optim.Adam`` that rounds its moments and the weights at each update.

    Args:
        params, lr, betas, eps, weight_decay, amsgrad, maximize: those of ``torch.optim.Adam``.
        acc_quant: rounding of the weights after PyTorch's update: ``w = acc_quant(w + 0 * 0)``.
        momentum_quant: rounding of both moments: ``m = momentum_quant(beta1 * m + (1 - beta1) * g)``, ``v =
            momentum_quant(beta2 * v + (1 - beta2) * g^2)``. The largest v of amsgrad is one of these.
        compensated: keep the rounding error of each update of a weight and add it to the next update: ``w - rate * (m
            / denominator)`` with Kahan summation, every operation rounded by acc_quant.

    Quantisers, states, random bits, special values and errors are those of ``QSGD``. Without quantisers every weight
    has the bits that ``torch.optim.Adam`` gives. ``beta * state``, ``g^2`` and everything between the moments and the
    update are PyTorch's, in float32 (float64 for float64 weights).
    Source: docs/reference/optim.md#one-rounding-per-update.

    Example:
        >>> w = torch.nn.Parameter(torch.ones(1)); w.grad = torch.ones(1)
        >>> loss = gs.optim.QAdam([w], lr=1e-3, acc_quant="bf16").step()
        >>> w.item()  # 1 - 0.001 rounds to 1 in bfloat16
        1.0
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        acc_quant: Any = None,
        momentum_quant: Any = None,
        compensated: bool = False,
        *,
        maximize: bool = False,
        seed: int | None = None,
    ) -> None:
        self._put_quants(acc_quant, momentum_quant, compensated, seed)
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, foreach=False, fused=False)


class QAdamW(_AdamSteps, torch.optim.AdamW):
    """``torch.optim.AdamW`` that rounds its moments and the weights at each update.

    As ``QAdam``, except that weights decay by ``w = (1 - lr * weight_decay) * w`` before the update, and
    ``weight_decay`` is 1e-2 by default. With ``compensated`` the decay is ``lr * weight_decay * w``, one more term of
    the update.

    Example:
        >>> w = torch.nn.Parameter(torch.ones(1)); w.grad = torch.ones(1)
        >>> loss = gs.optim.QAdamW([w], lr=1e-2, acc_quant="bf16/sr16", momentum_quant="bf16", seed=0).step()
        >>> w.item()  # one of the two neighbours of 0.9899 in bfloat16
        0.9921875
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        acc_quant: Any = None,
        momentum_quant: Any = None,
        compensated: bool = False,
        *,
        maximize: bool = False,
        seed: int | None = None,
    ) -> None:
        self._put_quants(acc_quant, momentum_quant, compensated, seed)
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, foreach=False, fused=False)
