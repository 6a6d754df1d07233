"""The mark of layers that compute otherwise than PyTorch, for modules of PyTorch that compute their children's part."""

from __future__ import annotations

from torch import nn

from gemmsim.ops.fx import Whole

from . import outer

__all__ = ["Emulated", "holds_emulated"]

_PACKAGE = __name__.partition(".")[0]


class Emulated(Whole):
    """A module that must be called, because its ``forward`` is not what its weights alone say.

    ``torch.nn.TransformerEncoder``, ``TransformerEncoderLayer`` and ``MultiheadAttention`` read the weights of their
    children and compute in their place: in evaluation without gradients all of them, and ``out_proj`` always. Of a
    module with this mark somewhere inside they call every child instead, whatever the mode. All layers and quantisers
    of gemmsim have it; give it to your own (``class MyLinear(gemmsim.nn.Emulated, torch.nn.Linear)``). It holds no
    state: not in ``state_dict``, and copies and pickles are as without it. ``torch.fx`` keeps such a module whole.
    """


def _is_emulated(module: nn.Module) -> bool:
    """Whether ``module`` itself has the mark, or a hook of gemmsim that changes its input or result."""
    if isinstance(module, Emulated):
        return True
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    return any((getattr(hook, "__module__", None) or "").partition(".")[0] == _PACKAGE for hook in hooks)


def holds_emulated(module: nn.Module) -> bool:
    """Whether ``module`` or any module inside it is emulated."""
    return any(_is_emulated(m) for m in module.modules())


outer.install(holds_emulated)
