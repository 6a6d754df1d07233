"""Settings for all tests: reproducible property tests, threads left as they were found, and what a long run is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from support_reference import Expected

# The same examples every time: a red run is red again. `pytest --hypothesis-profile=explore` looks further.
settings.register_profile(
    "steady", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run tests marked long, and more in some others")
    parser.addoption("--remember", action="store_true", help="write what the reference confirmed (support_reference)")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--long"):
        os.environ["GEMMSIM_TESTS_LONG"] = "1"  # for support.LONG, which is read later
    if config.getoption("--remember") and hasattr(config, "workerinput"):
        raise pytest.UsageError("--remember needs one process: -n 0")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--remember"):
        from support_reference import remember

        remember()


@pytest.fixture
def expected(request: pytest.FixtureRequest) -> Iterator[Expected]:
    """Takes results that must be the reference's, and compares them when the test is over."""
    from support import LONG
    from support_reference import Expected

    found = Expected(request.node.nodeid, always=LONG or request.config.getoption("--remember"))
    yield found
    found.settle()


@pytest.fixture(autouse=True)
def _threads_as_found() -> Iterator[None]:
    """A test may change the number of threads; the next one does not notice."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


#: A module of each package of gemmsim[cuda] that PyTorch does not bring itself.
_CUDA_MODULES = ("cuda.core", "cuda.bindings", "cutlass_library", "nvidia.cu13")


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked ``cuda`` or ``gpu`` say what they lack where they are skipped, and those marked ``long`` how to run."""
    missing = [module for module in _CUDA_MODULES if not _installed(module)]
    no_packages = pytest.mark.skip(reason=f"gemmsim[cuda] is not installed: no {', '.join(missing)}")
    no_gpu = pytest.mark.skip(reason="needs an NVIDIA GPU")
    short = pytest.mark.skip(reason="of the long run: make test-long")
    for item in items:
        if item.get_closest_marker("long") and not config.getoption("--long"):
            item.add_marker(short)
        gpu = item.get_closest_marker("gpu") is not None
        if missing and (gpu or item.get_closest_marker("cuda")):
            item.add_marker(no_packages)
        elif gpu and not torch.cuda.is_available():
            item.add_marker(no_gpu)
