"""Where a call happens: the path of the module that runs, the step, and how many such calls came before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

__all__ = ["Places", "is_wrapper", "paths_of"]

#: Modules around a model that its author did not write: they have no part in paths.
_WRAPPERS = frozenset(
    ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "OptimizedModule", "CheckpointWrapper")
)


def is_wrapper(module: nn.Module) -> bool:
    """Whether ``module`` wraps another one, whose paths it leaves alone."""
    return type(module).__name__ in _WRAPPERS


def unwrapped(module: nn.Module) -> nn.Module:
    """The model inside wrappers."""
    while is_wrapper(module):
        inner = next((getattr(module, n) for n in ("module", "_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
                      if isinstance(getattr(module, n, None), nn.Module)), None)  # fmt: skip
        if inner is None:
            return module
        module = inner
    return module


def paths_of(root: nn.Module) -> dict[int, str]:
    """Path of every module in ``root`` by identity, the names of wrappers left out; the first name of a shared one."""
    found: dict[int, str] = {}

    def walk(module: nn.Module, path: str) -> None:
        if id(module) in found:
            return
        found[id(module)] = path
        inner = unwrapped(module)
        if inner is not module:
            found[id(inner)] = path
        for name, child in inner.named_children():
            walk(child, f"{path}.{name}" if path else name)

    walk(root, "")
    return found


class Places:
    """Paths and counters of one context, kept by hooks on all modules while it is open.

    ``paths``: the names the outermost modules gave, by identity. ``stack``: paths of the modules that run now.
    ``step``: how many calls of outermost modules came before this one, in a tensor, so that compiled code need not know
    the number. ``calls``: how many calls of a kind at a path there were in this step.
    """

    def __init__(self, root: nn.Module | None = None) -> None:
        self.root = None if root is None else unwrapped(root)
        self.paths: dict[int, str] = {} if root is None else paths_of(root)
        self.stack: list[str] = []
        self.counter = torch.zeros((), dtype=torch.int64)
        self.started = False
        self.calls: dict[str, int] = {}
        self.entered: list[Callable[[nn.Module], None]] = []
        self._handles: list[Any] = []

    @property
    def path(self) -> str:
        """Path of the module that runs; "" outside modules."""
        return self.stack[-1] if self.stack else ""

    def start(self) -> None:
        """Hooks on all modules."""
        self._handles = [
            register_module_forward_pre_hook(self.before),
            register_module_forward_hook(self.after, always_call=True),
        ]

    def stop(self) -> None:
        """No hooks any more."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.stack = []

    def before(self, module: nn.Module, args: Any) -> None:
        """A module is about to run."""
        if is_wrapper(module):
            return
        if not self.stack:
            self._outermost(module)
        path = self.paths.get(id(module))
        if path is None:  # made or attached after the outermost call began
            path = self.path
        self.stack.append(path)

    def after(self, module: nn.Module, args: Any, result: Any) -> None:
        """A module has run, or raised."""
        if not is_wrapper(module) and self.stack:
            self.stack.pop()

    def _outermost(self, module: nn.Module) -> None:
        """A call from outside: the next step; its names, if it has none yet."""
        if id(module) not in self.paths:
            self.paths.update(paths_of(module))
            for told in self.entered:
                told(module)
        if self.started:
            self.counter = self.counter + 1
            self.calls = {}
        self.started = True

    def count(self, name: str) -> int:
        """How many calls of this name there were in this step, before this one."""
        n = self.calls.get(name, 0)
        self.calls[name] = n + 1
        return n
