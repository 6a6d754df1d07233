"""A model and its inputs from a function of the user's: ``module:function`` or ``file.py:function``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from .errors import StudyError, nearest

__all__ = ["Source", "load_function", "load_source"]


@dataclass(frozen=True)
class Source:
    """What the function gave; ``loss`` of the model's output, None where it gave none."""

    model: nn.Module
    inputs: Any
    loss: Callable[[Any], Tensor] | None = None


def load_source(text: str) -> Source:
    """Calls the function, which returns ``(model, inputs)`` or ``(model, inputs, loss)``.

    Modules of the current folder are found, too. It runs the user's own code.

    Raises:
        StudyError: not of that form, no such module, file or function (near names are told), another result.
    """
    function = load_function(text, "--model")
    found = function()
    if not isinstance(found, tuple) or len(found) not in (2, 3) or not isinstance(found[0], nn.Module):
        raise StudyError(f"{text} returned {type(found).__name__}; allowed: (model, inputs) or (model, inputs, loss).")
    return Source(*found)


def load_function(text: str, option: str) -> Callable[..., Any]:
    """The function that ``module:function`` or ``file.py:function`` names; ``option``: what the text was given as.

    Modules of the current folder are found, too. It runs the module's own code.

    Raises:
        StudyError: not of that form, no such module, file or function (near names are told).
    """
    where, colon, name = text.rpartition(":")
    if not colon or not where or not name:
        raise StudyError(f"{option} {text}; allowed: module:function or file.py:function.")
    module = _file(Path(where)) if where.endswith(".py") else _module(where)
    function: Any = getattr(module, name, None)
    if not callable(function):
        there = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise StudyError(f"{where} has no function {name!r}.{nearest(name, there)}")
    found: Callable[..., Any] = function
    return found


def _module(name: str) -> Any:
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise StudyError(
            f"there is no module {name!r} here; allowed: an importable one, or file.py:function."
        ) from error
    finally:
        if added:
            sys.path.remove(here)


def _file(path: Path) -> Any:
    if not os.path.isfile(path):
        raise StudyError(
            f"there is no file '{path}'. Allowed: module:function or file.py:function, which gives the model."
        )
    spec = importlib.util.spec_from_file_location(f"gemmsim_user_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
