"""A small training loop: progress, metrics as JSON lines, checkpoints from which a run continues with the same bits.

rows = gemmsim.train.fit(model, optimizer, loss, data, epochs=10, folder="run")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports

if TYPE_CHECKING:
    from .data import Batches as Batches
    from .files import TrainError as TrainError
    from .files import read_metrics as read_metrics
    from .hugging_face import trainer_callback as trainer_callback
    from .loop import fit as fit
    from .plot import curves_plot as curves_plot
else:
    __getattr__, __dir__ = exports(__name__)
