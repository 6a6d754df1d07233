"""The result of a search: what was found, with what can be done with it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gemmsim._files import write_text
from gemmsim.emulation import Config

from .errors import refusal
from .findings import Findings, FrontPoint
from .front_plot import draw_front
from .layers import Layer
from .metrics import Measurement
from .words import in_words

__all__ = ["SearchResult"]


@dataclass(frozen=True, repr=False)
class SearchResult(Findings):
    """The result of ``gemmsim.search``.

    ``config``: the chosen setting, for ``gs.emulate``, ``gs.convert``, and ``config.formats(path, kind)`` for a layer
    of ``gemmsim.nn``. ``chosen``: its point; ``front``: points of the Pareto front by rising cost, the verified ones
    among them; ``table``: one row per layer. ``measured``: error and limit on the calibration inputs, ``held_back`` on
    those that took no part (None without any). ``widest``: error of the widest setting. ``inflation``: measured over
    predicted errors, the 95 % value of ``random_settings`` settings. ``method``: how the table was made. ``passes``:
    runs of the whole model. ``native_macs``: multiply-adds per sample that stay PyTorch's own, at ``native_places``.

    Example:
        >>> layer = torch.nn.utils.skip_init(torch.nn.Linear, 64, 8, bias=False)
        >>> _ = layer.weight.data.copy_(torch.linspace(-1, 1, 512).view(8, 64))
        >>> gs.search(layer, torch.linspace(0, 1, 4096).view(64, 64), at_most=0.1).held_back_error < 0.1
        True
    """

    @property
    def held_back_error(self) -> float | None:
        """Error on the inputs that took no part; None without any."""
        return None if self.held_back is None else self.held_back.error

    def config_at(self, point: FrontPoint) -> Config:
        """The config of another point of the front.

        Raises:
            SearchError: for a point of another search.
        """
        unknown = [register for register in point.registers if register not in self.specs]
        if unknown or len(point.registers) != len(self.table):
            raise refusal(
                "config_at: a point of another search", "points of this result's front", "Take one of result.front."
            )
        rows = zip(self.table, point.registers, strict=True)
        return Config([Layer(row.path, row.kind, row.K, row.macs).rule(self.specs[name]) for row, name in rows])

    def to_dict(self) -> dict[str, Any]:
        """The result as plain values; infinities are the text "inf". ``config`` is as ``Config.from_dict`` reads it."""
        names = [name for name in self.__dataclass_fields__ if name not in ("config", "specs")]
        found: dict[str, Any] = {"version": 1, "config": self.config.to_dict()}
        for name in names:
            value = getattr(self, name)
            if isinstance(value, Measurement):
                value = value._asdict()
            elif name in ("front", "table"):
                value = [asdict(one) for one in value]
            found[name] = asdict(value) if name == "chosen" else value
        plain: dict[str, Any] = _plain(found)
        return plain

    def to_json(self) -> str:
        """``to_dict`` as text."""
        return json.dumps(self.to_dict(), indent=1)

    def save(self, path: str | Path) -> None:
        """Writes ``to_json`` to a file, atomically; OSError where it cannot be written."""
        write_text(Path(path), self.to_json() + "\n")

    def plot(self, path: str | Path) -> Path:
        """Writes a plot of the front to a .png or .svg file and returns its path.

        Raises:
            StudyError: for another suffix, without matplotlib, and where the file cannot be written.
        """
        return draw_front(self, Path(path))

    def explain(self) -> str:
        """What was found, in sentences and a table."""
        return in_words(self)

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        bits = f"{self.chosen.bits:.3g} bits per multiply-add"
        return f"<SearchResult: {len(self.table)} layers, {bits}, {self.metric} {self.measured.error:.3g}>"


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value
