"""Settings for all tests: reproducible property tests, and threads left as they were found."""

from __future__ import annotations

from collections.abc import Iterator

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
