"""A pytest plugin that writes calls of the CPU library to a file while the tests run that judge them:

    PYTHONPATH=tests python -m pytest -p record_calls --calls FILE --calls-share 0.1 tests/backends/cpu

Of each test the first calls of every function, then a random share. With ``--calls-tests N`` one test in N runs.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from support.calls import Recorder

#: Calls of a function that are always taken from a test.
FIRST = 2
_recorder = pytest.StashKey[Recorder]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--calls", type=Path, help="file for calls of the CPU library")
    parser.addoption("--calls-tests", type=int, default=1, help="one test in this many runs")
    parser.addoption("--calls-share", type=float, default=1.0, help="which share of them, beside each test's first")


class _Wanted:
    """Whether the next call of a function is taken."""

    def __init__(self, share: float):
        self.share = share
        self.start("")

    def start(self, test: str) -> None:
        """Which calls of a test are taken depends on its name alone."""
        self.rng = random.Random(test)
        self.seen: Counter[str] = Counter()

    def __call__(self, name: str) -> bool:
        self.seen[name] += 1
        return self.rng.random() < self.share or self.seen[name] <= FIRST


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    wanted = _Wanted(config.getoption("--calls-share"))
    config.pluginmanager.register(_EachTest(wanted))
    config.stash[_recorder] = Recorder(config.getoption("--calls"), wanted).__enter__()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One test in N of each function: the first of them, so that none is left out."""
    counted: Counter[str] = Counter()
    kept = []
    for item in items:
        function = item.nodeid.partition("[")[0]
        if counted[function] % config.getoption("--calls-tests") == 0:
            kept.append(item)
        counted[function] += 1
    items[:] = kept


def pytest_sessionfinish(session: pytest.Session) -> None:
    session.config.stash[_recorder].__exit__()


class _EachTest:
    def __init__(self, wanted: _Wanted):
        self.wanted = wanted

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.wanted.start(item.nodeid)
