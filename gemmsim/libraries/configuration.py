"""The configuration that cuBLASLt's heuristic returns: nine numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..formats.errors import shown, suggestion
from .errors import library_error

__all__ = ["Config", "read_config", "shown_config"]

_ALLOWED = "nine integers, or None for a field that decides nothing"
_EXAMPLE = (
    "Write (66, None, 4, None, None, None, 35, None, None), or {'ALGO_ID': 66, 'SPLITK_NUM': 4, 'STAGES_ID': 35}."
)


class Config(NamedTuple):
    """The nine attributes of a cuBLASLt algorithm, by their public names; None for one that is not given.

    ALGO_ID, SPLITK_NUM, REDUCTION_SCHEME, CUSTOM_OPTION and STAGES_ID decide the bits; no influence of the others was
    ever observed.

    Example:
        >>> gs.libraries.Config(66, SPLITK_NUM=4, STAGES_ID=35).slices
        4
    """

    ALGO_ID: int
    TILE_ID: int | None = None
    SPLITK_NUM: int | None = None
    REDUCTION_SCHEME: int | None = None
    CTA_SWIZZLING: int | None = None
    CUSTOM_OPTION: int | None = None
    STAGES_ID: int | None = None
    INNER_SHAPE_ID: int | None = None
    CLUSTER_SHAPE_ID: int | None = None

    @property
    def slices(self) -> int:
        """SPLITK_NUM; 1 where it is not given or below 1, as the library has it."""
        return max(1, self.SPLITK_NUM or 1)

    def __str__(self) -> str:
        return shown_config(self)


def shown_config(config: Config) -> str:
    """The fields that are given, by name."""
    given = zip(Config._fields, config, strict=True)
    return ", ".join(f"{name}={value}" for name, value in given if value is not None)


def read_config(value: Any) -> Config:
    """``value`` as a configuration: one, a sequence of nine fields, a mapping by their names, or text.

    Text has the fields in their order between commas, empty ones not given, and may be shorter: "66,,4,2,,,35".

    Raises:
        LibraryError: for anything else.
    """
    if type(value) is Config:
        fields = tuple(value)
    elif isinstance(value, str):
        fields = _from_text(value)
    elif isinstance(value, Mapping):
        fields = _from_mapping(value)
    elif isinstance(value, (tuple, list)):
        fields = tuple(value)
        if len(fields) != len(Config._fields):
            raise library_error(f"config {shown(value)} of {len(fields)} fields", _ALLOWED, _EXAMPLE)
    else:
        raise library_error(f"config={shown(value)}, a {type(value).__name__}", _ALLOWED, _EXAMPLE)
    for name, field in zip(Config._fields, fields, strict=True):
        _check_field(name, field)
    return Config._make(fields)


def _check_field(name: str, field: Any) -> None:
    """LibraryError for what is no value of the field."""
    if field is None and name != "ALGO_ID":
        return
    if type(field) is not int:
        what = "no ALGO_ID" if field is None else f"{name}={shown(field)}, a {type(field).__name__}"
        raise library_error(f"config with {what}", _ALLOWED, _EXAMPLE)
    low, high = (0, 0xFFFF) if name in ("INNER_SHAPE_ID", "CLUSTER_SHAPE_ID") else (-(2**31), 2**31 - 1)
    if not low <= field <= high:
        raise library_error(f"config with {name}={field}", f"{name} from {low} to {high}", _EXAMPLE)


def _from_text(text: str) -> tuple[Any, ...]:
    words = [word.strip() for word in text.split(",")]
    if len(words) > len(Config._fields):
        raise library_error(f"config {shown(text)} of {len(words)} fields", _ALLOWED, "Write '66,,4,2,,,35'.")
    try:
        found = [int(word) if word else None for word in words]
    except ValueError:
        raise library_error(
            f"config {shown(text)}",
            "integers between commas, nothing for a field that is not given",
            "Write '66,,4,2,,,35'.",
        ) from None
    return (*found, *[None] * (len(Config._fields) - len(found)))


def _from_mapping(fields: Mapping[Any, Any]) -> tuple[Any, ...]:
    unknown = [name for name in fields if name not in Config._fields]
    if unknown:
        near = suggestion(str(unknown[0]).upper(), Config._fields)
        raise library_error(f"config with {shown(unknown[0])}", ", ".join(Config._fields), f"{near}{_EXAMPLE}")
    return tuple(fields.get(name) for name in Config._fields)
