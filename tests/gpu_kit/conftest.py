"""Modules of benchmarks/ for tests of the GPU kit."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
from support.gpu_kit import BENCHMARKS


@pytest.fixture
def kit(monkeypatch) -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of benchmarks/; afterwards none of them is there."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if name.startswith(("gpu_", "library_")) or name == "probes":
            sys.modules.pop(name)
