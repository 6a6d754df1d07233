"""What linear layers and convolutions share: the argument ``spec``, conversion from torch.nn's modules."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from torch import nn

from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import SpecLike, UnsupportedSpec
from gemmsim.ops import QAffineFormats
from gemmsim.ops.errors import message
from gemmsim.ops.product.amax_history import has_delayed
from gemmsim.ops.product.format_warnings import warn_of_format_alone
from gemmsim.ops.product.short_text import short_formats

from .conversion_report import stands_for
from .emulated_marker import Emulated, keep_called
from .layer_base import HasSpec
from .weights import refuse_own_forward

__all__ = ["AffineModule", "FormatsLike"]

FormatsLike = QAffineFormats | SpecLike
_Module = TypeVar("_Module", bound="AffineModule")


class AffineModule(HasSpec, Emulated, nn.Module):
    """A module of ``torch.nn`` whose products are computed as ``spec`` says.

    You may assign the attribute ``spec`` (or ``formats``) at any time. It is neither a parameter nor a buffer:
    ``state_dict`` has the keys of the torch.nn module, so weights load in both directions. ``formats``, the former
    keyword of the argument, is deprecated.
    """

    #: The torch.nn class that ``from_float`` takes.
    float_class: type[nn.Module]

    def __init_subclass__(cls, **options: Any) -> None:
        """Shows torch.nn's arguments and then ours, where help and editors ask."""
        super().__init_subclass__(**options)
        theirs = next(c for c in cls.__mro__ if c.__module__.startswith("torch.nn.modules."))
        own = list(inspect.signature(cls.__init__).parameters.values())[1:]
        shown = list(inspect.signature(theirs).parameters.values())
        if any(p.kind is p.VAR_POSITIONAL for p in own) and not any(p.kind is p.VAR_POSITIONAL for p in shown):
            own = [*shown, *(p for p in own if p.kind is p.KEYWORD_ONLY)]
        cls.__signature__ = inspect.Signature(own)

    @takes_spec("formats")
    def __init__(self, *args: Any, spec: FormatsLike | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.formats = spec

    @property
    def formats(self) -> QAffineFormats:
        """What the module computes, forward and backward. You may also assign a spec or string; None is PyTorch's own.

        A single format ("e4m3", "e4m3 -> fp16") is that of the accumulator, and warns once
        (``gemmsim.FormatsWarning``). ":e4m3" means the same without a warning; "e4m3 : fp32" has operands in it.
        """
        found: QAffineFormats = self.__dict__["_formats"]
        return found

    @formats.setter
    def formats(self, value: FormatsLike | None) -> None:
        warn_of_format_alone(type(self).__name__, "spec", value)
        formats = QAffineFormats.of(value)
        self._takes(formats)
        self.__dict__["_formats"] = formats

    def _takes(self, formats: QAffineFormats) -> None:
        """Prepare for the formats that the module will compute in, or refuse them.

        Raises:
            UnsupportedSpec: for delayed scales.
        """
        if has_delayed(formats):
            asked, allowed = f"{type(self).__name__} with delayed scales", "QLinear, and gemmsim.emulate"
            raise UnsupportedSpec(message(asked, allowed, "Take the recipe with current scales, hopper_fp8_current."))

    @classmethod
    @takes_spec("formats")
    def from_float(cls: type[_Module], module: nn.Module, spec: FormatsLike | None = None) -> _Module:
        """Return a layer computed as ``spec`` says that has the parameters, hooks and training flag of ``module``.

        Parameters are shared, not copied. A lazy class gives the class that it becomes. ``formats``, the former
        keyword for ``spec``, is deprecated.

        Raises:
            TypeError: for a module whose class is not the class of torch.nn that this one extends. A subclass may
                compute something else and is refused, too, except those of torch.nn that compute the same
                (``NonDynamicallyQuantizableLinear``). A module with an instance attribute ``forward`` is refused as
                well.

        Example:
            >>> plain = torch.nn.Linear(8, 2)
            >>> gs.nn.QLinear.from_float(plain, "e4m3 : fp32").weight is plain.weight
            True
        """
        if not stands_for(module, cls.float_class):
            refuse_own_forward(f"{cls.__name__}.from_float", module)
            asked, allowed = type(module).__name__, f"torch.nn.{cls.float_class.__name__}"
            raise TypeError(
                f"{cls.__name__}.from_float({asked}); allowed: {allowed} itself.\n  Construct {cls.__name__}."
            )
        new = cls.__new__(getattr(cls, "cls_to_become", None) or cls)
        for name, value in module.__dict__.items():
            new.__dict__[name] = value.copy() if isinstance(value, dict) else value
        keep_called(new)
        new.formats = spec
        return new

    def _is_torchs_own(self) -> bool:
        return self.formats.plan.is_native

    def extra_repr(self) -> str:
        """The arguments of torch.nn's module, then the spec in short."""
        return f"{super().extra_repr()}, spec={short_formats(self.formats)}"
