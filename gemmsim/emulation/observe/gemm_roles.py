"""Finds the role of a product (fprop, dgrad, wgrad or backward) and the path of the module that it belongs to.

"dgrad" is the gradient of the first operand, "wgrad" that of the second. The autograd engine says which node is
running. Products in a node of PyTorch come in an order of PyTorch's own, which tests/emulation/test_roles.py pins. The
node's saved tensors are not read, because unpacking them computes checkpoints again.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

from ..aten_products import Leaf, Shape
from ..module_paths import ModuleHooks, Places, is_wrapper, paths_of

__all__ = ["BACKWARD", "Roles", "Trail"]

#: Role of a product in a backward pass whose node does not name it: in compiled code and custom autograd functions.
BACKWARD = "backward"

_sequence_number = torch.autograd._get_sequence_nr
_node = torch._C._current_autograd_node
_task = torch._C._current_graph_task_id

_SECOND_FIRST = ((1, "wgrad"), (0, "dgrad"))
_AFTER_ADDEND = ((1, "dgrad"), (2, "wgrad"))
#: Node -> its products in their order: (index of the gradient's edge, role). Index None: always computed.
_ORDERS: dict[str, tuple[tuple[int | None, str], ...]] = {
    "MmBackward0": _SECOND_FIRST,
    "BmmBackward0": _SECOND_FIRST,
    "GroupedMmBackward0": _SECOND_FIRST,
    "AddmmBackward0": _AFTER_ADDEND,
    "BaddbmmBackward0": _AFTER_ADDEND,
    "AddbmmBackward0": _AFTER_ADDEND,
    "MvBackward0": ((1, "wgrad"),),
    "AddmvBackward0": ((2, "wgrad"),),
    "AddrBackward0": _AFTER_ADDEND,
    "EuclideanDistBackward0": ((None, "dgrad"), (None, "wgrad")),
    "TrilinearBackward0": ((0, "dgrad"), (1, "wgrad"), (2, "dgrad")),
}
#: Nodes whose two gradients differ in what they sum over.
_MATRICES = frozenset(("MmBackward0", "BmmBackward0", "AddmmBackward0", "BaddbmmBackward0", "AddbmmBackward0"))


class _Paths(Places):
    """Places that track paths only and count no steps."""

    def _outermost(self, module: nn.Module) -> None:
        if id(module) not in self.paths:
            self.paths.update(paths_of(module))


class Trail:
    """Paths of modules in this thread, and of the autograd nodes that were made while they ran."""

    #: Maximum number of entries of the trail. The oldest half is removed first.
    MOST = 1 << 20

    def __init__(self) -> None:
        self.places = _Paths()
        self.numbers: list[int] = [_sequence_number()]
        self.names: list[str] = [""]
        self.within: list[tuple[int, int] | None] = []

    @property
    def path(self) -> str:
        """Path of the running module; "" outside modules."""
        return self.places.path

    def start(self) -> None:
        """Starts following the calls of modules in this thread."""
        self.numbers, self.names = [_sequence_number()], [""]
        _open().append(self)
        _HOOKS.put()

    def stop(self) -> None:
        """Stops following them. Without any trail, modules have no hooks of this file."""
        _open().remove(self)
        _HOOKS.take()

    def enter(self, module: nn.Module) -> None:
        """Records that a module is about to run."""
        self.places.enter(module)
        self.within.append(_running())
        self._note()

    def leave(self) -> None:
        """Records that a module has run, or raised."""
        self.places.leave()
        if self.within:
            self.within.pop()
        self._note()

    def _note(self) -> None:
        """Assigns the autograd nodes from the next one on to the module that runs now."""
        number = _sequence_number()
        if self.numbers[-1] == number:
            self.names[-1] = self.path
            return
        self.numbers.append(number)
        self.names.append(self.path)
        if len(self.numbers) > self.MOST:
            del self.numbers[: self.MOST // 2], self.names[: self.MOST // 2]

    def path_of(self, number: int) -> str:
        """Path of the module that ran when the node with this number was made; "" for earlier nodes."""
        at = bisect_right(self.numbers, number) - 1
        return self.names[at] if at >= 0 else ""

    def enters_in(self, running: tuple[int, int] | None) -> bool:
        """Whether the running node called the innermost module, whose forward pass it then computes again."""
        return bool(self.within) and self.within[-1] == running


_local = threading.local()


def _open() -> list[Trail]:
    """The open trails of this thread."""
    found: list[Trail] | None = getattr(_local, "open", None)
    if found is None:
        found = _local.open = []
    return found


def _before(module: nn.Module, args: Any) -> None:
    if torch.compiler.is_compiling() or is_wrapper(module) or isinstance(module, GraphModule):
        return
    for trail in _open():
        trail.enter(module)


def _after(module: nn.Module, args: Any, result: Any) -> None:
    if torch.compiler.is_compiling() or is_wrapper(module) or isinstance(module, GraphModule):
        return
    for trail in _open():
        trail.leave()


_HOOKS = ModuleHooks(-0x6E6E, _before, _after)


class Roles:
    """Roles and paths of the products of one context, in the order in which they happen."""

    #: Maximum number of stored shapes of forward products.
    MOST = 1 << 18

    def __init__(self, trail: Trail) -> None:
        self.trail = trail
        self._shapes: dict[int, Shape] = {}
        self._node: tuple[int, int] | None = None
        self._done: list[str] = []

    def of(self, leaf: Leaf) -> tuple[str, str]:
        """(role, path) of a product that is about to be computed."""
        node = _node()
        running = _running()
        if node is None or self.trail.enters_in(running) or _recomputes():
            return leaf.role or "fprop", self._forward(leaf)
        if running != self._node:
            self._node, self._done = running, []
        role = leaf.role or self._backward(node, leaf)
        self._done.append(role)
        return role, self._place(leaf) or self.trail.path_of(node._sequence_nr())

    def _forward(self, leaf: Leaf) -> str:
        """Path of a forward product. Its shape is stored under the number of its node."""
        if torch.is_grad_enabled() or _sequence_number() > self.trail.numbers[0]:
            self._shapes.setdefault(_sequence_number() - 1, leaf.shape)
            if len(self._shapes) > self.MOST:
                for number in list(self._shapes)[: self.MOST // 2]:
                    del self._shapes[number]
        return self._place(leaf) or self.trail.path

    def _place(self, leaf: Leaf) -> str:
        return "" if leaf.site is None else leaf.site.rpartition("|")[0]

    def _backward(self, node: Any, leaf: Leaf) -> str:
        """Role of a product that a node computes and its operator does not name."""
        name = node.name()
        if name not in _ORDERS:
            return self._of_function(node)
        edges = node.next_functions
        wanted = [role for at, role in _ORDERS[name] if at is None or edges[at][0] is not None]
        if len(set(wanted)) == 1:
            return wanted[0]
        forward = self._shapes.get(node._sequence_nr()) if name in _MATRICES else None
        if forward is not None and forward[1] != forward[3]:  # dgrad sums over N, wgrad over M
            return "dgrad" if leaf.shape[2] == forward[3] else "wgrad"
        return wanted[min(len(self._done), len(wanted) - 1)] if wanted else BACKWARD

    def _of_function(self, node: Any) -> str:
        """Role in a Python autograd function. Those of this package compute dgrad first, if it is needed."""
        if not type(node).__module__.startswith("torch.autograd") or not hasattr(node, "needs_input_grad"):
            return BACKWARD
        owner = getattr(getattr(type(node), "_forward_cls", None), "__module__", "")
        if not owner.startswith("gemmsim."):
            return BACKWARD
        plan, needs = getattr(node, "plan", None), node.needs_input_grad
        asked = [role for role, needed in zip(("dgrad", "wgrad"), needs, strict=False) if needed]
        if plan is not None:  # the others are operators, which name their role
            asked = [role for role in asked if getattr(plan, role).spec is None]
        left = [role for role in asked if role not in self._done]
        return left[0] if left else BACKWARD


def _running() -> tuple[int, int] | None:
    """The backward pass and the autograd node that run in this thread, as numbers; None outside nodes."""
    node = _node()
    return None if node is None else (_task(), node._sequence_nr())


def _recomputes() -> bool:
    """Whether a node computes a checkpointed part of the forward pass again.

    Only then does a node record gradients, except in backward passes that are themselves to be differentiated.
    """
    if not torch.is_grad_enabled():
        return False
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.endswith("checkpoint.py") and "torch" in frame.f_code.co_filename:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
