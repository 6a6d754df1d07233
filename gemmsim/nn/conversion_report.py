"""What a converter of models did: a table of the layers it converted, and of the products it left to PyTorch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrize import is_parametrized

from .emulated_marker import Emulated, is_ours
from .undoing import unchanged_on_error

__all__ = ["Conversion", "Converted", "Left", "stands_for"]

_LOG = logging.getLogger("gemmsim")
#: Modules of PyTorch that multiply matrices of their own.
_PRODUCTS = (nn.Linear, nn.Bilinear, _ConvNd, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)


def stands_for(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Return whether ``module`` is a ``kind``, or a subclass of it in torch.nn that computes the same.

    One such subclass is ``NonDynamicallyQuantizableLinear``, the output projection of ``nn.MultiheadAttention``. The
    result is False for subclasses of other packages, parametrised and lazy modules, and modules that have an instance
    attribute ``forward``, because they may compute something else.

    Example:
        >>> gs.nn.stands_for(torch.nn.MultiheadAttention(8, 2).out_proj, torch.nn.Linear)
        True
        >>> gs.nn.stands_for(torch.nn.LazyLinear(8), torch.nn.Linear)
        False
    """
    if "forward" in vars(module):
        return False
    found = type(module)
    if found is kind:
        return True
    theirs = found.__module__.startswith("torch.nn.modules.") and issubclass(found, kind)
    return theirs and found.forward is kind.forward and not isinstance(module, nn.modules.lazy.LazyModuleMixin)


class Converted(NamedTuple):
    """A layer that was converted."""

    name: str
    before: str
    after: str


class Left(NamedTuple):
    """A layer whose products are PyTorch's; ``expected``: as it was asked for, or as the converter always does."""

    name: str
    kind: str
    why: str
    expected: bool


@dataclass(frozen=True)
class Conversion:
    """What a conversion (``owner``) did to a model; its text is a table.

    ``converted`` lists the layers that were replaced or given another class. ``left`` lists every other module whose
    own matrix products PyTorch computes, with the reason. Layers of gemmsim that were there before are in neither
    list.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Bilinear(8, 8, 2))
        >>> print(gs.nn.Conversion.of("my_tool", model, {"0": "Linear"}))
        my_tool: 1 converted, 1 left
          0  Linear -> Linear
          1  Bilinear: stays native, this converter has no such layer
    """

    owner: str
    converted: tuple[Converted, ...]
    left: tuple[Left, ...]

    @classmethod
    def of(
        cls,
        owner: str,
        model: nn.Module,
        converted: Mapping[str, str],
        why: Callable[[str, nn.Module], tuple[str, bool]] | None = None,
    ) -> Conversion:
        """Return the table of ``model`` as it is now.

        Args:
            converted: maps the name of a layer in the model to the name of its class before the conversion.
            why: gives the reason why a layer was left, and whether the caller asked for that; by default a layer is
                left because the converter does not handle its class.

        Example:
            >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
            >>> report = gs.nn.Conversion.of("my_tool", model, {"0": "Linear"})
            >>> [one.name for one in report.converted], [one.name for one in report.left]
            (['0'], ['1'])
        """
        rows = [Converted(name, kind, _kind(model.get_submodule(name))) for name, kind in converted.items()]
        left = []
        for name, module in model.named_modules():
            if name in converted or _is_converted(module) or not isinstance(module, _PRODUCTS):
                continue
            if isinstance(module, nn.MultiheadAttention):
                reason = "its input projection and attention are not layers; use gemmsim.nn.QMultiheadAttention"
                left.append(Left(name, f"{_kind(module)} (all but out_proj)", reason, False))
            else:
                reason, expected = ("this converter has no such layer", True) if why is None else why(name, module)
                left.append(Left(name, _kind(module), reason, expected))
        return cls(owner, tuple(rows), tuple(left))

    @classmethod
    @contextmanager
    def watched(
        cls, owner: str, model: nn.Module, why: Callable[[str, nn.Module], tuple[str, bool]] | None = None
    ) -> Iterator[None]:
        """Record what the body of the ``with`` statement does to ``model`` and log it (``tell``); undo it if the body
        raises.

        ``why``: as in ``of``.

        Example:
            >>> model = torch.nn.Sequential(torch.nn.Linear(8, 2))
            >>> with gs.nn.Conversion.watched("my_tool", model):
            ...     model[0] = gs.nn.QLinear.from_float(model[0], "e4m3 : fp32")
        """
        before = {name: (module, _kind(module)) for name, module in model.named_modules()}
        with unchanged_on_error(model):
            yield
        after = {name: (module, _kind(module)) for name, module in model.named_modules()}
        converted = {
            name: before[name][1]
            for name, (module, kind) in after.items()
            if name in before and (module is not before[name][0] or kind != before[name][1])
        }
        cls.of(owner, model, converted, why).tell()

    def tell(self, report: Callable[[Conversion], Any] | None = None) -> Conversion:
        """Call ``report`` with this table; without ``report``, log it to the logger "gemmsim".

        The level is WARNING if a layer was left that no argument excluded, and INFO otherwise.

        Example:
            >>> model = torch.nn.Sequential(torch.nn.Linear(8, 2))
            >>> report = gs.nn.Conversion.of("my_tool", model, {"0": "Linear"}).tell(print)
            my_tool: 1 converted, 0 left
              0  Linear -> Linear
        """
        if report is not None:
            report(self)
        elif self.converted or self.left:
            surprising = any(not row.expected for row in self.left)
            _LOG.log(logging.WARNING if surprising else logging.INFO, "%s", self)
        return self

    def __str__(self) -> str:
        rows = [(row.name or "(the model)", f"{row.before} -> {row.after}") for row in self.converted]
        rows += [(row.name or "(the model)", f"{row.kind}: stays native, {row.why}") for row in self.left]
        width = max((len(name) for name, _ in rows), default=0)
        head = f"{self.owner}: {len(self.converted)} converted, {len(self.left)} left"
        return "\n".join([head, *(f"  {name:{width}}  {text}" for name, text in rows)])


def _encoded(module: nn.Module) -> str:
    """Name of the class of a weight that is a kind of tensor of gemmsim, which computes products itself; else empty."""
    # a look at a parametrised weight computes it, which may change its module
    kind = type(None if is_parametrized(module, "weight") else getattr(module, "weight", None))
    return kind.__name__ if any(is_ours(base) for base in kind.__mro__) else ""


def _is_converted(module: nn.Module) -> bool:
    return isinstance(module, Emulated) or bool(_encoded(module))


def _kind(module: nn.Module) -> str:
    weight = _encoded(module)
    return f"{type(module).__name__} of {weight}" if weight else type(module).__name__
