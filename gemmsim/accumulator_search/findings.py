"""What a search found, as data: the setting as a config, the front, and the table a layer."""

from __future__ import annotations

from dataclasses import dataclass, field

from gemmsim.emulation import Config

from .metrics import Measurement

__all__ = ["Findings", "FrontPoint", "LayerRow"]


@dataclass(frozen=True)
class FrontPoint:
    """A setting of the Pareto front, or one that was verified on the way to the chosen one.

    ``cost``: accumulator bits times multiply-adds per sample, unless the search was given another cost. ``bits``: mean
    width of an accumulator, weighted by multiply-adds. ``predicted``: error by the table and the inflation.
    ``measured``: error of the whole model on the calibration inputs, None where it was not run. ``registers``: one
    accumulator format per layer, in the order of the table.

    Example:
        >>> layer = torch.nn.utils.skip_init(torch.nn.Linear, 64, 8, bias=False)
        >>> _ = layer.weight.data.copy_(torch.linspace(-1, 1, 512).view(8, 64))
        >>> gs.search(layer, torch.linspace(0, 1, 4096).view(64, 64), at_most=0.1).chosen.registers
        ('e5m6',)
    """

    cost: float
    bits: float
    predicted: float
    measured: float | None
    registers: tuple[str, ...]


@dataclass(frozen=True)
class LayerRow:
    """A layer and what was chosen for it.

    ``path``, ``kind``: the place of the products, as rules name it. ``K``: terms of the longest sum. ``macs``:
    multiply-adds per sample. ``spec``, ``register``, ``bits``: the choice. ``alone``: error of the model with this
    choice in this layer only, infinite where an output is not finite; it is measured, or predicted after "captured".
    ``sensitivity``: error of the model over the layer's own, None where the whole model was run for each entry.

    Example:
        >>> layer = torch.nn.utils.skip_init(torch.nn.Linear, 64, 8, bias=False)
        >>> _ = layer.weight.data.copy_(torch.linspace(-1, 1, 512).view(8, 64))
        >>> for row in gs.search(layer, torch.linspace(0, 1, 4096).view(64, 64), at_most=0.1).table:
        ...     print(row.kind, row.K, row.macs, row.spec, row.bits)
        linear 64 512.0 :e5m6 12
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
