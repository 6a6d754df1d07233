"""What a search found, as data: the setting as a config, the front, and the table a layer."""

from __future__ import annotations

from dataclasses import dataclass, field

from gemmsim.emulation import Config

from .metrics import Measurement

__all__ = ["Findings", "FrontPoint", "LayerRow"]


@dataclass(frozen=True)
class FrontPoint:
    """A setting of the Pareto front, or one that was verified on the way to the chosen one.

    ``cost``: register bits times multiply-adds a sample, unless the search was given another cost. ``bits``: mean width
    of a register, weighted by multiply-adds. ``predicted``: error by the table and the inflation. ``measured``: error
    of the whole model on the calibration inputs, None where it was not run. ``registers``: one a layer, in the order of
    the table.
    """

    cost: float
    bits: float
    predicted: float
    measured: float | None
    registers: tuple[str, ...]


@dataclass(frozen=True)
class LayerRow:
    """A layer and what was chosen for it.

    ``path``, ``kind``: where the products are, as rules name them. ``K``: terms of the longest sum. ``macs``:
    multiply-adds a sample. ``spec``, ``register``, ``bits``: what was chosen. ``alone``: error of the model with only
    this layer there, infinite where an output is not finite; measured, or after "captured" predicted.
    ``sensitivity``: error of the model over the layer's own, None where the whole model was run for each entry.
    """

    path: str
    kind: str
    K: int
    macs: float
    spec: str
    register: str
    bits: int
    alone: float
    sensitivity: float | None


@dataclass(frozen=True, repr=False)
class Findings:
    """The fields of ``SearchResult``, which describes them."""

    config: Config
    chosen: FrontPoint
    front: tuple[FrontPoint, ...]
    table: tuple[LayerRow, ...]
    at_most: float
    metric: str
    order: str
    ladder: tuple[str, ...]
    measured: Measurement
    held_back: Measurement | None
    samples: int
    samples_held_back: int
    widest: float
    method: str
    reference: str
    inflation: float
    random_settings: int
    passes: int
    seconds: float
    native_macs: float
    native_places: tuple[str, ...]
    specs: dict[str, str] = field(default_factory=dict)
