"""The tables of studies by name: registered classes, kinds, and reproductions."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .base import Study
from .errors import StudyError, nearest
from .kinds.kind import Kind
from .parameters import renamed
from .published.reproduction import Reproduction
from .store import owner

__all__ = ["REPRODUCTIONS", "get", "kind", "kinds", "names", "of_folder", "register", "reproduced", "with_parameters"]

# Built-in ones are "module:attribute", so that listing them imports neither scikit-learn nor matplotlib.
_STUDIES: dict[str, str | Callable[[], Study]] = {
    "language": "language:LanguageStudy",
    "sentence_encoder": "sentence_encoder:SentenceEncoderStudy",
}
_KINDS = {
    "accuracy": "kinds.accuracy:Accuracy",
    "chunk": "kinds.chunk:Chunk",
    "gemm": "kinds.gemm:Gemm",
    "growth": "kinds.growth:Growth",
    "hardware": "kinds.hardware:Hardware",
    "integer": "kinds.integer:IntegerStudy",
    "layers": "kinds.layers:Layers",
    "order": "kinds.order:Order",
    "recipes": "kinds.recipes:Recipes",
    "sliced": "kinds.sliced:Slicing",
    "sr": "kinds.stochastic_rounding:RandomBits",
    "swamping": "kinds.swamping:Swamping",
    "train": "kinds.train:Train",
}
REPRODUCTIONS = {
    "digits": "published.networks:DIGITS",
    "lba_digits": "published.networks:LBA_DIGITS",
    "a2q_overflow": "published.integers:A2Q_OVERFLOW",
    "bf16_slices": "published.slices:BF16_SLICES",
    "ootomo_tf32x3": "published.slices:OOTOMO_TF32X3",
    "ozaki_int8": "published.slices:OZAKI_INT8",
    "batch_invariance": "published.invariance:BATCH_INVARIANCE",
    "srmac_rbits": "published.random_bits:SRMAC_RBITS",
    "swamping": "published.sums:SWAMPING",
    "deepseek_v3_fp8": "published.tensor_cores:DEEPSEEK_V3_FP8",
    "vllm_router_k6144": "published.tensor_cores:VLLM_ROUTER_K6144",
    "wang2018_fig3": "published.sums:WANG2018_FIG3",
    "higham_mary_growth": "published.sums:HIGHAM_MARY_GROWTH",
}


def register(name: str, factory: Callable[[], Study]) -> None:
    """Make ``factory()`` available as ``name``.

    Raises:
        StudyError: if another factory has the name.

    Example:
        >>> gs.study.register("language", gs.study.Study)
        Traceback (most recent call last):
            ...
        gemmsim.study.errors.StudyError: a study named 'language' exists already; choose another name. ...
    """
    if _STUDIES.get(name, factory) is not factory:
        raise StudyError(f"a study named {name!r} exists already; choose another name. Known: {', '.join(names())}.")
    _STUDIES[name] = factory


def names() -> list[str]:
    """Return the names of all studies that can be run without parameters, sorted: registered ones and reproductions.

    Example:
        >>> [name for name in gs.study.names() if name.startswith("w")]
        ['wang2018_fig3']
    """
    return sorted({*_STUDIES, *REPRODUCTIONS})


def kinds() -> list[str]:
    """Return the names of all kinds, sorted.

    Example:
        >>> gs.study.kinds()[:4]
        ['accuracy', 'chunk', 'gemm', 'growth']
    """
    return sorted(_KINDS)


def kind(name: str) -> type[Kind[Any]]:
    """Return the kind of this name.

    Raises:
        StudyError: if there is none; the message suggests the nearest name.

    Example:
        >>> gs.study.kind("growth").about
        'error against the length of the sums, by accumulator and distribution'
    """
    if name not in _KINDS:
        raise StudyError(f"unknown kind of study {name!r}.{nearest(name, kinds())} Known: {', '.join(kinds())}.")
    found = _loaded(_KINDS[name])
    assert issubclass(found, Kind)
    return found


def get(name: str) -> Study:
    """Return the study called ``name``; a kind's name gives that kind with its default parameters.

    Raises:
        StudyError: if there is none; the message suggests the nearest name.

    Example:
        >>> gs.study.get("wang2018_fig3").title
        'Long sums in 16 bits: chunks of 64 and stochastic rounding avoid the stagnation of plain sums'
    """
    entry = _STUDIES.get(name)
    if entry is None and name in REPRODUCTIONS:
        return _reproduction(name)
    if entry is None and name in _KINDS:
        return kind(name)()
    if entry is None:
        known = list(dict.fromkeys([*names(), *kinds()]))
        raise StudyError(f"unknown study {name!r}.{nearest(name, known)} Known: {', '.join(known)}.")
    study = (_loaded(entry) if isinstance(entry, str) else entry)()
    assert isinstance(study, Study)
    return study


def of_folder(folder: str | Path) -> Study:
    """Return the study of which ``folder`` holds the results; for a kind, with the parameters of every run there.

    Raises:
        StudyError: if the folder does not say, or if what it names is not registered.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     summary = gs.study.run(gs.study.kind("growth")(K=64), folder, limit=0)
        ...     print(gs.study.of_folder(folder).parts[0].K)
        (64,)
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
    if name in _KINDS and parameters:
        found = kind(name)
        return found(*(found.parameters.of(renamed(one)) for one in parameters))
    return get(name)


def reproduced(name: str, of: Reproduction) -> Study:
    """The study of a reproduction, under this name."""
    made = kind(of.kind)
    parts = (made.parameters.of(part) for part in of.parts)
    return made(*parts, name=name, title=of.title, expectations=of.expectations)


def _reproduction(name: str) -> Study:
    found = _loaded(REPRODUCTIONS[name])
    assert isinstance(found, Reproduction)
    return reproduced(name, found)


def _loaded(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module}"), attribute)
