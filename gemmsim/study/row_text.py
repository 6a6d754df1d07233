"""A row as its line of results.jsonl, and the digest it carries: each value is put into text once, for both.

``stamp(row)`` gives what ``json.dumps`` of the whole row would, twice: sorted without blanks for the digest, then in
order for the line. Cells wait while rows are written, so what rows with the same columns have in common is found once,
values of one type are put into text together, and objects that many rows share are written once. Of what is left half
are the shortest digits of floating-point numbers.
"""

from __future__ import annotations

import functools
import hashlib
import json
import marshal
import math
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring_ascii
from operator import itemgetter
from typing import Any, NamedTuple

from .cells import DIGITS, Row

__all__ = ["SCHEMA", "as_line", "stamp"]

#: Version of the row layout. A folder of another version is refused.
SCHEMA = 2


def stamp(row: Row) -> tuple[Row, str]:
    """``row`` with ``schema`` and a ``digest`` of all its other columns as it will read back from JSON, and its line.

    ``row`` has a column ``cell``; names of columns are text. JSON has no infinities and no NaN: they become null. Count
    them in a column if they matter.

    Raises:
        TypeError: a value that JSON does not have. ValueError: infinities or NaN inside a list or object.
    """
    body: Row = {"schema": SCHEMA, **row}
    body.pop("digest", None)
    values = list(body.values())
    layout = _layout(tuple(body), tuple(map(type, values)))
    nested = []
    for place, name in layout.nested:
        written = _written(values[place])
        nested.append(written)
        body[name] = marshal.loads(written.value)
    numbers = layout.floats(values)
    if not math.isfinite(sum(numbers)) and not all(map(math.isfinite, numbers)):
        return stamp({name: None if _is_no_number(value) else value for name, value in row.items()})
    texts = [*map(float.__repr__, numbers), *map(encode_basestring_ascii, layout.strings(values))]
    texts += map(int.__repr__, layout.integers(values))
    content = layout.canonical([*texts, *(written.canonical for written in nested)])
    body["digest"] = hashlib.sha256(content.encode("ascii")).hexdigest()[:DIGITS]
    return body, layout.line([*texts, *(written.text for written in nested), body["digest"]])


def _is_no_number(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def as_line(row: Row) -> str:
    """The line of a row that has its digest."""
    return json.dumps(row, ensure_ascii=True) + "\n"


_NESTED = json.JSONEncoder(allow_nan=False)


class _Written(NamedTuple):
    """An object or list: its text, that with sorted names without blanks, and what reads back, marshalled."""

    text: str
    canonical: str
    value: bytes


def _written(value: Any) -> _Written:
    try:
        return _known(marshal.dumps(value, _MARSHAL))
    except ValueError:  # not of the plain types alone
        return _write(value)


#: The last version of marshal's format in which bytes do not depend on who else refers to a value.
_MARSHAL = 2


@functools.lru_cache(maxsize=1024)
def _known(value: bytes) -> _Written:
    """``_write`` of what ``value`` is the marshalled form of: rows of one spec have the same, and equal bytes are of
    equal values with equal types.
    """
    return _write(marshal.loads(value))


def _write(value: Any) -> _Written:
    text = _NESTED.encode(value)
    back = json.loads(text)
    return _Written(text, json.dumps(back, sort_keys=True, separators=(",", ":")), marshal.dumps(back, _MARSHAL))


#: Classes whose values are put into text together, in this order; of the others each by itself.
_TOGETHER = (float, str, int)


class _Layout:
    """What rows with these columns, of these types, share: where the values of each type are, and the text around them
    in the line and in the canonical form, which has sorted names and no blanks.
    """

    def __init__(self, names: tuple[str, ...], types: tuple[type, ...]) -> None:
        kinds = [bool if kind is bool else next((k for k in _TOGETHER if issubclass(kind, k)), kind) for kind in types]
        groups = [[at for at, kind in enumerate(kinds) if kind is wanted] for wanted in _TOGETHER]
        self.floats, self.strings, self.integers = map(_getter, groups)
        others = [at for at, kind in enumerate(kinds) if kind not in (*_TOGETHER, type(None))]
        self.nested = [(at, names[at]) for at in others]
        #: Number of a value's text among those of its row; None is the same text in each.
        texts = {at: number for number, at in enumerate(at for group in (*groups, others) for at in group)}
        quoted = [encode_basestring_ascii(name) for name in names]
        in_order = [(f"{quoted[at]}: ", texts.get(at)) for at in range(len(names))]
        self.line = _joined("{", [*in_order, ('"digest": "', len(texts))], ", ", '"}\n')
        by_name = sorted(range(len(names)), key=names.__getitem__)
        self.canonical = _joined("{", [(f"{quoted[at]}:", texts.get(at)) for at in by_name], ",", "}")


_layout = functools.lru_cache(maxsize=256)(_Layout)


def _getter(places: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """``itemgetter`` of any number of places."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: [values[place] for place in places]


def _joined(
    start: str, columns: Sequence[tuple[str, int | None]], between: str, end: str
) -> Callable[[Sequence[str]], str]:
    """What joins the texts of a row's values: ``columns`` are what stands before each, and its number (None: null)."""
    parts, numbers = [start], []
    for at, (before, number) in enumerate(columns):
        parts[-1] += (between if at else "") + before
        if number is None:
            parts[-1] += "null"
        else:
            numbers.append(number)
            parts += ["", ""]
    parts[-1] += end
    chosen = _getter(numbers)

    def join(texts: Sequence[str]) -> str:
        filled = parts.copy()
        filled[1::2] = chosen(texts)
        return "".join(filled)

    return join
