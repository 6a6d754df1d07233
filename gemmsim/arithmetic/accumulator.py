"""What every accumulator has in common, and the table of their constructors."""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

from ..formats import Cast
from ..formats.errors import shortened, shown
from .argument_kinds import ACCUMULATOR, MEMBERS, Kind
from .construction_hooks import told
from .errors import MAX_DEPTH, SpecError, check_json_depth, spec_error, too_deep
from .explain import explain_accumulator

__all__ = [
    "Accumulator",
    "check_takes_terms",
    "constructors",
    "forget",
    "parses",
    "register",
    "remembers",
    "tells_calls",
]

_CONSTRUCTORS: dict[str, type[Accumulator]] = {}

AccumulatorType = TypeVar("AccumulatorType", bound="type[Accumulator]")
Self = TypeVar("Self", bound="Accumulator")


def register(name: str) -> Callable[[AccumulatorType], AccumulatorType]:
    """Class decorator that makes an accumulator known to spec strings and JSON as ``name``.

    ``define`` does the same for an accumulator whose step is a Python function.

    Example:
        >>> gs.arithmetic.Chunked.name  # decorated with @register("chunked")
        'chunked'
    """

    def enter(cls: AccumulatorType) -> AccumulatorType:
        cls.name = name
        _CONSTRUCTORS[name] = cls
        return cls

    return enter


def constructors() -> Mapping[str, type[Accumulator]]:
    """The accumulator classes by constructor name.

    Example:
        >>> gs.arithmetic.constructors()["kahan"]
        <class 'gemmsim.arithmetic.compensated.Kahan'>
    """
    return _CONSTRUCTORS


_PARSERS: dict[str, Callable[[str], Accumulator]] = {}
_CALLS: dict[str, Callable[[str], bool]] = {}


def parses(read: Callable[[str], Accumulator]) -> Callable[[str], Accumulator]:
    """Decorator: makes this function the reader of accumulators' names, which knows all their classes."""
    _PARSERS["accumulator"] = read
    return read


def tells_calls(tell: Callable[[str], bool]) -> Callable[[str], bool]:
    """Decorator: this function says whether text is the call of an accumulator, and no format."""
    _CALLS["accumulator"] = tell
    return tell


_REMEMBERED: list[Callable[[], object]] = []


def remembers(clear: Callable[[], object]) -> None:
    """Say how to empty a store of specs or accumulators by their text: ``forget`` does it."""
    _REMEMBERED.append(clear)


def forget() -> None:
    """Empty every such store: a name means another class from now on."""
    for clear in _REMEMBERED:
        clear()


