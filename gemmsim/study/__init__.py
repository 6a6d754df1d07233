"""Accumulation studies: a grid of specs, one measurement per cell, results that survive an interruption.

    from gemmsim import study
    summary = study.run("wang2018_fig3", "out")     # also `gemmsim study run wang2018_fig3 --out out`
    summary.ok                                      # whether its rows show what the publication says
    study.run(study.kind("growth")(spec=["e5m10", "kahan(e5m10)"], K="2^6:2^13:x2"), "mine")
    study.names(), study.kinds()                    # what there is
    study.register("mine", MyStudy)                 # your own: see gemmsim.study.Study

The studies use only the public API of gemmsim, so each is also an example of it.
"""

from __future__ import annotations

from .base import Study
from .capture import capture_layers
from .cells import Cell
from .checks import Expectation, Verdict, counted_sources, judge, strongest_source
from .dask_pool import Cluster
from .errors import ModelMissingError, StudyError
from .execution import Executor, Failure, Inline, Worker
from .exporting import export
from .kinds.kind import Kind
from .kinds.registry import kinds
from .kinds.registry import load as kind
from .merging import merge
from .parameters import Option, Parameters, option, options
from .pool import Processes
from .registry import get, names, of_folder, register
from .reporting import report
from .runner import Plan, RunSummary, plan, run
from .store import ResultStore, load_rows

__all__ = [
    "Cell",
    "Cluster",
    "Executor",
    "Expectation",
    "Failure",
    "Inline",
    "Kind",
    "ModelMissingError",
    "Option",
    "Parameters",
    "Plan",
    "Processes",
    "ResultStore",
    "RunSummary",
    "Study",
    "StudyError",
    "Verdict",
    "Worker",
    "capture_layers",
    "counted_sources",
    "export",
    "get",
    "judge",
    "kind",
    "kinds",
    "load_rows",
    "merge",
    "names",
    "of_folder",
    "option",
    "options",
    "plan",
    "register",
    "report",
    "run",
    "strongest_source",
]


def __dir__() -> list[str]:
    """What the page lists; the modules behind it are found by their names all the same."""
    return sorted(__all__)
