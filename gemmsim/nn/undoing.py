"""Conversions of models that are done as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["naming", "unchanged_on_error"]


@contextmanager
def unchanged_on_error(model: nn.Module) -> Iterator[None]:
    """Where the body raises, ``model`` becomes again what it was: the modules in it, their classes, attributes and
    hooks, which parameters and buffers they have, on which device, and the values of buffers. Values that the body
    wrote into parameters stay written."""
    modules = [(module, type(module), dict(vars(module)), _contents(module)) for module in model.modules()]
    tensors = [(t, t.data) for p in model.parameters() for t in (p, p.grad) if t is not None and type(t.data) is Tensor]
    buffers = [(t, t.detach().clone()) for t in model.buffers() if type(t) is Tensor and not t.is_meta]
    try:
        yield
    except BaseException:
        for module, kind, attributes, contents in modules:
            if type(module) is not kind:
                module.__class__ = kind
            for name in vars(module).keys() - attributes.keys():
                del vars(module)[name]
            vars(module).update(attributes)
            for container, held in contents:
                container.clear()
                container.update(held)
        for t, data in tensors:
            if (t.device, t.dtype, t.data_ptr()) != (data.device, data.dtype, data.data_ptr()):
                t.data = data
        with torch.no_grad():
            for t, values in buffers:
                if not torch.equal(t, values):
                    t.copy_(values)
        raise


def _contents(module: nn.Module) -> list[tuple[Any, Any]]:
    """Dictionaries and sets of a module, and what is in each."""
    return [(value, value.copy()) for value in vars(module).values() if isinstance(value, (dict, set))]


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors of the body say which module of the model they are about."""
    try:
        yield
    except Exception as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (f"{name or 'the model'}: {error.args[0]}", *error.args[1:])
        raise
