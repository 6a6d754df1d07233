"""Parameters of a kind of study: a frozen dataclass whose fields are the options of its command.

    @dataclass(frozen=True)
    class SumParameters(Parameters):
        K: tuple[int, ...] = option("64,256", numbers, "Lengths of the sums.")

reads ``--K 2^6:2^13:x2`` on the command line and ``SumParameters(K=[64, 128])`` in Python alike.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from .._keywords import warn_of
from .curves import Curve, curves
from .errors import StudyError

__all__ = [
    "MOST",
    "Option",
    "Parameters",
    "accumulators",
    "at_least",
    "choice",
    "counts",
    "numbers",
    "option",
    "options",
    "public",
    "real",
    "renamed",
    "some_of",
    "text",
]

#: Takes what a person gave (text, a number, a list) and the option's name; gives the value or raises StudyError.
Reader = Callable[[Any, str], Any]
Self = TypeVar("Self", bound="Parameters")


@dataclass(frozen=True)
class Option:
    """One option as the command line shows it.

    Example:
        >>> option = gs.study.options(gs.study.kind("growth").parameters)[1]
        >>> option.name, option.metavar, option.default
        ('K', 'RANGE', '2^6:2^12:x2')
    """

    name: str
    help: str
    default: str
    #: Whether several values may follow: ``--spec e5m10 e6m9``.
    many: bool
    metavar: str

    @property
    def flag(self) -> str:
        """``--name`` with dashes.

        Example:
            >>> gs.study.options(gs.study.kind("growth").parameters)[1].flag
            '--K'
        """
        return "--" + self.name

    @property
    def former_flags(self) -> list[str]:
        """The former names of the option, which still work.

        Example:
            >>> gs.study.options(gs.study.kind("growth").parameters)[0].former_flags
            ['--acc']
        """
        return ["--" + old for old, new in FORMER.items() if new == self.name]


#: Former name of an option -> its name now.
FORMER = {"acc": "spec"}


def renamed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Names and values with today's names, as files of earlier versions have former ones; the others as they are."""
    return {FORMER[name] if name in FORMER and FORMER[name] not in given else name: given[name] for name in given}


def public(field: str) -> str:
    """The option's name of a field: ``in`` for ``in_``, dashes for other underscores."""
    return field.removesuffix("_").replace("_", "-")


def option(default: Any, read: Reader, help: str, *, many: bool = False, metavar: str = "") -> Any:
    """Return a field of Parameters with its default (as a user would give it), its reader and its help text.

    Example:
        >>> from dataclasses import make_dataclass
        >>> width = gs.study.option("8", lambda given, name: int(given), "Width of the register.")
        >>> make_dataclass("Mine", [("width", int, width)], bases=(gs.study.Parameters,), frozen=True)(width="16").width
        16
    """
    metadata = {"read": read, "help": help, "many": many, "default": default, "metavar": metavar}
    return dataclasses.field(default=default, metadata=metadata)


def accumulators(*default: str) -> Any:
    """The field of kinds that compare accumulators, ``default`` as a person would list them."""
    words = "Accumulators or specs, 'label = spec', or @file with one a line."
    return option(default, lambda given, name: curves(given), words, many=True, metavar="SPEC")


def counts(default: str, help: str = "Terms of each sum.", *, most: int = 2**31 - 1) -> Any:
    """A field of whole numbers from 1 to ``most``, ``default`` as a person would list them."""
    return option(default, lambda given, name: numbers(given, name, least=1, most=most), help, metavar="RANGE")


