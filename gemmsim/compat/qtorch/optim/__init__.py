"""QPyTorch's optimizer wrapper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

import gemmsim as gs

__all__ = ["OptimLP"]

Quant = Callable[[Tensor], Tensor]
#: Entry of parameter groups that counts the steps drawn for, so that a state that is loaded goes on where it was.
_STEPS = "rounding_steps"


class OptimLP(Optimizer):
    """SGD or Adam with weights, gradients, momenta and accumulators in low precision.

    Args:
        optim: the optimizer that makes the steps.
        weight_quant, grad_quant, momentum_quant, acc_quant: functions of tensors; None: no rounding. With ``acc_quant``
            steps change accumulators, which start as the weights, and weights are rounded from them.
        grad_scaling: factor of gradients before ``grad_quant``; it is not undone, and without ``grad_quant`` not
            applied.
        seed: for quantisers that take random bits from torch's default CPU generator, as stochastic roundings without a
            ``generator`` do. With a seed the random bits depend on it, the number of steps, the parameter's index and
            the quantiser, and the generator's state stays; ``state_dict`` counts the steps. With None the generator
            advances.

    Raises:
        AssertionError: for other optimizers, and a factor that is not positive.
        SeedError: for a seed that is not an integer of 64 bits.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([2.6]))
        >>> gs.compat.qtorch.OptimLP(torch.optim.SGD([weight], lr=0.1), weight_quant=torch.round).step()
        >>> weight.data
        tensor([3.])
    """

    def __init__(
        self,
        optim: Optimizer,
        weight_quant: Quant | None = None,
        grad_scaling: float = 1.0,
        grad_quant: Quant | None = None,
        momentum_quant: Quant | None = None,
        acc_quant: Quant | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        if not isinstance(optim, (SGD, Adam)):
            raise AssertionError(f"OptimLP of {type(optim).__name__}; allowed: SGD, Adam.\n  Use one of these.")
        if not grad_scaling > 0:
            raise AssertionError(f"OptimLP: grad_scaling={grad_scaling}; allowed: above 0.\n  Leave it out for 1.")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 64):
            allowed = "None or an integer from 0 to 2**64 - 1"
            raise gs.SeedError(f"OptimLP: seed={seed!r}; allowed: {allowed}.\n  Give an int, or leave it out.")
        super().__init__(optim.param_groups, optim.defaults)
        self.param_groups = optim.param_groups
        self.optim, self.seed = optim, seed
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
        """Make one step; ``closure`` is not called."""
        parameters = self._parameters()
        base = self._count_step()
        for place, p in enumerate(parameters):
            if self.grad_quant is not None and p.grad is not None:
                p.grad.copy_(_drawn(base, 8 * place, self.grad_quant, p.grad * self.grad_scaling))
        for p, accumulator in self.weight_acc.items():
            p.copy_(accumulator)
        self.optim.step()
        for place, p in enumerate(parameters):
            if p in self.weight_acc:
                assert self.acc_quant is not None
                self.weight_acc[p].copy_(_drawn(base, 8 * place + 1, self.acc_quant, p))
        for place, p in enumerate(parameters):
            if self.weight_quant is not None:
                p.copy_(_drawn(base, 8 * place + 2, self.weight_quant, p))
        for place, p in enumerate(parameters):
            self._round_momenta(base, 8 * place + 3, self.optim.state.get(p, {}))

    def _count_step(self) -> int | None:
        """The seed of this step, which is counted; None without a seed."""
        if self.seed is None:
            return None
        count = int(self.param_groups[0].get(_STEPS, 0))
        for group in self.param_groups:
            group[_STEPS] = count + 1
        return gs.ops.derive_seed(self.seed, 1 + count)

    def _round_momenta(self, base: int | None, stream: int, state: dict[str, Any]) -> None:
        for at, key in enumerate(self.momentum_keys):
            if self.momentum_quant is not None and isinstance(state.get(key), Tensor):
                state[key].copy_(_drawn(base, stream + at, self.momentum_quant, state[key]))

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state, with the accumulators in the order of the parameters."""
        found: dict[str, Any] = self.optim.state_dict()
        accumulators = [self.weight_acc[p] for p in self._parameters()] if self.weight_acc else []
        return {**found, "weight_acc": accumulators} if accumulators else found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the result of ``state_dict``, or the optimizer's own state."""
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


def _drawn(base: int | None, stream: int, quant: Quant, t: Tensor) -> Tensor:
    """``quant(t)`` with the random bits of ``stream`` of ``base``; None: of torch's generator as it is."""
    if base is None:
        return quant(t)
    generator = torch.default_generator
    state = generator.get_state()
    try:
        generator.manual_seed(gs.ops.derive_seed(base, 1 + stream))
        return quant(t)
    finally:
        generator.set_state(state)
