"""Rounding around the step of an optimizer of torch.optim."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from gemmsim.ops.errors import message

from .base import Closure, evaluate
from .draws import SeededRoundings
from .steps import OptimizerError, Rounded, TensorQuant, check_held, holder, read_tensor

__all__ = ["QOptim"]

_QUANTS = ("weight_quant", "grad_quant", "momentum_quant", "acc_quant")
#: States that momentum_quant rounds, of SGD and of Adam.
_MOMENTA = ("momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")


class QOptim(SeededRoundings):
    """Wrap ``optim``, an SGD, Adam or AdamW of ``torch.optim``, and round gradients, states and weights around its
    step.

    Args:
        optim: the optimizer; this object shares its parameter groups and states.
        weight_quant: rounding of the weights that the network then computes with.
        grad_quant: rounding of gradients, in place, before the step.
        momentum_quant: rounding of momentum or moments, including amsgrad's maximum, after the step.
        acc_quant: rounding of a master copy of the weights. If given, the step updates the copy, and ``weight_quant``
            rounds from it: ``w = weight_quant(acc_quant(w_master - update))``. If the weights' dtype does not hold
            its numbers, as "fp32" for weights in bfloat16, then copies, the step and its states are in float32
            (float64).
        seed: seed of the random bits of stochastic roundings, as in ``QSGD``.

    A quantiser is a cast, a format, a string, a pair (format, rounding), or a function from tensor to tensor. The
    order of a step: closure, gradients, weights from their master copies, the step of ``optim``, master copies,
    weights, states. Before the first step, weights are their own master copies. Parameters without a gradient are
    skipped. Without quantisers the result is that of ``optim``, bit for bit.

    Learning-rate schedulers accept it like any optimizer. ``state_dict`` is that of ``optim``, including master
    copies (as state ``master``). A resumed run repeats the bits; for stochastic roundings this needs the state of
    torch's generator.
    Source: docs/reference/optim.md#qoptim.

    Raises:
        OptimizerError: for another optimizer, and for other quantisers. Also a ``TypeError``, an ``AssertionError``.
            In ``step``, without ``acc_quant``, for formats whose numbers the weights' dtype does not hold.

    Example:
        >>> w = torch.nn.Parameter(torch.ones(1)); w.grad = torch.ones(1)
        >>> optimizer = gs.optim.QOptim(torch.optim.SGD([w], lr=1e-3), weight_quant="e4m3", acc_quant="fp32")
        >>> optimizer.step(), w.item(), round(optimizer.state[w]["master"].item(), 4)
        (None, 1.0, 0.999)
    """

    optim: Optimizer
    weight_quant: TensorQuant | None
    grad_quant: TensorQuant | None
    momentum_quant: TensorQuant | None
    acc_quant: TensorQuant | None

    def __init__(
        self,
        optim: Optimizer,
        weight_quant: Any = None,
        grad_quant: Any = None,
        momentum_quant: Any = None,
        acc_quant: Any = None,
        *,
        seed: int | None = None,
    ) -> None:
        if not isinstance(optim, (SGD, Adam, AdamW)):
            asked = f"QOptim: {type(optim).__name__}"
            raise OptimizerError(message(asked, "torch.optim's SGD, Adam and AdamW", "Wrap one of these."))
        for name, quant in zip(_QUANTS, (weight_quant, grad_quant, momentum_quant, acc_quant), strict=True):
            setattr(self, name, read_tensor("QOptim", name, quant))
        self._put_seed("QOptim", seed)
        super().__init__(optim.param_groups, optim.defaults)
        self.optim = optim
        self._share()

    def _share(self) -> None:
        self.param_groups, self.state = self.optim.param_groups, self.optim.state

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Take one step; return the closure's loss, or None without a closure. The closure runs once, with the
        present weights.

        Raises:
            OptimizerError: without ``acc_quant``, for formats whose numbers the weights' dtype does not hold.

        Example:
            >>> w = torch.nn.Parameter(torch.ones(1)); w.grad = torch.full((1,), 1.1)
            >>> gs.optim.QOptim(torch.optim.SGD([w], lr=1.0), grad_quant="e2m1").step()
            >>> w.grad.item(), w.item()
            (1.0, 0.0)
        """
        loss = evaluate(closure)
        self._begin_step()
        active = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        for parameter in active:
            for name in _QUANTS if self.acc_quant is None else ():
                check_held("QOptim", name, getattr(self, name), parameter)
            if self.grad_quant is not None:
                parameter.grad.copy_(self._rounded(parameter, self.grad_quant, parameter.grad))
        with self._masters_in_place(active):
            self.optim.step()
            for parameter in active:
                if self.acc_quant is not None:
                    parameter.copy_(self._rounded(parameter, self.acc_quant, parameter))
                    self.state[parameter]["master"] = parameter.detach().clone()
        for parameter in active:
            self._round(parameter)
        return loss

    @contextmanager
    def _masters_in_place(self, active: list[Tensor]) -> Iterator[None]:
        """Weights as their master copies inside, in a dtype that holds acc_quant's numbers; gradients likewise.

        Afterwards the weights have their dtype again and the numbers of the copies, as far as it holds them.
        """
        narrow: list[tuple[Tensor, Tensor, Tensor]] = []
        for parameter in active if self.acc_quant is not None else ():
            master = self.state.get(parameter, {}).get("master")
            target = self.acc_quant.target if isinstance(self.acc_quant, Rounded) else None
            wide = parameter.dtype if target is None else holder(str(target), parameter.dtype)
            if wide != parameter.dtype:
                given, gradient = parameter.data, parameter.grad
                narrow.append((parameter, given, gradient))  # type: ignore[arg-type]  # active ones have gradients
                parameter.grad = None
                parameter.data = given.to(wide) if master is None else master.to(wide)
                parameter.grad = gradient.to(wide)  # type: ignore[union-attr]
            elif master is not None:
                parameter.copy_(master)
        try:
            yield
        finally:
            for parameter, given, gradient in narrow:
                parameter.grad = None
                given.copy_(parameter.data)
                parameter.data = given
                parameter.grad = gradient

    def _round(self, parameter: Tensor) -> None:
        state = self.state[parameter]
        if self.weight_quant is not None:
            master = state.get("master", parameter)
            parameter.copy_(self._rounded(parameter, self.weight_quant, master))
        if self.momentum_quant is not None:
            for name in _MOMENTA:
                if state.get(name) is not None:
                    state[name].copy_(self._rounded(parameter, self.momentum_quant, state[name]))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to ``optim``, whose groups are also those of this object.

        Example:
            >>> optimizer = gs.optim.QOptim(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1), "bf16")
            >>> optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))], "lr": 0.01})
            >>> [group["lr"] for group in optimizer.param_groups]
            [0.1, 0.01]
        """
        # The constructor of the base class calls this too, before there is an optim to share with.
        inner: Optimizer | None = self.__dict__.get("optim")
        if inner is None:
            super().add_param_group(param_group)
        else:
            inner.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """Return the state dict of ``optim``, with master copies among the states.

        Example:
            >>> w = torch.nn.Parameter(torch.ones(1)); w.grad = torch.ones(1)
            >>> optimizer = gs.optim.QOptim(torch.optim.SGD([w], lr=1e-3), weight_quant="e4m3", acc_quant="fp32")
            >>> loss, state = optimizer.step(), optimizer.state_dict()["state"][0]; sorted(state)
            ['master']
        """
        return self.optim.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what ``state_dict`` returned, or the state of a plain optimizer of the same class.

        Example:
            >>> plain, optimizer = (torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=lr) for lr in (0.01, 0.1))
            >>> gs.optim.QOptim(optimizer, weight_quant="bf16").load_state_dict(plain.state_dict())
            >>> optimizer.param_groups[0]["lr"]
            0.01
        """
        self.optim.load_state_dict(state_dict)
        self._share()
        # PyTorch converts states to the weights' dtype; those that were wider stay as they were.
        saved = [place for group in state_dict["param_groups"] for place in group["params"]]
        for place, parameter in zip(saved, (p for group in self.param_groups for p in group["params"]), strict=True):
            for name, value in state_dict["state"].get(place, {}).items():
                if isinstance(value, Tensor) and value.dtype.itemsize > self.state[parameter][name].dtype.itemsize:
                    self.state[parameter][name] = value.detach().clone().to(self.state[parameter][name].device)

    def __getstate__(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in (*_QUANTS, "optim")}
        return {**super().__getstate__(), **own}
