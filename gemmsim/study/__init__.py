"""Accumulation studies: a grid of specs, one measurement per cell, results that survive an interruption.

    from gemmsim import study
    summary = study.run("wang2018_fig3", "out")     # also `gemmsim study run wang2018_fig3 --out out`
    summary.ok                                      # whether its rows show what the publication says
    study.run(study.kind("growth")(spec=["e5m10", "kahan(e5m10)"], K="2^6:2^13:x2"), "mine")
    study.names(), study.kinds()                    # the available studies and kinds
    study.register("mine", MyStudy)                 # add your own: see gemmsim.study.Study

The studies use only the public API of gemmsim, so each is also an example of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports
from .base import Study as Study
from .capture import capture_layers as capture_layers
from .cells import Cell as Cell
from .checks import Expectation as Expectation
from .checks import Verdict as Verdict
from .checks import counted_sources as counted_sources
from .checks import judge as judge
from .checks import strongest_source as strongest_source
from .dask_pool import Cluster as Cluster
from .errors import ModelMissingError as ModelMissingError
from .errors import StudyError as StudyError
from .execution import Executor as Executor
from .execution import Failure as Failure
from .execution import Inline as Inline
from .execution import Worker as Worker
from .exporting import export as export
from .kinds.kind import Kind as Kind
from .merging import merge as merge
from .parameters import Option as Option
from .parameters import Parameters as Parameters
from .parameters import option as option
from .parameters import options as options
from .pool import Processes as Processes
from .registry import get as get
from .registry import kind as kind
from .registry import kinds as kinds
from .registry import names as names
from .registry import of_folder as of_folder
from .registry import register as register
from .reporting import report as report
from .runner import Plan as Plan
from .runner import RunSummary as RunSummary
from .runner import plan as plan
from .runner import run as run
from .store import ResultStore as ResultStore
from .store import load_rows as load_rows
from .tensor_files import tensor_file as tensor_file

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
