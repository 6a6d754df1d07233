"""Accumulators as people list them: ``label = spec``, one curve of a picture each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import gemmsim as gs
from gemmsim._files import FileError, read_text
from gemmsim.arithmetic import SpecError
from gemmsim.formats import FormatError

from .errors import StudyError

__all__ = ["Curve", "curves", "labelled", "output_format", "unit_roundoff"]

_LABEL = re.compile(r"[\w.+-]+")
_LABELLED = re.compile(r"\s*(?P<label>[\w.+-]+)\s*=\s*(?P<spec>.+?)\s*$", re.DOTALL)


@dataclass(frozen=True)
class Curve:
    """A spec under the name that tables and pictures show."""

    label: str
    #: Canonical text.
    spec: str

    @property
    def value(self) -> gs.GemmSpec:
        """The spec itself."""
        return gs.GemmSpec.parse(self.spec)

    @property
    def stochastic(self) -> bool:
        """Whether its result depends on a seed."""
        return self.value.is_stochastic

    def words(self) -> str:
        """What gives this curve on the command line: ``label = spec``, or the text alone where it is the label."""
        alone = not _LABEL.fullmatch(self.label) and _means(self.label, self.spec)
        return self.label if alone else f"{self.label} = {self.spec}"


def curves(given: str | Iterable[str | Curve]) -> tuple[Curve, ...]:
    """The curves that ``given`` lists: each ``SPEC``, ``label = SPEC`` or ``@file`` with one of these in each line.

    A spec without a colon is an accumulator, operands as given. Without a label, the text as given is one. A label is
    any text before an equals sign behind which a spec stands. In a file, in UTF-8 or with a byte order mark, empty
    lines and whatever follows a # are left out.

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
        raise StudyError("no accumulator given. Name one or more, such as --spec e5m10 'chunk = chunked(64, e5m10)'.")
    return tuple(found.values())


def _read(text: str) -> Iterable[Curve]:
    if not text.startswith("@"):
        yield _curve(text)
        return
    path = Path(text[1:])
    try:
        lines = read_text(path).splitlines()
    except FileError as error:
        allowed = f"; allowed: {error.allowed}" if error.allowed else "."
        raise StudyError(f"cannot read accumulators from '{path}': {error.reason}{allowed}") from None
    for number, line in enumerate(lines, start=1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        try:
            yield _curve(line)
        except (SpecError, FormatError) as error:
            raise StudyError(f"'{path}' line {number}: {error}") from error


def labelled(text: str, read: Callable[[str], object]) -> tuple[str, str]:
    """The label of ``text``, "" for none, and the spec, which ``read`` reads or raises SpecError or FormatError.

    Where no part is a spec, they are what a label of letters, digits and ``_.+-`` leaves: the error of that is told.
    """

    def reads(part: str) -> bool:
        try:
            read(part)
        except (SpecError, FormatError):
            return False
        return True

    match = _LABELLED.match(text)
    if match and reads(match["spec"]):
        return match["label"], match["spec"]
    if not reads(text.strip()):
        for at, letter in enumerate(text):
            label, spec = text[:at].strip(), text[at + 1 :].strip()
            if letter == "=" and label and reads(spec):
                return label, spec
        if match:
            return match["label"], match["spec"]
    return "", text.strip()


def _means(text: str, spec: str) -> bool:
    try:
        return str(gs.GemmSpec.of(text)) == spec
    except (SpecError, FormatError):
        return False


def _curve(text: str) -> Curve:
    label, spec = labelled(text, gs.GemmSpec.of)
    value = gs.GemmSpec.of(spec)
    return Curve(label or spec.strip().removeprefix(":").strip(), str(value))


def unit_roundoff(spec: gs.GemmSpec) -> float | None:
    """Half the distance of neighbours just above 1, relative: 2^-p for the narrowest significand p of any rounding.

    Of the accumulator's registers, that is: those of operands and output do not count. Of exact registers that of
    their result. None where no register is in floating point: steps of integers and fixed point do not grow with the
    number, those of posits do in their own way.
    """
    widths = [cast.format.p for cast in spec.accumulator.casts() if isinstance(cast.format, gs.formats.FloatFormat)]
    return 2.0 ** -min(widths) if widths else None


def output_format(spec: gs.GemmSpec) -> gs.formats.FloatFormat | None:
    """The floating-point format of the result: the output's, else that of the register; None where that is none."""
    last = spec.out or getattr(spec.accumulator, "out", None)
    if not isinstance(last, gs.Cast):
        last = None if spec.accumulator.exact_sums else spec.accumulator.add_cast
    return last.format if last is not None and isinstance(last.format, gs.formats.FloatFormat) else None
