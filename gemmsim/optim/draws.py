"""Random bits of an optimizer's roundings: of torch's generator, or of a seed, the step, the parameter and the call."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from gemmsim.ops.seeds import check_seed, derive_seed

from .steps import Rounded

__all__ = ["SeededRoundings"]

#: Entry of parameter groups that counts the steps drawn for, so that a state that is loaded goes on where it was.
_STEPS = "rounding_steps"
#: Calls of one parameter in one step have streams of their own, fewer than this.
_CALLS = 64


def _defaults(kind: type[Optimizer]) -> dict[str, Any]:
    """The arguments of a class of optimizers that have defaults."""
    parameters = signature(kind.__init__).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


class SeededRoundings(Optimizer):
    """An optimizer whose quantisers may draw from a ``seed``.

    With a seed the bits of a rounding are a function of (seed, number of steps, index of the parameter among all,
    number of the call): equal gradients give equal weights in every process, whatever else draws there.
    """

    seed: int | None
    _base: int
    _drawn: dict[int, int]

    def __repr__(self) -> str:
        """The class, how many parameters, the learning rate and what differs from the defaults, on one line."""
        inner: Optimizer = getattr(self, "optim", self)
        groups, said = inner.param_groups, []
        for name, default in _defaults(type(inner)).items():
            values = [group[name] for group in groups if name in group]
            if values and (name == "lr" or any(value != default for value in values)):
                said.append(f"{name}={' and '.join(dict.fromkeys(map(repr, values)))}")
        for name, default in _defaults(type(self)).items():
            value = getattr(self, name, default)
            if name not in groups[0] and value is not default:
                said.append(f"{name}={getattr(value, '__name__', None) or repr(value)}")
        count = sum(len(group["params"]) for group in groups)
        what = f"{count} parameter{'s' * (count != 1)}" + (f" in {len(groups)} groups" if len(groups) > 1 else "")
        around = "" if inner is self else f" around {type(inner).__name__}"
        return f"<{type(self).__name__}{around} of {what}: {', '.join(said)}>"

    def _put_seed(self, owner: str, seed: int | None) -> None:
        self.seed = check_seed(owner, seed)

    def _begin_step(self) -> None:
        """Count a step; ``_rounded`` then draws for it."""
        if self.seed is None:
            return
        count = int(self.param_groups[0].get(_STEPS, 0))
        for group in self.param_groups:
            group[_STEPS] = count + 1
        self._base = derive_seed(self.seed, 1 + count)
        places = (parameter for group in self.param_groups for parameter in group["params"])
        self._drawn = {id(parameter): index * _CALLS for index, parameter in enumerate(places)}

    def _rounded(self, parameter: Tensor, quant: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """``quant(*tensors)``; of a format, with the next random bits of ``parameter`` where there is a seed."""
        if self.seed is None or not isinstance(quant, Rounded):
            return quant(*tensors)
        self._drawn[id(parameter)] += 1
        return quant(*tensors, seed=derive_seed(self._base, self._drawn[id(parameter)]))

    def _step_of(self, parameter: Tensor, quant: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """``quant`` as a function that draws for ``parameter``."""
        return lambda *tensors: self._rounded(parameter, quant, *tensors)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "seed": self.seed}
