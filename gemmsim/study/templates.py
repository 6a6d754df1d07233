"""Accumulators with a place for the format: ``chunk16 = chunked(16, {})``, one curve over a list of formats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import gemmsim as gs

from .curves import labelled
from .errors import StudyError

__all__ = ["Template", "formats", "register_of", "templates"]

_PLACE = "{}"


@dataclass(frozen=True)
class Template:
    """A spec in which ``{}`` stands for a format; one without it is the same spec for every format."""

    label: str
    text: str

    def __str__(self) -> str:
        return f"{self.label} = {self.text}"

    @property
    def open(self) -> bool:
        """Whether it has a place for a format."""
        return _PLACE in self.text

    def spec(self, fmt: str) -> gs.GemmSpec:
        """The spec with ``fmt`` in that place.

        Raises:
            SpecError, FormatError: it is no spec.
        """
        return gs.GemmSpec.of(self.text.replace(_PLACE, fmt))


def templates(given: Any, name: str) -> tuple[Template, ...]:
    """The templates that ``given`` lists, each ``SPEC`` or ``label = SPEC``; a spec without a colon is an accumulator.

    Raises:
        StudyError: no template, one label twice.
        SpecError, FormatError: text that is no spec with the format e5m2 in its place.
    """
    listed: Iterable[Any] = [given] if isinstance(given, str | Template) else given
    found: dict[str, Template] = {}
    for entry in listed:
        made = entry if isinstance(entry, Template) else _template(entry, name)
        if made.label in found and found[made.label] != made:
            raise StudyError(f"{name} has two accumulators labelled {made.label!r}. Rename one.")
        made.spec("e5m2")
        found[made.label] = made
    if not found:
        raise StudyError(f"{name}: no accumulator given. Name one, such as 'chunk16 = chunked(16, {{}})'.")
    return tuple(found.values())


def _template(entry: Any, name: str) -> Template:
    if not isinstance(entry, str):
        raise StudyError(f"{name} has {entry!r}; allowed: text such as 'chunk16 = chunked(16, {{}})'.")
    label, text = labelled(entry, lambda part: Template("", part).spec("e5m2"))
    return Template(label or text, text)


def formats(given: Any, name: str) -> tuple[str, ...]:
    """Names of formats, in their order, repetitions removed: text with commas, or a list.

    Raises:
        StudyError: none at all.
        FormatError: an unknown one.
    """
    listed = given.split(",") if isinstance(given, str) else list(given)
    names = tuple(dict.fromkeys(str(entry).strip() for entry in listed))
    if not any(names):
        raise StudyError(f"{name} lists no format. Give some, such as e5m10,e5m2.")
    for entry in names:
        gs.formats.parse_scalar(entry)
    return names


def register_of(spec: gs.GemmSpec) -> tuple[str, int] | None:
    """Canonical name and significand bits of the narrowest format that the accumulator rounds to; None without one."""
    casts = [cast.format for cast in spec.accumulator.casts() if isinstance(cast.format, gs.formats.FloatFormat)]
    if not casts:
        return None
    narrowest = min(casts, key=lambda fmt: fmt.p)
    return str(narrowest), narrowest.p
