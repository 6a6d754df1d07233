"""A row as its line of results.jsonl, and the digest it carries: each value is put into text once, for both.

``stamp(row)`` gives what ``json.dumps`` of the whole row would, twice: sorted without blanks for the digest, then in
order for the line. Cells wait while rows are written, mostly for memory that a cell has pushed out of the caches: so
one call of the standard library's encoder writes all values, and objects that many rows share are written once.
"""

from __future__ import annotations

import functools
import hashlib
import json
import marshal
import math
from collections.abc import Callable
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
        nested.append((place, written))
        body[name] = marshal.loads(written.value)
        values[place] = None
    try:
        text = _VALUES.encode(values)
    except ValueError:  # a number that JSON does not have
        for place, (name, value) in enumerate(body.items()):
            if isinstance(value, float) and not math.isfinite(value):
                body[name] = values[place] = None
        text = _VALUES.encode(values)
    texts = text[1:-1].split(_BETWEEN)
    for place, written in nested:
        texts[place] = written.canonical
    content = layout.canonical % layout.in_order(texts)
    for place, written in nested:
        texts[place] = written.text
    body["digest"] = hashlib.sha256(content.encode("ascii")).hexdigest()[:DIGITS]
    return body, layout.line % (*texts, body["digest"])


def as_line(row: Row) -> str:
    """The line of a row that has its digest."""
    return json.dumps(row, ensure_ascii=True) + "\n"


#: Between the values of a row: no text has it, as JSON writes control characters as escapes.
_BETWEEN = "\x1f"
_VALUES = json.JSONEncoder(allow_nan=False, separators=(_BETWEEN, ":"))
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


class _Layout:
    """What rows with these columns, of these types, share: the text around the values, in the line and in the canonical
    form with sorted names, and where objects and lists are.
    """

    def __init__(self, names: tuple[str, ...], types: tuple[type, ...]) -> None:
        quoted = [encode_basestring_ascii(name).replace("%", "%%") for name in names]
        order = sorted(range(len(names)), key=names.__getitem__)
        self.line = "{" + "".join(f"{name}: %s, " for name in quoted) + '"digest": "%s"}\n'
        self.canonical = "{" + ",".join(f"{quoted[place]}:%s" for place in order) + "}"
        #: What belongs into the canonical text, by name.
        self.in_order: Callable[[list[str]], tuple[str, ...]] = itemgetter(*order)
        plain = (str, int, float, type(None))
        self.nested = [(at, names[at]) for at, kind in enumerate(types) if not issubclass(kind, plain)]


_layout = functools.lru_cache(maxsize=256)(_Layout)