@dataclass(frozen=True)
class Parameters:
    """Base class of all parameters; it reads and checks each field on construction.

    Raises:
        StudyError, SpecError, FormatError: from the fields' readers.

    Example:
        >>> gs.study.kind("growth").parameters(K="2^6:2^9:x2").K
        (64, 128, 256, 512)
    """

    #: Name of the kind they belong to. Options that several kinds share have equal names and readers.
    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for entry in dataclasses.fields(self):
            object.__setattr__(self, entry.name, entry.metadata["read"](getattr(self, entry.name), public(entry.name)))

    @classmethod
    def of(cls: type[Self], given: Mapping[str, Any]) -> Self:
        """Return parameters from names and values. A former name (``acc`` for ``spec``) is deprecated and warns.

        Raises:
            StudyError: for an unknown name (the message suggests the nearest one), and for a name together with its
                former one.

        Example:
            >>> gs.study.kind("growth").parameters.of({"K": "64", "dist": "randn"}).dist
            ('randn',)
        """
        known = {public(entry.name): entry.name for entry in dataclasses.fields(cls)}
        for old, new in FORMER.items():
            if old in given and new in known and old not in known:
                if new in given:
                    raise StudyError(f"{cls.kind or cls.__name__}: {new} and {old}, its former name. Leave {old} out.")
                warn_of(f"{cls.kind or cls.__name__}", old, new)
                given = renamed(given)
        for name in given:
            if public(name) not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise StudyError(
                    f"{cls.kind or cls.__name__} has no parameter {name!r}.{hint} It has {', '.join(known)}."
                )
        return cls(**{known[public(name)]: value for name, value in given.items()})

    def arguments(self) -> list[str]:
        """Return the words that give these parameters on the command line, without defaults.

        Example:
            >>> gs.study.kind("growth").parameters(K=[64, 128]).arguments()
            ['--K', '64,128']
        """
        words: list[str] = []
        for name, value in self.given().items():
            words += ["--" + name, *([value] if isinstance(value, str) else value)]
        return words

    def given(self) -> dict[str, str | list[str]]:
        """Return names and values as text, which ``of`` reads, without defaults.

        Example:
            >>> gs.study.kind("growth").parameters(K=[64, 128]).given()
            {'K': '64,128'}
        """
        found: dict[str, str | list[str]] = {}
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            if value != entry.metadata["read"](entry.metadata["default"], entry.name):
                words = _words(value, many=entry.metadata["many"])
                found[public(entry.name)] = words if entry.metadata["many"] else words[0]
        return found

    def command(self) -> str:
        """Return ``arguments`` quoted for a shell.

        Example:
            >>> gs.study.kind("growth").parameters(spec="kahan(e5m10)").command()
            "--spec 'kahan(e5m10)'"
        """
        return shlex.join(self.arguments())


def options(parameters: type[Parameters]) -> list[Option]:
    """Return the options of these parameters, in order.

    Example:
        >>> [option.flag for option in gs.study.options(gs.study.kind("growth").parameters)][:4]
        ['--spec', '--K', '--dist', '--M']
    """
    return [
        Option(
            public(entry.name),
            entry.metadata["help"],
            _shown(entry.metadata["default"]),
            entry.metadata["many"],
            entry.metadata["metavar"],
        )
        for entry in dataclasses.fields(parameters)
    ]


def text(given: Any, name: str) -> str:
    """``given`` as it is, if it is text.

    Raises:
        StudyError: it is none.
    """
    if not isinstance(given, str):
        raise StudyError(f"{name} = {given!r}; allowed: text.")
    return given


def at_least(least: int, most: int = 2**31 - 1) -> Reader:
    """Reader of one whole number in ``least`` ... ``most``."""

    def read(given: Any, name: str) -> int:
        try:
            value = int(given) if isinstance(given, str) else given
        except ValueError:
            value = None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise StudyError(f"{name} = {given!r}; allowed: a whole number, {least} to {most}.")
        return value

    return read


def real(least: float, most: float) -> Reader:
    """Reader of one number in ``least`` ... ``most``."""

    def read(given: Any, name: str) -> float:
        try:
            value = float(given)
        except (TypeError, ValueError):
            value = float("nan")
        if not least <= value <= most:
            raise StudyError(f"{name} = {given!r}; allowed: a number, {least:g} to {most:g}.")
        return value

    return read


