"""Python imports this module at its start where this folder is in PYTHONPATH: see ``reach``.

It imports little, as every Python process below the command does so. Another ``sitecustomize`` runs as it would.
"""

from __future__ import annotations

import os
import sys
from importlib import util


def _start() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != folder]
    other = sys.modules.pop("sitecustomize", None)
    try:
        __import__("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if other is not None:
            sys.modules["sitecustomize"] = other
    spec = util.spec_from_file_location("gemmsim_reach", os.path.join(folder, "reach.py"))
    assert spec is not None and spec.loader is not None
    reach = util.module_from_spec(spec)
    sys.modules[spec.name] = reach
    spec.loader.exec_module(reach)
    reach.begin(_join)


def _join(run: str) -> None:
    """Opens the run's contexts in this process."""
    try:
        from gemmsim.cli.session import join
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "gemmsim":
            raise
        sys.path.append(os.path.abspath(os.path.join(__file__, "..", "..", "..", "..")))
        from gemmsim.cli.session import join
    join(run)


_start()
