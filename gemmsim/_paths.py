"""Where the package lies."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["package_folders"]


def package_folders() -> list[Path]:
    """Folders of the package ``gemmsim``: one, or those of a source tree and of an editable installation."""
    return [Path(folder) for folder in sys.modules[__name__.partition(".")[0]].__path__]
