"""What emulated modules other than layers have in common: ``spec`` or two quantisers after torch's arguments."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import nn

from gemmsim._keywords import takes_spec
from gemmsim.ops import DTypeError
from gemmsim.ops.errors import message
from gemmsim.ops.product.affine_formats import QuantLike
from gemmsim.ops.product.short_text import short_formats
from gemmsim.ops.rowwise.formats import read_quant
from gemmsim.ops.torch_versions import NORMS_WITHOUT_BIAS, has, needed

from .emulated_marker import Emulated, keep_called
from .weights import refuse_own_forward

__all__ = ["HasQuants", "HasSpec", "WithFormats", "WithQuants", "adopt", "bias_argument"]

_M = TypeVar("_M", bound=nn.Module)
_F = TypeVar("_F", bound="WithFormats")
_Q = TypeVar("_Q", bound="WithQuants")


def adopt(cls: type[_M], module: nn.Module) -> _M:
    """A ``cls`` that shares ``module``'s parameters, buffers and settings.

    Raises:
        DTypeError: for another kind. TypeError: for a module with a ``forward`` of its own.
    """
    base = next(c for c in cls.__mro__ if c.__module__.startswith("torch.nn.modules"))
    if not isinstance(module, base):
        asked = f"{cls.__name__}.from_float of a {type(module).__name__}"
        raise DTypeError(message(asked, f"a torch.nn.{base.__name__}", "Give such a module."))
    refuse_own_forward(f"{cls.__name__}.from_float", module)
    new = cls.__new__(cls)
    new.__dict__.update({k: v.copy() if isinstance(v, dict) else v for k, v in module.__dict__.items()})
    keep_called(new)
    return new


def bias_argument(bias: bool) -> dict[str, Any]:
    """``bias`` as torch.nn takes it: older releases know no such argument and always have one.

    Raises:
        TorchVersionError: for False with such a release.
    """
    if bias:
        return {}
    if not has(NORMS_WITHOUT_BIAS):
        do = "Install a newer PyTorch, or set the layer's bias to zeros and freeze it."
        raise needed("bias=False of a group or batch norm", NORMS_WITHOUT_BIAS, do)
    return {"bias": bias}


class HasSpec:
    """Mixin of modules with an attribute ``formats``, also named ``spec``, that the argument ``spec`` sets."""

    @property
    def spec(self) -> Any:
        """``formats``; you may assign whatever the argument takes."""
        return self.formats

    @spec.setter
    def spec(self, value: Any) -> None:
        self.formats = self._read(value)

    @classmethod
    def _read(cls, spec: Any) -> Any:
        """What ``formats`` is for this argument."""
        return spec


class WithFormats(HasSpec, Emulated):
    """Modules whose last argument is ``spec``."""

    formats: Any

    @classmethod
    @takes_spec("formats")
    def from_float(cls: type[_F], module: nn.Module, spec: Any = None) -> _F:
        """Return a module computed as ``spec`` says that shares the parameters and settings of ``module``.

        ``formats``, the former keyword for ``spec``, is deprecated.

        Example:
            >>> gs.nn.QSoftmax.from_float(torch.nn.Softmax(dim=-1), "e4m3").dim
            -1
        """
        new = adopt(cls, module)  # type: ignore[type-var]
        new.formats = cls._read(spec)
        return new

    def _is_torchs_own(self) -> bool:
        native: bool = self.formats.plan.is_native
        return native

    @classmethod
    def _read(cls, spec: Any) -> Any:
        return cls._KIND.of(spec)  # type: ignore[attr-defined]

    def extra_repr(self) -> str:
        """The arguments of torch's module, and the spec in short."""
        first = super().extra_repr()  # type: ignore[misc]
        return f"{first}{', ' if first else ''}spec={short_formats(self.formats)}"


class HasQuants:
    """Mixin of modules with the attributes ``fwd_quant`` and ``bwd_quant``."""

    fwd_quant: Any
    bwd_quant: Any

    def _put(self, fwd_quant: QuantLike | None, bwd_quant: QuantLike | None) -> None:
        owner = type(self).__name__
        self.fwd_quant = read_quant(owner, "fwd_quant", fwd_quant)
        self.bwd_quant = read_quant(owner, "bwd_quant", bwd_quant)

    @property
    def _steps(self) -> dict[str, Any]:
        return {"fwd_quant": self.fwd_quant, "bwd_quant": self.bwd_quant}

    def extra_repr(self) -> str:
        """The arguments of torch's module, its spec where it has one, and the quantisers."""
        first = super().extra_repr()  # type: ignore[misc]
        quants = [f"{name}={value!s}" for name, value in self._steps.items() if value is not None]
        return ", ".join([first, *quants] if first else quants)


class WithQuants(HasQuants, Emulated):
    """Modules whose last arguments are ``fwd_quant`` and ``bwd_quant``."""

    @classmethod
    def from_float(
        cls: type[_Q], module: nn.Module, fwd_quant: QuantLike | None = None, bwd_quant: QuantLike | None = None
    ) -> _Q:
        """Return a module with these quantisers that shares the parameters, buffers and settings of ``module``.

        Example:
            >>> gs.nn.QAvgPool2d.from_float(torch.nn.AvgPool2d(2), fwd_quant="e4m3")
            QAvgPool2d(kernel_size=2, stride=2, padding=0, fwd_quant=e4m3)
        """
        new = adopt(cls, module)  # type: ignore[type-var]
        new._put(fwd_quant, bwd_quant)
        return new

    def _is_torchs_own(self) -> bool:
        return self.fwd_quant is None and self.bwd_quant is None