def choice(*allowed: str) -> Reader:
    """Reader of one of these words."""

    def read(given: Any, name: str) -> str:
        if given not in allowed:
            near = difflib.get_close_matches(str(given), allowed, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise StudyError(f"{name} = {given!r}; allowed: {', '.join(allowed)}.{hint}")
        return str(given)

    return read


def some_of(*allowed: str) -> Reader:
    """Reader of one or more of these words, separated by commas; repetitions are removed."""
    one = choice(*allowed)

    def read(given: Any, name: str) -> tuple[str, ...]:
        listed = given.split(",") if isinstance(given, str) else given
        if not isinstance(listed, Sequence) or not listed:
            raise StudyError(f"{name} = {given!r}; allowed: one or more of {', '.join(allowed)}.")
        return tuple(dict.fromkeys(one(word.strip() if isinstance(word, str) else word, name) for word in listed))

    return read


def _words(value: Any, *, many: bool) -> list[str]:
    if isinstance(value, tuple) and value and isinstance(value[0], Curve):
        return [curve.words() for curve in value]
    if isinstance(value, tuple) and many:
        return [str(item) for item in value]
    if isinstance(value, tuple):
        return [",".join(str(item) for item in value)]
    return [str(value)]


def _shown(default: Any) -> str:
    if isinstance(default, Sequence) and not isinstance(default, str):
        return " ".join(str(item) for item in default)
    return str(default)


#: More numbers than this in one list is a slip of the pen.
MOST = 1_000_000
_ITEM = re.compile(r"\s*(?P<low>[^:]+?)\s*(?::\s*(?P<high>[^:]+?)\s*:\s*(?P<how>[x+])\s*(?P<step>[^:]+?)\s*)?$")


def numbers(given: str | int | Iterable[int], name: str, *, least: int = 0, most: int = 2**31 - 1) -> tuple[int, ...]:
    """The numbers that ``given`` lists, in its order, repetitions removed.

    ``item ("," item)*``; an item is a number or ``low:high:x2`` (low, 2 low, ... up to high) or ``low:high:+2``; a
    number is decimal or a power such as ``2^13``.

    Raises:
        StudyError: anything else, a number outside ``least`` ... ``most``, more than a million numbers.
    """
    if isinstance(given, int):
        given = [given]
    found = list(_listed(given, name)) if isinstance(given, str) else [_whole(value, name) for value in given]
    if not found:
        raise StudyError(f"{name} lists no number. Give some, such as 64,256 or 2^6:2^13:x2.")
    for value in found:
        if not least <= value <= most:
            raise StudyError(f"{name} = {value}; allowed: {least} to {most}.")
    return tuple(dict.fromkeys(found))


def _whole(value: object, name: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise StudyError(f"{name} has {value!r}; allowed: whole numbers.")


def _listed(text: str, name: str) -> Iterator[int]:
    count = 0
    for item in text.split(","):
        match = _ITEM.match(item)
        if match is None:
            raise _unreadable(item, name)
        low = _number(match["low"], name)
        if match["how"] is None:
            yield low
            continue
        high, step = _number(match["high"], name), _number(match["step"], name)
        if (match["how"] == "x" and (step < 2 or low < 1)) or step < 1:
            raise StudyError(f"{name} = {item.strip()} never ends; allowed: x2 or more from 1 or more, +1 or more.")
        while low <= high:
            yield low
            low = low * step if match["how"] == "x" else low + step
            count += 1
            if count > MOST:
                raise StudyError(f"{name} = {text} lists more than {MOST:,} numbers.")


def _number(text: str, name: str) -> int:
    base, power, exponent = text.partition("^")
    if base.isascii() and base.isdigit() and (not power or (exponent.isascii() and exponent.isdigit())):
        if power and int(exponent) > 62:
            raise StudyError(f"{name} = {text} is more than 2^62.")
        return int(base) ** int(exponent) if power else int(base)
    raise _unreadable(text, name)


def _unreadable(text: str, name: str) -> StudyError:
    return StudyError(f"{name} has {text.strip()!r}; allowed: 64, 2^13, 64,256,1024, 2^6:2^13:x2, 0:10:+2.")
