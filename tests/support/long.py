"""Cases of a test of which only some belong to every run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

__all__ = ["long_but"]


def long_but(cases: Mapping[str, Any], *short: str) -> dict[str, Any]:
    """``argvalues`` and ``ids`` of ``parametrize``: all cases, of which only ``short`` belong to every run."""
    values = [v if name in short else pytest.param(v, marks=pytest.mark.long) for name, v in cases.items()]
    return {"argvalues": values, "ids": list(cases)}
