"""Kinds of accumulator arguments: how each is read from a value or text, printed, and written to JSON.

A field of an accumulator names its kind (``field(metadata=argument(CAST))``); construction, the spec grammar and JSON
all read it through the same ``read``, so a new accumulator states its fields and nothing else.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, cast

from ..formats import (
    TENSOR_FORMATS,
    BlockFloatFormat,
    BlockFormat,
    Cast,
    FloatFormat,
    FormatError,
    OwnExponentFormat,
    Rounding,
    is_tensor_format_name,
    parse_block,
    parse_cast,
    parse_rounding,
    parse_scalar,
    parse_tensor_format,
)
from ..formats.any_format import FORMATS
from ..formats.block_grammar import is_block_name
from ..formats.errors import shown
from .errors import SpecFormatError, spec_error

__all__ = [
    "ACCUMULATOR",
    "BOOL",
    "CAST",
    "FORMAT",
    "MEMBERS",
    "OPERAND",
    "ROUNDING",
    "WORD",
    "AccumulatorKind",
    "BoolKind",
    "CastKind",
    "ChoiceKind",
    "FormatKind",
    "IntKind",
    "Kind",
    "MembersKind",
    "OperandKind",
    "RoundingKind",
    "WordKind",
    "argument",
    "optional",
    "read_cast",
]


class Kind(ABC):
    """One kind of argument."""

    @abstractmethod
    def read(self, value: object, owner: str, name: str) -> Any:
        """The argument that ``value`` (an object, text of a spec, or JSON) stands for; ``SpecError`` if none."""

    def text(self, value: Any) -> str:
        """Spec text of the argument; ``read`` takes it back."""
        return str(value)

    def json(self, value: Any) -> object:
        """JSON value of the argument; ``read`` takes it back."""
        return str(value)


def argument(kind: Kind, *, keyword: bool = False) -> dict[str, Any]:
    """Metadata of a dataclass field of this kind; ``keyword`` prints it as ``name=value`` in spec strings."""
    return {"kind": kind, "keyword": keyword}


def read_cast(value: object, owner: str, name: str) -> Cast:
    """Cast named or held by ``value``; ``SpecFormatError`` says where in which specification it stood."""
    if isinstance(value, Cast):
        return value
    try:
        if isinstance(value, Mapping):
            return Cast.from_json(cast("Mapping[str, object]", value))
        return parse_cast(cast("str", value))
    except FormatError as error:
        raise SpecFormatError(f"{owner}, {name}: {error}") from error


_TENSOR_KINDS: dict[object, Any] = dict(
    zip(("block_float", "finite_float", "scaled_block", "scaled_cast"), TENSOR_FORMATS, strict=True)
)


class CastKind(Kind):
    """A format with its rounding and overflow policy; ``takes_two``: also two roundings in a row (``Cast.via``)."""

    def __init__(self, takes_two: bool = False) -> None:
        self.takes_two = takes_two

    def read(self, value: object, owner: str, name: str) -> Cast:
        found = read_cast(value, owner, name)
        if found.via is not None and not self.takes_two:
            raise spec_error(
                f"{owner}: {name}={found}, two roundings in a row",
                "them where partial sums are combined (outer, reduce, partial, combine) and as the output, "
                "'-> fp32 -> bf16'; one rounding elsewhere",
                f"Give {name}={found.steps[1]}.",
            )
        return found


class OperandKind(CastKind):
    """A format with its rounding and overflow policy, a block format, or block floating point.

    An operand is a tensor: block floating point of single numbers is that with blocks of one.
    """

    def read(self, value: object, owner: str, name: str) -> Any:
        if isinstance(value, Mapping) and value.get("kind") == "block":
            read = BlockFormat.from_json
        elif isinstance(value, BlockFormat) or (
            isinstance(value, str) and is_block_name(value) and not is_tensor_format_name(value)
        ):
            read = parse_block  # type: ignore[assignment]
        elif isinstance(value, Mapping) and value.get("kind") in _TENSOR_KINDS:
            read = _TENSOR_KINDS[value["kind"]].from_json
        elif isinstance(value, TENSOR_FORMATS) or (isinstance(value, str) and is_tensor_format_name(value)):
            read = parse_tensor_format  # type: ignore[assignment]
        else:
            found = super().read(value, owner, name)
            own = found.format
            return own.as_blocks(found.rounding) if isinstance(own, OwnExponentFormat) else found
        try:
            return read(value)  # type: ignore[arg-type]
        except FormatError as error:
            raise SpecFormatError(f"{owner}, {name}: {error}") from error


class IntKind(Kind):
    """An integer from ``low`` to ``high``."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def read(self, value: object, owner: str, name: str) -> int:
        allowed = f"an integer from {self.low} to {self.high}"
        try:
            number = int(value, 0) if isinstance(value, str) else operator.index(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            number = None
        if number is None or isinstance(value, bool) or not self.low <= number <= self.high:
            raise spec_error(f"{owner}: {name}={shown(value)}", allowed, f"Give {name} as {allowed}.")
        return number

    def json(self, value: Any) -> object:
        return value


class ChoiceKind(Kind):
    """One word of a fixed set; ``also`` are other words for some of them."""

    def __init__(self, *words: str, **also: str) -> None:
        self.words, self.also = words, also

    def read(self, value: object, owner: str, name: str) -> str:
        word = value.strip().lower() if isinstance(value, str) else value
        word = self.also.get(word, word) if isinstance(word, str) else word
        if word not in self.words:
            allowed = ", ".join(map(repr, self.words))
            raise spec_error(f"{owner}: {name}={shown(value)}", allowed, f"Give {name} as one of these words.")
        return str(word)


class WordKind(Kind):
    """A word as it is written; which ones there are depends on other arguments, so the owner reads and checks it."""

    def read(self, value: object, owner: str, name: str) -> str:
        if not isinstance(value, str):
            raise spec_error(
                f"{owner}: {name}={shown(value)} of type {type(value).__name__}", "a word", "Give a string."
            )
        return value.strip()


class FormatKind(WordKind):
    """Name of a floating-point format, ours where we have one; the owner reads any other, and checks it."""

    def read(self, value: object, owner: str, name: str) -> str:
        if isinstance(value, FloatFormat):
            return str(value)
        word = super().read(value, owner, name)
        try:
            return str(parse_scalar(word))
        except FormatError:
            return word


class BoolKind(Kind):
    """True or False."""

    def read(self, value: object, owner: str, name: str) -> bool:
        word = value.strip().lower() if isinstance(value, str) else str(value).lower()
        if not isinstance(value, (bool, str)) or word not in ("true", "false"):
            raise spec_error(f"{owner}: {name}={shown(value)}", "true or false", f"Give {name} as a bool.")
        return word == "true"

    def text(self, value: Any) -> str:
        return str(value).lower()

    def json(self, value: Any) -> object:
        return value


class RoundingKind(Kind):
    """A rounding mode, with its random bits."""

    def read(self, value: object, owner: str, name: str) -> Rounding:
        try:
            return parse_rounding(cast("str", value))
        except FormatError as error:
            raise SpecFormatError(f"{owner}, {name}: {error}") from error


class AccumulatorKind(Kind):
    """A nested accumulator; a bare format means the sequential one.

    Accumulators have arguments, so their class is defined after this one and says so itself (``read_as``).
    """

    _class: Any

    def read_as(self, base: type) -> None:
        """The class of all accumulators, with ``parse`` and ``from_json``."""
        self._class = base

    def read(self, value: object, owner: str, name: str) -> Any:
        if isinstance(value, self._class):
            return value
        if isinstance(value, str):
            return self._class.parse(value)
        if isinstance(value, Mapping):
            return self._class.from_json(value)
        if isinstance(value, (Cast, BlockFloatFormat, *FORMATS)):
            return self._class.parse(str(value))
        raise spec_error(
            f"{owner}: {name}={shown(value)} of type {type(value).__name__}",
            "an accumulator, a format, a Cast or a string",
            "Try 'e5m10' or a constructor of gemmsim.acc.",
        )

    def makes(self, value: object) -> bool:
        """Whether ``value`` is an accumulator, or the call of one in text: no format, whatever it is."""
        return isinstance(value, self._class) or (isinstance(value, str) and bool(self._class.is_call(value)))

    def text(self, value: Any) -> str:
        return str(value.text(nested=True))

    def json(self, value: Any) -> object:
        return cast("object", value.to_json())


class MembersKind(Kind):
    """A list of ``low`` to ``high`` accumulators."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def read(self, value: object, owner: str, name: str) -> tuple[Any, ...]:
        allowed = f"{self.low} to {self.high} accumulators"
        if not isinstance(value, (list, tuple)):
            raise spec_error(f"{owner}: {name}={shown(value)}", allowed, "Give them one after the other.")
        if not self.low <= len(value) <= self.high:
            raise spec_error(f"{owner} of {len(value)} accumulators", allowed, "Leave some out, or give one.")
        return tuple(ACCUMULATOR.read(member, owner, name) for member in value)

    def text(self, value: Any) -> str:
        return ", ".join(ACCUMULATOR.text(member) for member in value)

    def json(self, value: Any) -> object:
        return [ACCUMULATOR.json(member) for member in value]


class _Optional(Kind):
    """None, or another kind."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    def read(self, value: object, owner: str, name: str) -> Any:
        if value is None or (isinstance(value, str) and value.strip().lower() == "none"):
            return None
        return self.kind.read(value, owner, name)

    def text(self, value: Any) -> str:
        return "none" if value is None else self.kind.text(value)

    def json(self, value: Any) -> object:
        return None if value is None else self.kind.json(value)


def optional(kind: Kind) -> Kind:
    """The kind that also takes None (``none`` in text)."""
    return _Optional(kind)


BOOL = BoolKind()
WORD = WordKind()
FORMAT = FormatKind()
CAST = CastKind()
OPERAND = OperandKind()
ROUNDING = RoundingKind()
ACCUMULATOR = AccumulatorKind()
MEMBERS = MembersKind(1, 8)
