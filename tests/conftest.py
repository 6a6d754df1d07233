"""Settings for all tests: reproducible property tests, threads left as they were found, and what a long run is."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from support.kept import Kept

# The same examples every time: a red run is red again. `pytest --hypothesis-profile=explore` looks further.
settings.register_profile(
    "steady", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run tests marked long, and more in some others")
    parser.addoption("--remember", action="store_true", help="write what was confirmed (support.kept)")


def pytest_configure(config: pytest.Config) -> None:
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:  # threads that wait for others without a core spin, for longer than small operators take
        threads = max(1, (os.cpu_count() or 1) // workers)
        torch.set_num_threads(threads)
        os.environ["OMP_NUM_THREADS"] = str(threads)  # of programs that tests start
    if config.getoption("--long"):
        os.environ["GEMMSIM_TESTS_LONG"] = "1"  # for support.LONG, which is read later
    from support.torch_versions import allow_broken_graphs  # not before it is known whether this is a long run

    allow_broken_graphs()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--remember"):
        for kept in _kept():
            kept.write()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if getattr(terminalreporter.config.option, "numprocesses", None):
        import support.traces  # noqa: F401
    for kept in _kept():
        if not kept.current:
            again = "its results are computed again, until pytest --remember writes it (docs/contributing/testing.md)"
            terminalreporter.write_line(f"{kept.path.name} is of other sources: {again}")


def _kept() -> list[Kept]:
    """The files of what is not computed again, of those in use."""
    traces = sys.modules.get("support.traces")
    return [traces.RAN, traces.COMPUTED, traces.COMPILED] if traces else []


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """The collector of cycles leaves alone what is there for good: 800,000 objects, which it would look through for each
    25 % that come to them, and while they come."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test marked ``kept`` that kernels and reference confirmed before does not run them again."""
    remember = pyfuncitem.config.getoption("--remember")
    marker = pyfuncitem.get_closest_marker("kept")
    by = marker.kwargs.get("by") if marker else "nothing"
    if by == "nothing" or (pyfuncitem.config.getoption("--long") and not remember):
        return None
    from support.traces import confirmed, reference_alone  # not before it is known whether this is a long run

    def call() -> None:
        """The test, which finds everything as it was when it is called again."""
        with pytest.MonkeyPatch.context() as patch:
            given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
            pyfuncitem.obj(**given | ({"monkeypatch": patch} if "monkeypatch" in given else {}))

    if by == "sources":
        return reference_alone(pyfuncitem.nodeid, pyfuncitem.path, call, remember) or None
    return confirmed(pyfuncitem.nodeid, pyfuncitem.path, call, remember, pyfuncitem.module) or None


@pytest.fixture(autouse=True)
def _threads_as_found() -> Iterator[None]:
    """A test may change the number of threads; the next one does not notice."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


#: Files of a test that takes a minute or more: first, so that no process works at one when the others have ended.
_FIRST = ("test_aarch64.py", "test_check.py")
#: A module of each package of gemmsim[cuda] that PyTorch does not bring itself.
_CUDA_MODULES = ("cuda.core", "cuda.bindings", "cutlass_library", "nvidia.cu13")


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked ``cuda`` or ``gpu`` say what they lack where they are skipped, and those marked ``long`` how to run.
    Tests of what only a newer PyTorch has name the release."""
    from support.torch_versions import mark_newer

    mark_newer(items)
    missing = [module for module in _CUDA_MODULES if not _installed(module)]
    no_packages = pytest.mark.skip(reason=f"gemmsim[cuda] is not installed: no {', '.join(missing)}")
    no_gpu = pytest.mark.skip(reason="needs an NVIDIA GPU")
    short = pytest.mark.skip(reason="of the long run: make test-long")
    items.sort(key=lambda item: item.path.name not in _FIRST)
    for item in items:
        if item.get_closest_marker("long") and not config.getoption("--long"):
            item.add_marker(short)
        gpu = item.get_closest_marker("gpu") is not None
        if missing and (gpu or item.get_closest_marker("cuda")):
            item.add_marker(no_packages)
        elif gpu and not torch.cuda.is_available():
            item.add_marker(no_gpu)
