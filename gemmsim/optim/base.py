"""What the optimizers share: quantisers that survive copying, and which gradients a step uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.errors import message

from .draws import SeededRoundings
from .steps import OptimizerError, StepQuant, check_held, multiply_add, read_step

__all__ = ["StatesMixin", "evaluate", "with_gradients"]

Closure = Callable[[], Any]


def evaluate(closure: Closure | None) -> Any:
    """The closure's loss, computed once with gradients enabled; None without a closure."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def with_gradients(owner: str, group: dict[str, Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """(parameter, gradient) of the group, negated gradient for ``maximize``; parameters without one are passed over.

    Raises:
        OptimizerError: for a sparse or complex gradient.
    """
    for parameter in group["params"]:
        gradient = parameter.grad
        if gradient is None:
            continue
        if gradient.layout != torch.strided or gradient.is_complex():
            asked = f"{owner}: a gradient of layout {gradient.layout} and dtype {gradient.dtype}"
            raise OptimizerError(message(asked, "dense tensors of real numbers", "Use torch.optim for the others."))
        yield parameter, -gradient if group["maximize"] else gradient


_DTYPE_FORMATS = {torch.bfloat16: "bf16", torch.float16: "fp16"}


class StatesMixin(SeededRoundings):
    """Quantisers of an optimizer of ``torch.optim``. They are no part of ``state_dict``, whose tensors are."""

    acc_quant: StepQuant | None
    momentum_quant: StepQuant | None
    compensated: bool

    def _put_quants(self, acc_quant: Any, momentum_quant: Any, compensated: bool, seed: int | None) -> None:
        owner = type(self).__name__
        self._put_seed(owner, seed)
        self.acc_quant = read_step(owner, "acc_quant", acc_quant)
        self.momentum_quant = read_step(owner, "momentum_quant", momentum_quant)
        self.compensated = bool(compensated)

    def _acc(self, parameter: Tensor) -> StepQuant:
        """The step of weights; without a quantiser that of the parameter's dtype."""
        if self.acc_quant is not None:
            return self._step_of(parameter, self.acc_quant)
        return partial(multiply_add, fmt=_DTYPE_FORMATS.get(parameter.dtype))

    def _check_formats(self, parameter: Tensor) -> None:
        owner = type(self).__name__
        for name in ("acc_quant", "momentum_quant"):
            check_held(owner, name, getattr(self, name), parameter)

    def _is_plain(self) -> bool:
        return self.acc_quant is None and self.momentum_quant is None

    def _compensation(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "compensation" not in state:
            state["compensation"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        found: Tensor = state["compensation"]
        return found

    def __getstate__(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("acc_quant", "momentum_quant", "compensated")}
        return {**super().__getstate__(), **own}
