"""``torch.func.functionalize``: a rule for this package's autograd functions, which PyTorch has none for.

They write to none of their operands, so that their results are those of the operands' values: a level of
functionalisation takes its wrappers off, has the next level call the function, and wraps the results. PyTorch's answer
for functions of others, which may write to their operands, stays ("NYI").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C._functorch import TransformType
from torch._functorch.autograd_function import custom_function_call
from torch._subclasses.functional_tensor import FunctorchFunctionalizeAPI

__all__ = ["install"]

_OURS = __name__.partition(".")[0]


def install() -> None:
    """Put the rule in, once."""
    table: Any = custom_function_call.functorch_table
    theirs = table.get(TransformType.Functionalize)
    if getattr(theirs, "__module__", None) != __name__:
        table[TransformType.Functionalize] = _rule(theirs)


def _rule(theirs: Callable[..., Any] | None) -> Callable[..., Any]:
    def call(interpreter: Any, function: Any, *operands: Any) -> Any:
        if not _is_ours(function):
            if theirs is None:
                raise NotImplementedError(f"torch.func.functionalize of {function.__name__}")
            return theirs(interpreter, function, False, *operands)
        level = FunctorchFunctionalizeAPI(interpreter)
        given = level.unwrap_tensors(operands)
        with level.redispatch_to_next():
            found = custom_function_call(function, *given)
        return level.wrap_tensors(found)

    return call


def _is_ours(function: Any) -> bool:
    """Whether it is of this package, or made by PyTorch of such a one, in its closure, for ``vmap``."""
    if function.__module__.partition(".")[0] == _OURS:
        return True
    cells = getattr(function.forward, "__closure__", None) or ()
    made = function.__name__.startswith("Vmapped")
    return made and any(_is_function(cell.cell_contents) and _is_ours(cell.cell_contents) for cell in cells)


def _is_function(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, torch.autograd.Function)
