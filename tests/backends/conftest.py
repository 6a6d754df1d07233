from __future__ import annotations

import pytest

from gemmsim.backends import cpu


@pytest.fixture(autouse=True)
def _restore_isa():
    name = cpu.isa()
    yield
    cpu.set_isa(name)
