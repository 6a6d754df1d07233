"""Runs models for observers: one training step, or a run without values, which follows shapes and dtypes only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch._guards import detect_fake_mode
from torch.func import functional_call
from torch.utils._pytree import tree_leaves, tree_map_only

from gemmsim.ops.errors import message

from ..context import emulate
from ..fake_tensor_assumptions import assumptions, call_fake
from ..rules import ConfigLike
from .recorder import Recorder

__all__ = ["DryRunError", "estimated", "training_step"]


class DryRunError(RuntimeError):
    """Raised for a model that cannot run without values, because its code reads the values of a tensor.

    Example:
        >>> Branch = type("Branch", (torch.nn.Linear,), {"forward": lambda self, x: x if x.sum() > 0 else -x})
        >>> gs.audit.dry_run(Branch(4, 2), torch.ones(4))
        Traceback (most recent call last):
            ...
        gemmsim.emulation.observe.trial_runs.DryRunError: audit.dry_run: aten._local_scalar_dense.default ...
    """


def estimated(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    config: ConfigLike,
    backward: bool,
    recorder: Recorder,
) -> None:
    """Calls ``model`` on fake tensors under ``config`` (None: as it computes), forward and, if asked, backward.

    ``recorder``, which is in force, calls the operators that it sees through ``Answers``.

    Raises:
        ConfigError, SpecError, FormatError: for a config that means nothing.
        DryRunError: for code that asks for the values of tensors.
        TypeError: for a model that is no module.
    """
    if not isinstance(model, nn.Module):
        asked = f"audit.dry_run: {type(model).__name__} as the model"
        raise TypeError(message(asked, "a module", "Write audit.dry_run(model, x, config)."))
    from torch._subclasses import fake_tensor  # loads symbolic algebra, which takes a second

    from ..fake_tensors import Answers

    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    fakes: dict[int, Tensor] = {}
    mode = detect_fake_mode([*state.values(), *tree_leaves((args, kwargs))]) or fake_tensor.FakeTensorMode()
    recorder.call = Answers(mode) if mode.shape_env is None else call_fake  # otherwise sizes may be symbols

    def fake(t: Tensor) -> Tensor:
        """``t`` without values. A shared tensor stays shared; one on the meta device is treated as on the CPU."""
        if getattr(t, "fake_mode", None) is mode:
            return t
        if id(t) not in fakes:
            device = "cpu" if t.is_meta else t.device
            made = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=device)
            fakes[id(t)] = made.requires_grad_(t.requires_grad)
        return fakes[id(t)]

    with mode, assumptions(recorder.assumed), nullcontext() if config is None else emulate(config):
        given, named = tree_map_only(Tensor, fake, (args, dict(kwargs)))
        try:
            output = functional_call(model, {n: fake(t) for n, t in state.items()}, given, named, tie_weights=True)
            if backward:
                differentiate(output)
        except (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException) as error:
            asked = f"audit.dry_run: {error.func} of a {type(model).__name__} needs values"
            allowed = "models whose control flow depends only on shapes and dtypes"
            raise DryRunError(message(asked, allowed, "Run it: audit(model, *inputs).")) from error


def training_step(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Runs ``model`` forward, and backward from the sum of its outputs.

    Gradients of parameters are restored afterwards.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    before = [p.grad for p in parameters]
    try:
        for p in parameters:
            p.grad = None
        differentiate(model(*args, **kwargs))
    finally:
        for p, grad in zip(parameters, before, strict=True):
            p.grad = grad


def differentiate(output: Any) -> None:
    """Runs a backward pass from the sum of the floating-point tensors in ``output``, if any has a gradient."""
    ends = [t for t in _tensors(output) if t.is_floating_point() and t.requires_grad]
    if ends:
        torch.autograd.backward(sum((t.sum() for t in ends[1:]), ends[0].sum()))


def _tensors(output: Any) -> Iterator[Tensor]:
    """All tensors in sequences, mappings and data classes, such as models return."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, (list, tuple)):
        for value in output:
            yield from _tensors(value)
    elif hasattr(output, "__dict__"):
        for value in vars(output).values():
            yield from _tensors(value)
