"""Reading the dictionaries that ``to_json`` writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .errors import format_error

__all__ = ["install", "json_fields", "named_tensor_format", "read_name"]

_T = TypeVar("_T")


def json_fields(
    owner: str, kind: str, data: object, *, required: tuple[str, ...], optional: tuple[str, ...]
) -> dict[str, Any]:
    """Constructor arguments in ``data``; ``kind`` must agree if present and ``name`` is ignored.

    Raises:
        FormatError: if ``data`` is no mapping, is of another kind, or has missing or unknown keys.
    """
    keys = ", ".join(required + optional)
    if not isinstance(data, Mapping):
        raise format_error(f"{owner}.from_json({data!r})", f"a mapping with {keys}", "Pass what to_json() returned.")
    if data.get("kind", kind) != kind:
        raise format_error(
            f"{owner}.from_json: kind={data['kind']!r}", repr(kind), "Use format_from_json for any kind."
        )
    missing = [key for key in required if key not in data]
    unknown = [str(key) for key in data if key not in (*required, *optional, "kind", "name")]
    if missing or unknown:
        problem = f"missing {', '.join(missing)}" if missing else f"unknown {', '.join(unknown)}"
        raise format_error(f"{owner}.from_json: {problem}", keys, "Pass what to_json() returned.")
    return {key: data[key] for key in (*required, *optional) if key in data}


def named_tensor_format(cls: type[_T], kind: str, data: Mapping[str, object] | str) -> _T:
    """The format of tensors of class ``cls`` whose name is ``data``, or is in it.

    Raises:
        FormatError: for other data, text that is no such name, and the name of another class.
    """
    if not isinstance(data, str):
        name = data.get("name") if isinstance(data, Mapping) else None
        json_fields(cls.__name__, kind, data, required=(), optional=())
        data = name if isinstance(name, str) else ""
    found = read_name("tensor", data)
    if not isinstance(found, cls):
        raise format_error(f"{cls.__name__}.from_json: {data!r}", f"the name of a {cls.__name__}", "Use parse(name).")
    return found


_READERS: dict[str, Callable[[str], Any]] = {}


def install(**readers: Callable[[str], Any]) -> None:
    """Says who reads names: ``scalar``, ``block``, ``tensor`` and ``cast``, by what they give."""
    _READERS.update(readers)


def read_name(kind: str, text: str) -> Any:
    """What the reader of this kind makes of ``text``; its errors."""
    return _READERS[kind](text)
