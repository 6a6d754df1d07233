from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """The reference beside oracles and stored vectors: what it gave once it gives as long as it is what it was."""
    if item.path.name != "test_tracing.py":  # which compares with products of the backends
        item.add_marker(pytest.mark.kept(by="sources"))
