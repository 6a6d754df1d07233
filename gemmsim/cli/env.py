"""``gemmsim env``: what this installation runs on, for a bug report. No paths but the package's own, no variables."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

import gemmsim as gs
from gemmsim.backends import cpu
from gemmsim.backends.cuda import PACKAGES as CUDA_PACKAGES

from .console import say_json, show

PACKAGES = ("torch", "numpy", "typer", "rich", "matplotlib", "scikit-learn")


def environment(*, check: bool, as_json: bool) -> bool:
    """Prints versions, the CPU library's instruction set and compiler, threads, and where the package lies; with
    ``check`` what comparing the kernels found. False for a difference."""
    if as_json:
        return _environment_json(check)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts().items():
        table.add_row(name, value)
    show(table, natural=True)
    if not check:
        return True
    from .self_test import check_kernels

    return check_kernels()


def _environment_json(check: bool) -> bool:
    found: dict[str, Any] = dict(facts())
    if check:
        from .self_test import compared

        sets, count, wrong = compared()
        found["check"] = {"instruction sets": sets, "compared": count, "differences": wrong}
    say_json(found)
    return not (check and wrong)


def facts() -> dict[str, str]:
    """The lines of ``gemmsim env``. A library that cannot be loaded is a fact as well, not an error."""
    found = {"gemmsim": gs.__version__, "python": platform.python_version(), "system": _system()}
    for package in (*PACKAGES, *CUDA_PACKAGES):
        found[package] = _version(package)
    found["cpu instruction set"] = _or_reason(cpu.isa)
    found["cpu library built by"] = _or_reason(cpu.build_info)
    found["threads"] = str(torch.get_num_threads())
    found["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "none that torch can use"
    found["package"] = str(Path(gs.__file__).parent)
    return found


def _system() -> str:
    return f"{platform.system()} {platform.machine()}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _or_reason(read: Callable[[], str]) -> str:
    try:
        return read()
    except cpu.LibraryError as error:
        return f"not available: {error}"
