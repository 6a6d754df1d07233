"""A small training loop: progress, metrics as JSON lines, checkpoints from which a run goes on with the same bits.

rows = gemmsim.train.fit(model, optimizer, loss, data, epochs=10, folder="run")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .data import Batches as Batches
    from .files import TrainError as TrainError
    from .files import read_metrics as read_metrics
    from .loop import fit as fit
    from .plot import curves_plot as curves_plot

_HOME = {
    "Batches": "data",
    "TrainError": "files",
    "curves_plot": "plot",
    "fit": "loop",
    "read_metrics": "files",
}

__all__ = [
    "Batches",
    "TrainError",
    "curves_plot",
    "fit",
    "read_metrics",
]


if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        """Load a public name on first use (PEP 562)."""
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
