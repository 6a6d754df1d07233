from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """Products that the reference confirmed before, and that have the same bits, are not computed by it again."""
    item.add_marker("kept")
