from __future__ import annotations

import pytest


@pytest.fixture
def cache_dir(tmp_path, monkeypatch):
    """A folder for compiled kernels that does not exist yet."""
    folder = tmp_path / "kernels"
    monkeypatch.setenv("GEMMSIM_CACHE_DIR", str(folder))
    return folder
