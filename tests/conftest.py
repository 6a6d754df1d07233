"""Settings for all tests: reproducible property tests, and threads left as they were found."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch
from hypothesis import HealthCheck, settings

# The same examples every time: a red run is red again. `pytest --hypothesis-profile=explore` looks further.
settings.register_profile(
    "steady", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile("steady")


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked ``cuda`` or ``gpu`` say what they lack where they are skipped."""
    missing = [module for module in _CUDA_MODULES if not _installed(module)]
    no_packages = pytest.mark.skip(reason=f"gemmsim[cuda] is not installed: no {', '.join(missing)}")
    no_gpu = pytest.mark.skip(reason="needs an NVIDIA GPU")
    for item in items:
        gpu = item.get_closest_marker("gpu") is not None
        if missing and (gpu or item.get_closest_marker("cuda")):
            item.add_marker(no_packages)
        elif gpu and not torch.cuda.is_available():
            item.add_marker(no_gpu)
