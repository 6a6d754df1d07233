"""Accumulators as people list them: ``label = spec``, one curve of a picture each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import gemmsim as gs
from gemmsim.arithmetic import SpecError
from gemmsim.formats import FormatError

from .errors import StudyError

__all__ = ["Curve", "curves", "unit_roundoff"]

_LABELLED = re.compile(r"\s*(?P<label>[\w.+-]+)\s*=\s*(?P<spec>.+?)\s*$", re.DOTALL)


@dataclass(frozen=True)
class Curve:
    """A spec under the name that tables and pictures show."""

    label: str
    #: Canonical text.
    spec: str

    @property
    def text(self) -> str:
        """What ``curves`` reads as this curve again. A label that is no word is the spec as it was given."""
        labelled = f"{self.label} = {self.spec}"
        return labelled if _LABELLED.match(labelled) else self.label

    @property
    def value(self) -> gs.GemmSpec:
        """The spec itself."""
        return gs.GemmSpec.parse(self.spec)

    @property
    def stochastic(self) -> bool:
        """Whether its result depends on a seed."""
        return self.value.is_stochastic


def curves(given: str | Iterable[str | Curve]) -> tuple[Curve, ...]:
    """The curves that ``given`` lists: each ``SPEC``, ``label = SPEC`` or ``@file`` with one of these in each line.

    A spec without a colon is an accumulator, operands as given. Without a label, the text as given is one. In a file,
    empty lines and whatever follows a # are left out.

    Raises:
        StudyError: a file that cannot be read, one label for two specs, none at all.
        SpecError, FormatError: text that is no spec.
    """
    found: dict[str, Curve] = {}
    for entry in [given] if isinstance(given, str) else given:
        for curve in [entry] if isinstance(entry, Curve) else _read(entry):
            known = found.setdefault(curve.label, curve)
            if known != curve:
                raise StudyError(
                    f"two accumulators are labelled {curve.label!r}: {known.spec} and {curve.spec}. Rename one."
                )
    if not found:
        raise StudyError("no accumulator given. Name one or more, such as --acc e5m10 'chunk = chunked(64, e5m10)'.")
    return tuple(found.values())


def _read(text: str) -> Iterable[Curve]:
    if not text.startswith("@"):
        yield _curve(text)
        return
    path = Path(text[1:])
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise StudyError(f"cannot read accumulators from '{path}': {reason}.") from error
    for number, line in enumerate(lines, start=1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        try:
            yield _curve(line)
        except (SpecError, FormatError) as error:
            raise StudyError(f"'{path}' line {number}: {error}") from error


def _curve(text: str) -> Curve:
    match = _LABELLED.match(text)
    label, spec = (match["label"], match["spec"]) if match else ("", text.strip())
    value = gs.GemmSpec.of(spec)
    return Curve(label or spec.strip().removeprefix(":").strip(), str(value))


def unit_roundoff(spec: gs.GemmSpec) -> float:
    """Half the distance of neighbours just above 1, relative: 2^-p for the narrowest significand p of any rounding.

    Of the accumulator's registers, that is: those of operands and output do not count. Fixed point and exact registers
    have no such number: that of their result in float64, 2^-53, stands for it.
    """
    widths = [cast.format.p for cast in spec.accumulator.casts() if isinstance(cast.format, gs.formats.FloatFormat)]
    return 2.0 ** -min([53, *widths])
