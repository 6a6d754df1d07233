"""Importing what a command needs, when it is called."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

__all__ = ["loading"]


@contextmanager
def loading(*first: str) -> Iterator[None]:
    """For a block of imports, before which the modules ``first`` are imported: nobody looks for garbage meanwhile.

    PyTorch makes a million objects when it is loaded, all of which stay. To look for garbage among them, while they
    are made and once more when the process ends, takes 0.7 of the 2.3 seconds of loading it and ending.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        for name in first:
            import_module(name)
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()
