"""A pytest plugin for the GPU check (``-p gpu_pytest``): every test's outcome is a finding as soon as it is known.

Tests that have a finding are left out, and those that need longest come first. A failure names the kernels that the
test launched last. A test that takes the GPU away, or does not end, is a failure and ends its process; pytest-xdist
starts another, or ``gpu_check.py`` does.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_process import GPU_LOST, die_with_parent, gpu_is_lost, watchdog
from gpu_results import Results

#: Set by gpu_check.py: the folder of results; a JSON file with seconds of tests; most seconds of a test.
FOLDER, TIMES, LIMIT = "GEMMSIM_GPU_RESULTS", "GEMMSIM_GPU_TIMES", "GEMMSIM_GPU_TEST_LIMIT"
PART = "tests"
_DONE = "gemmsim_done"


class Plugin:
    """Of one process: that of pytest, or one of those that pytest-xdist starts."""

    def __init__(self, config: pytest.Config) -> None:
        self.results = Results(Path(os.environ[FOLDER]))
        self.worker = hasattr(config, "workerinput")
        self.runs_tests = self.worker or not getattr(config.option, "numprocesses", None)
        self.names: Any = None
        self.seconds: dict[str, float] = {}
        # Of all processes the same: pytest-xdist counts tests, also for a process that takes the place of another.
        input = getattr(config, "workerinput", {})
        self.done = set(input[_DONE]) if _DONE in input else set(self.results.run.part(PART))
        self.limit = float(os.environ.get(LIMIT, "180"))
        if self.worker:
            die_with_parent()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        times = os.environ.get(TIMES)
        known: dict[str, float] = json.loads(Path(times).read_text(encoding="utf-8")) if times else {}
        left = [item for item in items if item.nodeid not in self.done]
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in self.done])
        items[:] = sorted(left, key=lambda item: -known.get(item.nodeid, 0.0))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Of pytest-xdist, before a process starts."""
        node.workerinput[_DONE] = sorted(self.done)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        from gpu_trace import launched

        def hung() -> None:
            error = f"not done after {self.limit:.0f} s; kernels {self.names}"
            self.results.add(PART, item.nodeid, ok=False, error=error, seconds=self.limit)

        with launched() as self.names, watchdog(self.limit, hung):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "???":  # pytest-xdist: a worker is gone
            if not Results(self.results.folder).has(PART, report.nodeid):
                self.results.add(PART, report.nodeid, ok=False, error=report.longreprtext)
            return
        if not self.runs_tests:
            return
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self._failed(report)
        elif report.skipped:
            self.results.add(PART, report.nodeid, {"outcome": "skipped", "why": _why(report)})
        elif report.when == "teardown" and not self.results.has(PART, report.nodeid):
            self.results.add(PART, report.nodeid, {"outcome": "passed"}, seconds=self.seconds[report.nodeid])

    def _failed(self, report: pytest.TestReport) -> None:
        lost = gpu_is_lost()
        text = report.longreprtext
        lines = [line[2:].strip() for line in text.splitlines() if line.startswith("E ")] or text.splitlines()[-3:]
        error = f"{report.when}: {' '.join(lines)[:1200]}; kernels {self.names}" + (
            f"; GPU lost: {lost}" if lost else ""
        )
        self.results.add(PART, report.nodeid, ok=False, error=error, seconds=self.seconds.get(report.nodeid))
        if lost:
            os._exit(GPU_LOST)


def _why(report: pytest.TestReport) -> str:
    with contextlib.suppress(TypeError, ValueError, IndexError):
        return str(report.longrepr[2])  # type: ignore[index]
    return report.longreprtext


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Plugin(config), "gpu_check")