@dataclass(frozen=True, repr=False)
class Accumulator(ABC):
    """How the products of one output element become one number. Accumulators are immutable values.

    They are hashable, compare by value, and can be written as text and as JSON. A subclass is a frozen dataclass whose
    fields carry ``metadata=argument(kind)``. Parsing, printing and JSON follow from the fields. The subclass adds the
    casts that it makes, its checks and its description.

    Example:
        >>> acc = gs.Accumulator.parse("chunked(64, bf16, fp32)")
        >>> acc == gs.acc.chunked(64, "bf16", "fp32"), acc.n, acc.outer.format.name
        (True, 64, 'e8m23')
    """

    #: Constructor name in spec strings and in gemmsim.acc; set by ``register``.
    name: ClassVar[str] = ""

    def __post_init__(self) -> None:
        told(type(self).__name__)
        for field, kind in self._arguments():
            value = kind.read(getattr(self, field.name), self.name, field.name)
            object.__setattr__(self, field.name, value)
            if kind is ACCUMULATOR or kind is MEMBERS:
                for inner in value if isinstance(value, tuple) else (value,):
                    check_takes_terms(inner, self.name)
        if self.depth > MAX_DEPTH:
            raise too_deep(f"{self.name} with {self.depth} accumulators inside one another")

    # What a subclass says

    @abstractmethod
    def casts(self) -> Iterator[Cast]:
        """Every rounding of this accumulator, inner ones included, in no particular order."""

    @property
    @abstractmethod
    def add_cast(self) -> Cast:
        """The cast of the accumulator that holds the result."""

    @property
    @abstractmethod
    def product_cast(self) -> Cast | None:
        """The rounding of each product; None where products enter exactly."""

    @abstractmethod
    def with_product(self, product: Cast) -> Accumulator:
        """This accumulator with each product rounded by ``product``; ``SpecError`` if that contradicts it."""

    @abstractmethod
    def explain_lines(self) -> list[tuple[str, str]]:
        """(heading, words) of each step and of the order of summation."""

    @property
    def fixed_seed(self) -> int | None:
        """The seed of the random bits if the specification fixes one; None means a new seed at each call."""
        return None

    def grids(self) -> Iterator[int]:
        """Exponents of powers of two that divide everything in an accumulator except the products."""
        return (one.format.quantum_exponent for step in self.casts() for one in step.steps)

    @property
    def operand_casts(self) -> tuple[Cast, Cast] | None:
        """The casts of a and b if this accumulator only takes certain formats; None if it takes any numbers."""
        return None

    def transposed(self: Self) -> Self:
        """This accumulator for the product of the transposed operands, b's part first."""
        return self

    @property
    def integer_operands(self) -> bool:
        """Whether both operands must be integers (as floats, for example)."""
        return False

    @property
    def exact_sums(self) -> bool:
        """Whether sums are kept exactly somewhere, so that no step could use binary32."""
        return False

    @property
    def needs_scales(self) -> bool:
        """Whether this takes the elements and the scales of block formats apart; one operand must then be in a block
        format.
        """
        return False

    @property
    def counts_overflows(self) -> bool:
        """Whether a two's complement accumulator is inside; ``count_overflows`` counts its overflows."""
        return False

    @property
    def combines(self) -> bool:
        """Whether ``add_cast`` may add two results; not for accumulators that wrap or overflow only at the end."""
        return True

    @property
    def is_custom(self) -> bool:
        """Whether a step is a user's Python function (``Custom``); the kernels of backends cannot compute it."""
        return False

    @property
    def rounding_alone(self) -> Cast | None:
        """The cast that rounds each sum, if this accumulator does nothing else to its terms; otherwise None."""
        return None

    @property
    def takes_totals(self) -> bool:
        """Whether the terms may be partial sums of other accumulators, each times 1."""
        return self.rounding_alone is not None

    @property
    def takes_terms(self) -> bool:
        """Whether the terms may be products; false for an accumulator that combines a fixed number of partial sums
        (``Tree``).
        """
        return True

    @property
    def is_lookup(self) -> bool:
        """Whether products come from a table (``Lookup``)."""
        return False

    @property
    def depth(self) -> int:
        """The depth of nested accumulators, this one included."""
        inside = 0
        for field, _ in self._arguments():
            value = getattr(self, field.name)
            members = value if isinstance(value, tuple) else (value,)
            inside = max(inside, *(one.depth for one in members if isinstance(one, Accumulator)), 0)
        return inside + 1

    def lost(self, K: int) -> int:
        """How many of K terms never enter the sum: 0, except for slices with ``share=floor``.

        Example:
            >>> gs.acc.splitk(3, "fp32", "fp32", share="floor").lost(100)
            1
        """
        return 0

    @property
    def levels(self) -> int:
        """The number of nested constructors that combine partial sums."""
        return 0

    # What follows from the fields

    @property
    def is_stochastic(self) -> bool:
        """Whether the result depends on random bits."""
        return any(step.is_stochastic for step in self.casts())

    @classmethod
    def _arguments(cls) -> Iterator[tuple[dataclasses.Field[Any], Kind]]:
        for field in dataclasses.fields(cls):
            if "kind" in field.metadata:
                yield field, cast("Kind", field.metadata["kind"])

    @classmethod
    def build(cls, args: list[object], kwargs: Mapping[str, object]) -> Accumulator:
        """Accumulator from positional and keyword arguments, objects or text.

        Raises:
            SpecError: for missing, superfluous or unknown arguments, or impossible values.
        """
        try:
            inspect.signature(cls).bind(*args, **kwargs)
        except TypeError as error:
            given = [shortened(f"{value}") for value in args]
            given += [shortened(f"{key}={value}") for key, value in kwargs.items()]
            raise spec_error(
                f"{cls.name}({', '.join(given)}): {error}", cls.signature(), "Correct the arguments."
            ) from None
        return cls(*args, **kwargs)

    @classmethod
    def signature(cls) -> str:
        """The constructor as you write it: ``sequential(add, mul=none, *, seed=none, init=zero)``."""
        parts: list[str] = []
        for field, kind in cls._arguments():
            if field.kw_only and "*" not in parts:
                parts.append("*")
            has_default = field.default is not dataclasses.MISSING
            parts.append(f"{field.name}={kind.text(_default(field, kind))}" if has_default else field.name)
        return f"{cls.name}({', '.join(parts)})"

    def text(self, *, nested: bool = False) -> str:
        """The spec text; ``nested`` for the form inside a constructor. ``parse_accumulator`` reads both."""
        parts: list[str] = []
        positional = True
        for field, kind in self._arguments():
            value = getattr(self, field.name)
            if field.default is not dataclasses.MISSING and value == _default(field, kind):
                positional = False
                continue
            by_name = field.kw_only or field.metadata["keyword"] or not positional
            parts.append(f"{field.name}={kind.text(value)}" if by_name else kind.text(value))
        return f"{self.name}({', '.join(parts)})"

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Accumulator.parse({self.text()!r})"

    def __format__(self, width: str) -> str:
        return format(str(self), width)

    def to_json(self) -> dict[str, object]:
        """The constructor's name and every argument as a plain dictionary; ``from_json`` reads it back.

        Example:
            >>> gs.acc.kahan("bf16").to_json()
            {'name': 'kahan', 'fmt': 'e8m7', 'mul': None}
        """
        values = {field.name: kind.json(getattr(self, field.name)) for field, kind in self._arguments()}
        return {"name": self.name, **values}

    @staticmethod
    def from_json(data: Mapping[str, object]) -> Accumulator:
        """The accumulator written by ``to_json``.

        Raises:
            SpecError: for an unknown constructor or bad arguments.

        Example:
            >>> gs.Accumulator.from_json({"name": "kahan", "fmt": "bf16"})
            Accumulator.parse('kahan(e8m7)')
        """
        if not isinstance(data, Mapping) or "name" not in data:
            raise spec_error(
                f"accumulator JSON {shown(data)}", "an object with 'name' and the arguments", "Use to_json()."
            )
        name = str(data["name"])
        if name not in _CONSTRUCTORS:
            known = ", ".join(sorted(_CONSTRUCTORS))
            raise spec_error(f"accumulator JSON with name {shown(name)}", known, "A newer gemmsim may have written it.")
        check_json_depth(data)
        arguments = {key: value for key, value in data.items() if key != "name"}
        return _CONSTRUCTORS[name].build([], arguments)

    @staticmethod
    def parse(text: str) -> Accumulator:
        """The accumulator named by ``text``; ``parse(str(a)) == a``.

        Raises:
            SpecError: for what is not a string, or names no accumulator.

        Example:
            >>> gs.Accumulator.parse("kahan(bf16)")
            Accumulator.parse('kahan(e8m7)')
        """
        if not isinstance(text, str):
            raise SpecError(
                f"accumulator {shown(text)} of type {type(text).__name__}; allowed: a string.\n  Try 'e5m10'."
            )
        return _PARSERS["accumulator"](text)

    @staticmethod
    def is_call(text: str) -> bool:
        """Whether ``text`` calls a constructor or preset, with any arguments, and is not a format."""
        return _CALLS["accumulator"](text)

    def explain(self) -> str:
        """What this accumulator computes, in a few lines of words.

        Example:
            >>> print(gs.acc.sequential("bf16").explain())
            accumulator e8m7
            product     exact (fused multiply-add)
            each step   s = R(s + a*b), one rounding to e8m7 (max 3.38953139e+38), to nearest, ties to even
            order       sequential, k ascending from +0
            overflow    e8m7: to infinity
        """
        return explain_accumulator(self)


def check_takes_terms(inner: Accumulator, where: str) -> None:
    """``SpecError`` for an accumulator of totals alone where products are added."""
    if not inner.takes_terms:
        raise spec_error(
            f"{where} with {inner} inside",
            "tree(...) where partial sums are combined: combine of interleaved, reduce of splitk",
            f"Write interleaved(n, inner, combine={inner}).",
        )


def _default(field: dataclasses.Field[Any], kind: Kind) -> object:
    return kind.read(field.default, "default", field.name)


ACCUMULATOR.read_as(Accumulator)
