"""Contexts in bodies that the compiler traces as parts of their own: of checkpoints, branches and loops.

Such a body may change nothing outside itself; otherwise the compiler refuses the whole graph. A context changes the
modes in force and the hooks of modules, and restores both when it ends. This module declares that these changes are no
effect of the body. A step of a count is an effect, and is refused by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from gemmsim.ops.errors import message
from gemmsim.ops.lazy_dynamo import assume_constant_result

from .dynamo_support import one_graph_error, tracer
from .rules import ConfigError

__all__ = ["let_modes_change", "refuse_steps", "unseen_change"]


@assume_constant_result
def let_modes_change() -> None:
    """Allows the modes in force to change in the body that is traced now, which restores them.

    The compiler allows that only if they were changed around the body as well. It notes the stack of modes at its first
    change, as part of the body or of the code around it. Here it is noted without a change.
    """
    module: Any = sys.modules.get("torch._dynamo.variables.torch_function")
    stack: Any = getattr(module, "TorchFunctionModeStackVariable", None)
    found = tracer()
    if stack is None or not _in_body(found) or stack.stack_value_singleton in found.output.side_effects:
        return
    known = stack(torch._guards.Source(), found.symbolic_torch_function_state.mode_stack)
    found.output.side_effects.track_mutable(stack.stack_value_singleton, known)


def unseen_change(change: Callable[[], None]) -> None:
    """Calls ``change`` in traced code. The body itself undoes what this changes outside it."""
    _allow(True)
    change()
    _allow(False)


@assume_constant_result
def refuse_steps() -> None:
    """Refuses a step of a lasting count, because it is an effect of the body: a repetition would take another step.

    Raises:
        ConfigError: in a body of a whole graph. Elsewhere the compiler does not compile the body, and Python runs it.
    """
    if _in_body(tracer()):
        asked = "a step of random bits inside torch.utils.checkpoint or another body that torch.compile(fullgraph=True)"
        asked += " follows"
        allowed = "contexts around the body, and contexts with a step="
        do = "Open gemmsim.emulate around the body (or convert its module), or compile without fullgraph=True."
        one_graph_error(ConfigError(message(asked, allowed, do)))


@assume_constant_result
def _allow(on: bool) -> None:
    found = tracer()
    if _in_body(found):
        found.output.current_tracer.unsafe_allow_externally_visible_side_effects = on


def _in_body(found: Any) -> bool:
    return getattr(getattr(getattr(found, "output", None), "current_tracer", None), "parent", None) is not None
