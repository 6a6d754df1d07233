"""Lists of whole numbers as text: ``64``, ``1,2,8``, ``2^6:2^13:x2``, ``0:10:+2``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .errors import StudyError

__all__ = ["MOST", "numbers"]

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
