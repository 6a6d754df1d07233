"""Gives every Python process that finds this file first on its path a GPU that is none, if ``GEMMSIM_STANDIN`` is set.

Python imports ``sitecustomize`` when it starts. Nothing is imported here: PyTorch and gemmsim are changed when somebody
imports them (``standin_torch``, ``standin_gemmsim``).
"""

import importlib.abc
import importlib.machinery
import os
import sys


class _Changed(importlib.abc.Loader):
    """A loader that lets another one load, and then changes what was loaded."""

    def __init__(self, loader, change):
        self.loader, self.change = loader, change

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        self.change()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are changed, once each."""

    def __init__(self, changes):
        self.changes = changes

    def find_spec(self, name, path=None, target=None):
        if name not in self.changes:
            return None
        change = self.changes.pop(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Changed(spec.loader, change)
        return spec


def _torch():
    import standin_torch

    standin_torch.install()


def _gemmsim():
    import standin_gemmsim

    standin_gemmsim.install()


if os.environ.get("GEMMSIM_STANDIN"):
    sys.meta_path.insert(0, _Finder({"torch": _torch, "gemmsim.backends.cuda": _gemmsim}))
