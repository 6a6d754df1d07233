"""The table of overrides: which of PyTorch's calls multiply matrices, and the function that computes each instead.

An override is registered with every spelling of its call:

    @overrides("matmul", torch.matmul, Tensor.matmul, Tensor.__matmul__, names=("input|self", "other|tensor2"))
    def matmul(at, a, b): ...

It gets the ``Site`` of each of its kinds, then the call's arguments. Positional arguments have PyTorch's order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gemmsim.ops.product.affine_plan import AffinePlan

from ..amax_histories import Delayed

__all__ = ["TABLE", "Entry", "Site", "adopt", "bound", "overrides", "packets", "unseen"]


class Site(NamedTuple):
    """The call site of a product and the arithmetic that applies there.

    ``plan``: None for a native product. ``seed`` and ``counter``: of its random bits; None if none are drawn.
    ``name``: "path|kind", for observers; None if no observer needs it. ``delayed``: of products with delayed scales.
    """

    kind: str
    plan: AffinePlan | None
    seed: int | None = None
    counter: Tensor | None = None
    name: str | None = None
    delayed: Delayed | None = None


@dataclass(frozen=True)
class Entry:
    """One override.

    ``kinds``: the kinds of its products. ``run``: the function, called as ``run(*sites, *arguments)``. ``names``: its
    positional arguments, each with all its spellings ("input|self"), for calls with keywords. ``inplace``: whether the
    result replaces the first argument. ``body``: whether ``run`` is called as PyTorch's function is, under the
    emulation. Such a function is a composition of entries of this table, for example the body of a Python function of
    PyTorch (``unseen``).
    """

    kinds: tuple[str, ...]
    run: Any
    names: tuple[tuple[str, ...], ...] = ()
    inplace: bool = False
    body: bool = False


#: Every spelling of every call that multiplies matrices -> its override.
TABLE: dict[Any, Entry] = {}
#: Module of another package, the operator it registers ("namespace::name"), and the equivalent call of the table.
_THEIRS = [("transformers.integrations.moe", "transformers::grouped_mm_fallback", torch.ops.aten._grouped_mm)]


def overrides(
    kinds: str | tuple[str, ...], *spellings: Any, names: tuple[str, ...] = (), inplace: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers an override for ``spellings``; it skips those that this PyTorch lacks (None)."""
    kinds = (kinds,) if isinstance(kinds, str) else kinds

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        entry = Entry(kinds, run, tuple(tuple(name.split("|")) for name in names), inplace)
        for spelling in spellings:
            if spelling is not None:
                TABLE[spelling] = entry
        return run

    return register


def adopt() -> list[Any]:
    """Adds operators of other packages to the table, if these are loaded, and returns the new ones."""
    new = []
    for module, operator, like in _THEIRS:
        namespace, name = operator.split("::")
        if module in sys.modules and like in TABLE:
            packet = getattr(getattr(torch.ops, namespace), name, None)
            if packet is not None and packet not in TABLE:
                TABLE[packet] = TABLE[packet.default] = TABLE[like]
                new += [packet, packet.default]
    return new


def packets(name: str, *overloads: str) -> tuple[Any, ...]:
    """The packet ``torch.ops.aten.name`` and its overloads, ``out`` included.

    Without ``overloads`` these are all except those with a dtype.
    """
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return ()
    chosen = overloads or tuple(o for o in packet.overloads() if "out" not in o and "dtype" not in o)
    written = [o for o in ("out",) if o in packet.overloads() and o not in chosen]
    return (packet, *(getattr(packet, overload) for overload in (*chosen, *written)))


def bound(entry: Entry, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The positional arguments and the remaining keywords of a call.

    Keywords that the entry names become positional arguments.
    """
    if not kwargs:
        return list(args), {}
    given, rest = list(args), dict(kwargs)
    for spellings in entry.names[len(given) :]:
        found = next((name for name in spellings if name in rest), None)
        if found is None:
            break
        given.append(rest.pop(found))
    return given, rest


@lru_cache(maxsize=256)
def unseen(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a Python function of PyTorch that does not pass its call to modes: its body runs."""
    code, names = function.__code__, function.__globals__
    quiet = {**names, "has_torch_function": _no, "has_torch_function_unary": _no, "has_torch_function_variadic": _no}
    found = FunctionType(code, quiet, function.__name__, function.__defaults__, function.__closure__)
    found.__kwdefaults__ = function.__kwdefaults__
    return found


def _no(*args: Any) -> bool:
    return False
