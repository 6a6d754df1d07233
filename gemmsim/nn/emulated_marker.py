"""The mark of layers that compute otherwise than PyTorch, for modules of PyTorch that compute their children's part."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as every_module

from gemmsim.ops.errors import ShapeError, message
from gemmsim.ops.fx import Whole
from gemmsim.ops.lazy_dynamo import assume_constant_result, uncompiled

__all__ = ["Emulated", "NotCalledError", "holds_emulated", "is_ours", "keep_called"]

_PACKAGE = __name__.partition(".")[0]
_PLAIN = (nn.Parameter, Tensor, type(None))
#: Key of the hook among a module's: the same in every module and process, so that copies and pickles have it once.
_KEY = -0x6E6F
#: What computes attention without calling ``out_proj``.
_ATTENTION = nn.MultiheadAttention.forward.__code__
_LINES = frozenset(line for _, _, line in _ATTENTION.co_lines())
#: What it reads of ``out_proj``; a parametrised weight is read off the class.
_READ = ("weight", "bias")
_DO = "Try gemmsim.nn.call_children(model) once, after inserting layers and before the model runs."
_tracing = torch._C._get_tracing_state
_is_traced = torch.compiler.is_dynamo_compiling
_frame = sys._getframe


class NotCalledError(RuntimeError):
    """Raised when a module of PyTorch is about to multiply with the weight of an emulated layer that it never calls.

    Example:
        >>> attention = torch.nn.MultiheadAttention(8, 2)
        >>> attention.out_proj = gs.nn.QLinear(8, 8, spec="e4m3 : fp32")
        >>> attention(*[torch.ones(3, 8)] * 3)
        Traceback (most recent call last):
            ...
        gemmsim.nn.emulated_marker.NotCalledError: nn.MultiheadAttention that multiplies with its ...
    """


class _Signature:
    """``__signature__`` of a class: that of PyTorch's class behind it, where it has no constructor of its own."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature | None:
        if instance is not None or owner.__init__ is not Emulated.__init__:  # type: ignore[misc]
            return None  # which means: not known here
        after = owner.__mro__[owner.__mro__.index(Emulated) + 1 :]
        return inspect.signature(next(kind for kind in after if "__init__" in vars(kind)))


class _Direct:
    """``Module.__call__`` past the hook that every emulated module has, which does nothing."""

    @uncompiled
    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        if _is_traced():
            return self.forward(*args, **kwargs) if _is_alone(self) else super()._call_impl(*args, **kwargs)  # type: ignore[attr-defined, misc]
        try:
            if _is_alone(self) and _tracing() is None:
                return self.forward(*args, **kwargs)  # type: ignore[attr-defined]
            return super()._call_impl(*args, **kwargs)  # type: ignore[misc]
        except Exception as error:
            if not any(isinstance(value, Tensor) and value.is_nested for value in args):
                raise
            asked = f"{type(self).__name__} of a nested tensor, which nn.TransformerEncoder makes in evaluation"
            raise ShapeError(message(asked, "padded tensors", _DO)) from error


class Emulated(Whole, _Direct):
    """Base class of modules that must be called, because ``forward`` does more than a product with their weights.

    ``torch.nn.TransformerEncoder``, ``TransformerEncoderLayer`` and ``MultiheadAttention`` read the weights of their
    children and compute the result themselves. All three do so in evaluation without gradients; attention never calls
    its ``out_proj``. All layers and quantisers of gemmsim derive from this class. You can derive your own layers from
    it, too: ``class MyLinear(gemmsim.nn.Emulated, torch.nn.Linear)``.

    An emulated module has a forward pre-hook that does nothing, because ``TransformerEncoderLayer`` calls children
    that have hooks. ``nn.MultiheadAttention`` gets ``NotCalledError`` (a RuntimeError) when it reads the weight of an
    emulated ``out_proj``. A nested tensor that the module cannot compute raises ``ShapeError``. After
    ``call_children`` both work. The class adds nothing to ``state_dict``, and ``torch.fx`` does not trace into such a
    module.

    Example:
        >>> MyLinear = type("MyLinear", (gs.nn.Emulated, torch.nn.Linear), {})
        >>> isinstance(gs.nn.QLinear(4, 2), gs.nn.Emulated), len(MyLinear(4, 2)._forward_pre_hooks)
        (True, 1)
    """

    __signature__: Any = _Signature()

    if not TYPE_CHECKING:  # for which constructors and attributes are those of the class behind

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            keep_called(self)

        def __setstate__(self, state: Any) -> None:
            super().__setstate__(state)
            keep_called(self)  # a file may be older than the hook

        def __getattr__(self, name: str) -> Any:
            if name in _READ and (_is_traced_in_attention() if _is_traced() else _frame(1).f_code is _ATTENTION):
                asked = f"nn.MultiheadAttention that multiplies with its out_proj's weight, a {type(self).__name__}"
                raise NotCalledError(message(asked, "an attention that calls its out_proj", _DO))
            return super().__getattr__(name)


@assume_constant_result
def _is_traced_in_attention() -> bool:
    """Whether ``nn.MultiheadAttention.forward`` makes the read that the compiler follows; it runs this as it is."""
    stack = torch._guards.TracingContext.extract_stack()
    reader = next((frame for frame in reversed(stack) if frame.filename != __file__), None)
    return reader is not None and reader.filename == _ATTENTION.co_filename and reader.lineno in _LINES


def _is_alone(module: Any) -> bool:
    """Whether the hook of emulated modules is the only one that a call of ``module`` would run."""
    return (
        len(module._forward_pre_hooks) == 1
        and _KEY in module._forward_pre_hooks
        and not (module._forward_hooks or module._backward_hooks or module._backward_pre_hooks)
        and not (every_module._global_forward_hooks or every_module._global_forward_pre_hooks)
        and not (every_module._global_backward_hooks or every_module._global_backward_pre_hooks)
    )


def _called(module: nn.Module, args: Any) -> None:
    """The hook of a module that must be called."""


def keep_called(module: Any) -> None:
    """Give ``module`` a hook that does nothing, once: encoder layers of PyTorch call modules that have one."""
    module._forward_pre_hooks.setdefault(_KEY, _called)


def _is_emulated(module: nn.Module) -> bool:
    """Whether ``module`` itself has the mark, a hook of gemmsim, or a parameter that is a kind of tensor of gemmsim."""
    if isinstance(module, Emulated):
        return True
    for parameter in module._parameters.values():
        if type(parameter) not in _PLAIN and any(is_ours(kind) for kind in type(parameter).__mro__):
            return True
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    return any(is_ours(hook) and hook is not _called for hook in hooks)


def is_ours(thing: object) -> bool:
    """Whether a class or function is defined in this package."""
    return (getattr(thing, "__module__", None) or "").partition(".")[0] == _PACKAGE


def holds_emulated(module: nn.Module) -> bool:
    """Whether ``module`` or any module inside it is emulated."""
    return any(_is_emulated(m) for m in module.modules())
