"""Hides observers from PyTorch's gradient formulas that compute differently while a dispatch mode is in force.

Some formulas compute tensors of other classes in a slower way with other roundings, and treat every tensor as one of
these while a mode is in force. None of the formulas listed here multiplies matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from . import replaced
from .replaced import Wanted

__all__ = ["hiding", "hiding_too"]

#: Nodes whose formulas check for modes, without the number at the end of their names.
_FORMULAS = frozenset(("ProdBackward", "CumprodBackward", "MaskedFillBackward"))
_ENGINE = "_engine_run_backward"


@contextmanager
def hiding() -> Iterator[None]:
    """Makes backward passes of all threads compute those formulas as they do without a mode."""
    replaced.opened(_wanted)
    try:
        yield
    finally:
        replaced.closed()


def hiding_too(engine: Any) -> Any:
    """``engine``, a copy of a PyTorch function that runs backward passes, made to call what PyTorch calls now."""
    engine.__globals__[_ENGINE] = vars(torch.autograd).get(_ENGINE)
    return engine


def _wanted() -> list[Wanted]:
    return [(torch.autograd, _ENGINE, _runs)] if hasattr(torch.autograd, _ENGINE) else []


def _runs(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def run(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        asking = [node for node in _nodes(outputs) if _is_listed(node)]
        handles = [node.register_prehook(_hide) for node in asking]
        try:
            return original(outputs, *args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()

    return run


def _is_listed(node: Any) -> bool:
    """Whether the formula of ``node`` is listed, by its class.

    The node of a Python function has the attributes that its author gave it, perhaps ``name``.
    """
    kind = type(node)
    return kind.__name__.rstrip("0123456789") in _FORMULAS and not issubclass(kind, BackwardCFunction)


def _hide(grads: Any) -> None:
    """Excludes modes until the node ends, when the engine restores the thread's exclusions."""
    torch._C._dispatch_tls_set_dispatch_key_excluded(torch._C.DispatchKey.Python, True)


def _nodes(outputs: Any) -> Iterator[Any]:
    """All nodes of the graph that a backward pass from ``outputs`` may run."""
    found = [getattr(output, "grad_fn", None) or getattr(output, "node", None) for output in outputs]
    waiting = [node for node in found if node is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        yield node
        for below, _ in node.next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                waiting.append(below)
