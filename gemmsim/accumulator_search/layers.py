"""The layers of a search: the products of a model that rules of ``emulate`` reach, by module path and kind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

import gemmsim as gs
from gemmsim.emulation import Config, Recorder, Rule

from .batches import Batch, samples_in
from .errors import refusal
from .options import SearchOptions

__all__ = ["Layer", "Products", "find_layers", "pattern_of"]


@dataclass(frozen=True)
class Layer:
    """The products of one kind at a module path. ``K``: terms of the longest sum; ``macs``: multiply-adds a sample."""

    path: str
    kind: str
    K: int
    macs: float

    @property
    def name(self) -> str:
        """Path and kind in words."""
        return f"{self.path or 'the model itself'}, {self.kind}"

    def rule(self, spec: str) -> Rule:
        """The rule that gives these products alone a spec."""
        return Rule(pattern_of(self.path), self.kind, spec)


@dataclass(frozen=True)
class Products:
    """Layers in the order of their first products, and what no layer has: multiply-adds a sample of other products."""

    layers: tuple[Layer, ...]
    other_macs: float
    others: tuple[str, ...]


class _Seen(Recorder):
    """Sizes of the forward products of a run, by call site; of others the places."""

    def __init__(self) -> None:
        super().__init__()
        self.products: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.others: dict[str, int] = {}

    def before(self, found: Any) -> None:
        """Notes K and multiply-adds of one product."""
        path, mark, kind = (found.leaf.site or "").rpartition("|")
        if mark and found.op.startswith("gemmsim."):
            self.products.setdefault((path, kind), []).append((int(found.leaf.shape[2]), int(found.leaf.macs)))
            return
        name = f"{found.op} in {found.module!r}" if found.module else f"{found.op} outside modules"
        self.others[name] = self.others.get(name, 0) + int(found.leaf.macs)


def find_layers(model: nn.Module, batches: Sequence[Batch], spec: str, options: SearchOptions) -> Products:
    """The products of a forward pass over the batches that the options select.

    Raises:
        SearchError: where there is none; it says what was multiplied instead.
    """
    seen = _Seen()
    # A pattern over modules, which makes the call sites say their paths.
    everything = Config([Rule("re:(?s:.*)", "*", spec)])
    with gs.emulate(everything, seed=options.seed, root=model, step=0), seen:
        for batch in batches:
            model(*batch.args, **batch.kwargs)
    samples = samples_in(batches)
    wanted, others = {}, dict(seen.others)
    for (path, kind), sizes in seen.products.items():
        macs = sum(macs for _, macs in sizes)
        if _selected(path, kind, options):
            wanted[path, kind] = Layer(path, kind, max(k for k, _ in sizes), macs / samples)
        else:
            name = f"{kind} in {path!r}"
            others[name] = others.get(name, 0) + macs
    layers = tuple(layer for layer in wanted.values() if layer.macs)
    if not layers:
        raise _nothing(others, options)
    return Products(layers, sum(others.values()) / samples, tuple(sorted(others)))


def _selected(path: str, kind: str, options: SearchOptions) -> bool:
    return any(
        Rule(modules, kinds).reaches(path, kind)
        for modules in options.module_patterns
        for kinds in options.kind_patterns
    )


def _nothing(others: dict[str, int], options: SearchOptions) -> Exception:
    """The error about a model none of whose products can be chosen for."""
    asked = "a model without matched products"
    patterns = options.module_patterns != ("*",) or options.kind_patterns != ("*",)
    if patterns:
        asked += f" of modules={options.modules!r}, kinds={options.kinds!r}"
    there = ", ".join(sorted(others)[:6]) + (", ..." if len(others) > 6 else "")
    if not others:
        do = "Nothing was multiplied at all; gemmsim.audit(model, x) lists what a model multiplies."
    elif patterns:
        do = f"There is: {there}. Change the patterns."
    else:
        do = f"It multiplies: {there}. Layers of gemmsim.nn keep their own formats. Search a model of torch.nn layers."
    return refusal(f"{asked} (0 of {len(others)})", "models with products that gemmsim.emulate replaces", do)


_PLAIN = re.compile(r"[\w.-]*")


def pattern_of(path: str) -> str:
    """A pattern of rules that matches this path alone."""
    return path if _PLAIN.fullmatch(path) else f"re:{re.escape(path)}"
