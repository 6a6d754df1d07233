"""Accumulation studies: a grid of specs, one measurement per cell, results that survive an interruption.

    from gemmsim import study
    summary = study.run("digits", "out")        # also `gemmsim study run digits --out out`
    study.names()                               # what is registered
    study.register("mine", MyStudy)             # your own: see gemmsim.study.registry.Study

The studies use only the public API of gemmsim, so each is also an example of it.
"""

from __future__ import annotations

from .cells import Cell
from .errors import StudyError
from .registry import Study, get, names, register
from .runner import Plan, RunSummary, plan, run
from .store import ResultStore, load_rows

__all__ = [
    "Cell",
    "Plan",
    "ResultStore",
    "RunSummary",
    "Study",
    "StudyError",
    "get",
    "load_rows",
    "names",
    "plan",
    "register",
    "run",
]
