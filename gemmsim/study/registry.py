"""The table of studies by name: registered classes, reproductions, and kinds with their default parameters."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .base import Study
from .errors import StudyError, nearest
from .kinds.registry import KINDS
from .kinds.registry import load as load_kind
from .parameters import renamed
from .published.reproduction import REPRODUCTIONS
from .published.reproduction import load as load_published
from .store import owner

__all__ = ["get", "names", "of_folder", "register", "with_parameters"]

#: Built-in studies as "module:class", so that listing them imports neither scikit-learn nor matplotlib.
_STUDIES: dict[str, str | Callable[[], Study]] = {
    "language": "gemmsim.study.language:LanguageStudy",
    "sentence_encoder": "gemmsim.study.sentence_encoder:SentenceEncoderStudy",
}


def register(name: str, factory: Callable[[], Study]) -> None:
    """Makes ``factory()`` available as ``name``.

    Raises:
        StudyError: if the name is taken by another factory.
    """
    if _STUDIES.get(name, factory) is not factory:
        raise StudyError(f"a study named {name!r} exists already; choose another name. Known: {', '.join(names())}.")
    _STUDIES[name] = factory


def names() -> list[str]:
    """Names of all studies that can be run as they are, sorted: registered ones and reproductions."""
    return sorted({*_STUDIES, *REPRODUCTIONS})


def get(name: str) -> Study:
    """The study called ``name``; a kind's name gives that kind with its default parameters.

    Raises:
        StudyError: when there is none; it names the nearest one.
    """
    entry = _STUDIES.get(name)
    if entry is None and name in REPRODUCTIONS:
        return load_published(name)
    if entry is None and name in KINDS:
        return load_kind(name)()
    if entry is None:
        known = list(dict.fromkeys([*names(), *sorted(KINDS)]))
        raise StudyError(f"unknown study {name!r}.{nearest(name, known)} Known: {', '.join(known)}.")
    if isinstance(entry, str):
        module, _, attribute = entry.partition(":")
        entry = getattr(importlib.import_module(module), attribute)
    study = entry()
    assert isinstance(study, Study)
    return study


def of_folder(folder: str | Path) -> Study:
    """The study whose results ``folder`` holds; of a kind, with the parameters of every run there.

    Raises:
        StudyError: the folder does not say, or what it names is not registered.
    """
    found = owner(Path(folder))
    if found is None:
        raise StudyError(f"'{folder}' holds no results of a study (looked for study.json). Run the study first.")
    return with_parameters(found["study"], found.get("parameters", []))


def with_parameters(name: str, parameters: Sequence[Mapping[str, Any]]) -> Study:
    """The study called ``name``; where that is a kind, of these sets of parameters.

    Raises:
        StudyError: there is none of this name, parameters that it does not have.
    """
    if name in KINDS and parameters:
        kind = load_kind(name)
        return kind(*(kind.parameters.of(renamed(one)) for one in parameters))
    return get(name)
