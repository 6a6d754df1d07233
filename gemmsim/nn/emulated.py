"""The mark of layers that compute otherwise than PyTorch, for modules of PyTorch that compute their children's part."""

from __future__ import annotations

from torch import Tensor, nn

from gemmsim.ops.fx import Whole

from . import outer

__all__ = ["Emulated", "holds_emulated", "is_ours"]

_PACKAGE = __name__.partition(".")[0]
_PLAIN = (nn.Parameter, Tensor, type(None))


class Emulated(Whole):
    """A module that must be called, because its ``forward`` is not what its weights alone say.

    ``torch.nn.TransformerEncoder``, ``TransformerEncoderLayer`` and ``MultiheadAttention`` read the weights of their
    children and compute in their place: in evaluation without gradients all of them, and ``out_proj`` always. Of a
    module with this mark somewhere inside they call every child instead, whatever the mode. All layers and quantisers
    of gemmsim have it; give it to your own (``class MyLinear(gemmsim.nn.Emulated, torch.nn.Linear)``). It holds no
    state: not in ``state_dict``, and copies and pickles are as without it. ``torch.fx`` keeps such a module whole.
    """

    #: What is asked for. No ``isinstance``: PyTorch's methods are replaced once, this class anew when it is reloaded.
    _gemmsim_emulated = True


def _is_emulated(module: nn.Module) -> bool:
    """Whether ``module`` itself has the mark, a hook of gemmsim, or a parameter that is a kind of tensor of gemmsim."""
    if getattr(type(module), "_gemmsim_emulated", False):
        return True
    for parameter in module._parameters.values():
        if type(parameter) not in _PLAIN and any(is_ours(kind) for kind in type(parameter).__mro__):
            return True
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    return any(is_ours(hook) for hook in hooks)


def is_ours(thing: object) -> bool:
    """Whether a class or function is defined in this package."""
    return (getattr(thing, "__module__", None) or "").partition(".")[0] == _PACKAGE


def holds_emulated(module: nn.Module) -> bool:
    """Whether ``module`` or any module inside it is emulated."""
    return any(_is_emulated(m) for m in module.modules())


outer.install(holds_emulated)
