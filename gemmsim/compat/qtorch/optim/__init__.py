"""QPyTorch's optimizer wrapper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

__all__ = ["OptimLP"]

Quant = Callable[[Tensor], Tensor]


class OptimLP(Optimizer):
    """SGD or Adam with weights, gradients, momenta and accumulators in low precision.

    Args:
        optim: the optimizer whose steps are made.
        weight_quant, grad_quant, momentum_quant, acc_quant: functions of tensors; None: no rounding. With ``acc_quant``
            steps are made on accumulators, which start as the weights, and weights are rounded from them.
        grad_scaling: factor of gradients before ``grad_quant``, without which there is none; it is not taken back.

    Raises:
        AssertionError: for other optimizers, and a factor that is not positive.
    """

    def __init__(
        self,
        optim: Optimizer,
        weight_quant: Quant | None = None,
        grad_scaling: float = 1.0,
        grad_quant: Quant | None = None,
        momentum_quant: Quant | None = None,
        acc_quant: Quant | None = None,
    ) -> None:
        if not isinstance(optim, (SGD, Adam)):
            raise AssertionError(f"OptimLP of {type(optim).__name__}; allowed: SGD, Adam.\n  Use one of these.")
        if not grad_scaling > 0:
            raise AssertionError(f"OptimLP: grad_scaling={grad_scaling}; allowed: above 0.\n  Leave it out for 1.")
        super().__init__(optim.param_groups, optim.defaults)
        self.param_groups = optim.param_groups
        self.optim = optim
        self.weight_quant, self.grad_scaling, self.grad_quant = weight_quant, grad_scaling, grad_quant
        self.momentum_quant, self.acc_quant = momentum_quant, acc_quant
        self.momentum_keys = ["momentum_buffer"] if isinstance(optim, SGD) else ["exp_avg", "exp_avg_sq"]
        self.weight_acc: dict[Tensor, Tensor] = {}
        if acc_quant is not None:
            self.weight_acc = {p: p.detach().clone() for p in self._parameters()}

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step; ``closure`` is not called."""
        parameters = self._parameters()
        if self.grad_quant is not None:
            for p in parameters:
                if p.grad is not None:
                    p.grad.copy_(self.grad_quant(p.grad * self.grad_scaling))
        for p, accumulator in self.weight_acc.items():
            p.copy_(accumulator)
        self.optim.step()
        for p, accumulator in self.weight_acc.items():
            assert self.acc_quant is not None
            accumulator.copy_(self.acc_quant(p))
        if self.weight_quant is not None:
            for p in parameters:
                p.copy_(self.weight_quant(p))
        self._round_momenta(parameters)

    def _round_momenta(self, parameters: list[Tensor]) -> None:
        if self.momentum_quant is None:
            return
        for p in parameters:
            state = self.optim.state.get(p, {})
            for key in self.momentum_keys:
                if isinstance(state.get(key), Tensor):
                    state[key].copy_(self.momentum_quant(state[key]))

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's, with the accumulators in the order of the parameters."""
        found: dict[str, Any] = self.optim.state_dict()
        accumulators = [self.weight_acc[p] for p in self._parameters()] if self.weight_acc else []
        return {**found, "weight_acc": accumulators} if accumulators else found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What ``state_dict`` gave, or the optimizer's own."""
        state_dict = dict(state_dict)
        accumulators = state_dict.pop("weight_acc", [])
        self.optim.load_state_dict(state_dict)
        self.param_groups = self.optim.param_groups
        for p, saved in zip(self._parameters(), accumulators, strict=False):
            if p in self.weight_acc:
                self.weight_acc[p].copy_(saved)

    def __repr__(self) -> str:
        return f"OptimLP({self.optim!r})"

    def __str__(self) -> str:
        return repr(self)
