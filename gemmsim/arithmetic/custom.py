"""Accumulators that users write: a class with a step, known to specs by name."""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

from ..formats import FP64, Cast
from .accumulator import Accumulator, constructors, forget, register
from .argument_kinds import ACCUMULATOR, BOOL, CAST, IntKind, Kind, argument, optional, read_cast
from .errors import spec_error
from .presets import PRESETS
from .recipe_words import RECIPES
from .wrappers import Composite

__all__ = ["NUMBERS", "Custom", "Swapped", "define"]

#: What a step may compute with.
NUMBERS = ("float64", "float32", "int64")
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_WORD = re.compile(r"[A-Za-z0-9_.+-]+")


class _Number(Kind):
    """A float that is a number or infinite."""

    def read(self, value: object, owner: str, name: str) -> float:
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if math.isnan(number) or isinstance(value, bool):
            raise spec_error(f"{owner}: {name}={value!r}", "a number other than NaN", f"Give {name} as a float.")
        return number

    def text(self, value: Any) -> str:
        return repr(value)

    def json(self, value: Any) -> object:
        return value if math.isfinite(value) else repr(value)


class _Word(Kind):
    """A string that spec text can hold as it is."""

    def read(self, value: object, owner: str, name: str) -> str:
        if not isinstance(value, str) or not _WORD.fullmatch(value):
            allowed = "letters, digits and any of _ . + -"
            raise spec_error(f"{owner}: {name}={value!r}", allowed, "Use such a word: it stands in spec strings.")
        return value


_KINDS: dict[Any, Kind] = {
    int: IntKind(-(2**63), 2**63 - 1),
    float: _Number(),
    bool: BOOL,
    str: _Word(),
    Cast: CAST,
}


class Custom(Accumulator):
    """An accumulator whose step is a Python function, computed term by term with PyTorch on any device.

    A subclass has a method ``step`` and the decorator ``define(name)``, which also makes it a frozen dataclass.
    Annotated names are its arguments (int, float, bool, str, Cast, or one of these ``| None``), in specs as in Python.

        @gs.acc.define("leaky")
        class Leaky(gs.acc.Custom):
            '''s = decay * s + a * b'''
            decay: float = 0.5

            def step(self, s, a, b, k):
                return s * self.decay + a * b

        gs.qmatmul(a, b, Leaky(0.25))
        gs.qmatmul(a, b, "e4m3 : leaky(0.25) -> bf16")

    gemmsim calls ``step`` for k ascending from 0, for all outputs at once. It rounds what ``finish`` returns to
    ``register``, if there is one, and then to the spec's output. The step decides what happens to NaN, infinities, -0
    and overflow. Random bits are not provided: a step must give the same result whenever it gets the same numbers. Such
    an accumulator is its own definition: no other code computes it. It takes about as long as its PyTorch operations, K
    times on tensors of the output's shape.

    Example:
        >>> @gs.acc.define("largest")
        ... class Largest(gs.acc.Custom):
        ...     def step(self, s, a, b, k):
        ...         return torch.maximum(s, a * b)
        >>> gs.qmatmul(torch.tensor([[1.0, 3.0, 2.0]]), torch.ones(3, 1), "largest()")
        tensor([[3.]])
    """

    #: Dtype of the state and the operands in ``step``: one of ``NUMBERS``. "int64" takes operands that are integers.
    numbers: ClassVar[str] = "float64"
    #: Format or cast of the result, in which totals of runs can be added (``chunked``, ``pairwise``); None: none.
    register: ClassVar[Any] = None
    #: Formats or casts of a and b that ``step`` is meant for; None: any numbers.
    operands: ClassVar[Any] = None

    # Tensors are Any: this package needs nothing more than the standard library.

    def start(self, zeros: Any) -> Any:
        """State before the first term: a tensor or a tuple of tensors. ``zeros`` has the output's shape (..., M, N)."""
        return zeros

    def step(self, s: Any, a: Any, b: Any, k: int) -> Any:
        """State after term ``k``: ``a`` (..., M, 1) and ``b`` (..., 1, N), which broadcast to the output's shape."""
        raise NotImplementedError

    def finish(self, s: Any) -> Any:
        """Result of the state after the last term: the state, or the first of several tensors."""
        return s[0] if isinstance(s, tuple) else s

    # What accumulators say of themselves

    def casts(self) -> Iterator[Cast]:
        """``register``, if there is one."""
        if self.register is not None:
            yield self.add_cast

    def grids(self) -> Iterator[int]:
        """Integers, or any number that a step's float64 may be."""
        yield 0 if self.numbers == "int64" else FP64.quantum_exponent
        yield from super().grids()

    @property
    def add_cast(self) -> Cast:
        """``register``; fp64 without one."""
        return Cast(FP64) if self.register is None else read_cast(self.register, self.name, "register")

    @property
    def product_cast(self) -> Cast | None:
        """None: ``step`` multiplies."""
        return None

    def with_product(self, product: Cast) -> Accumulator:
        """Refused: ``step`` multiplies.

        Raises:
            SpecError: always.
        """
        raise spec_error(
            f"product={product} with {self}", "no product rounding: its step multiplies", "Leave product out."
        )

    @property
    def operand_casts(self) -> tuple[Cast, Cast] | None:
        """``operands`` as casts."""
        if self.operands is None:
            return None
        pair = self.operands if isinstance(self.operands, tuple) else (self.operands, self.operands)
        return read_cast(pair[0], self.name, "operands"), read_cast(pair[1], self.name, "operands")

    @property
    def integer_operands(self) -> bool:
        """Whether ``numbers`` is "int64"."""
        return self.numbers == "int64"

    @property
    def is_custom(self) -> bool:
        """True."""
        return True

    @property
    def combines(self) -> bool:
        """Whether there is a ``register``."""
        return self.register is not None

    def transposed(self) -> Accumulator:  # type: ignore[override]
        """The accumulator with b's term as the first argument of ``step``, which need not be symmetric."""
        return Swapped(self)

    def explain_lines(self) -> list[tuple[str, str]]:
        """The first line of the class' docstring."""
        words = (type(self).__doc__ or "").strip().partition("\n")[0]
        own = words if words and not words.startswith(f"{type(self).__name__}(") else "no docstring says which"
        return [("each step", f"{type(self).__qualname__}.step: {own}"), ("order", "k ascending from 0")]


@register("swapped")
@dataclasses.dataclass(frozen=True, repr=False)
class Swapped(Composite):
    """A ``Custom`` accumulator for the transposed product: its step gets b's term as ``a``, and a's as ``b``.

    Backward products of layers need it where a step is not symmetric.

    Args:
        inner: the accumulator, a ``Custom`` one.

    Example:
        >>> @gs.acc.define("one_sided")
        ... class OneSided(gs.acc.Custom):
        ...     def step(self, s, a, b, k):
        ...         return s + a.abs() * b
        >>> gs.GemmSpec.parse("e4m3 * bf16 : one_sided()").transposed()
        GemmSpec.parse('e8m7 * e4m3 : swapped(one_sided())')
    """

    inner: Accumulator = dataclasses.field(metadata=argument(ACCUMULATOR))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.inner, Custom):
            raise spec_error(f"swapped({self.inner})", "accumulators of a user's own class", "Swap a and b instead.")

    @property
    def operand_casts(self) -> tuple[Cast, Cast] | None:
        """Those of ``inner``, the other way round."""
        casts = self.inner.operand_casts
        return None if casts is None else (casts[1], casts[0])

    @property
    def combines(self) -> bool:
        """As ``inner``."""
        return self.inner.combines

    def transposed(self) -> Accumulator:  # type: ignore[override]
        """``inner``."""
        return self.inner

    def explain_lines(self) -> list[tuple[str, str]]:
        """The words of ``inner``."""
        return [*self.inner.explain_lines(), ("operands", "a and b exchanged")]


CustomType = TypeVar("CustomType", bound="type[Custom]")


def define(name: str) -> Callable[[CustomType], CustomType]:
    """Class decorator that makes a subclass of ``Custom`` a frozen dataclass, known to specs and JSON as ``name``.

    Defining the same class again (as a notebook cell does that runs twice) replaces it.

    Raises:
        SpecError: for a name that is not a word in lower case or belongs to another accumulator, an argument of a kind
            that specs have no text for, and a class without a step.

    Example:
        >>> @gs.acc.define("decayed")
        ... class Decayed(gs.acc.Custom):
        ...     factor: float = 0.5
        ...     def step(self, s, a, b, k):
        ...         return s * self.factor + a * b
        >>> gs.qmatmul(torch.ones(1, 3), torch.ones(3, 1), "decayed(0.25)")
        tensor([[1.3125]])
    """

    def enter(cls: CustomType) -> CustomType:
        _check(cls, name)
        _give_kinds(cls)
        made = dataclasses.dataclass(frozen=True)(cls)
        if name in constructors():
            forget()  # specs that were read with the class as it was
        register(name)(made)
        return made  # type: ignore[return-value]

    return enter


def _check(cls: type, name: str) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Custom)) or cls.step is Custom.step:
        raise spec_error(
            f"define({name!r}) of {cls!r}",
            "a subclass of gemmsim.acc.Custom with a method step(s, a, b, k)",
            "Add it.",
        )
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise spec_error(f"define({name!r})", "a word of a-z, 0-9 and _", "Choose such a name.")
    if name in PRESETS or name in RECIPES:
        what = "a preset of gemmsim.acc" if name in PRESETS else "a recipe of gemmsim.recipes"
        raise spec_error(
            f"define({name!r}) of {cls.__qualname__}", f"names other than {name!r}, which is {what}", "Rename."
        )
    before = constructors().get(name)
    same = before is not None and (before.__module__, before.__qualname__) == (cls.__module__, cls.__qualname__)
    if before is not None and not same:
        raise spec_error(
            f"define({name!r}) of {cls.__qualname__}",
            f"names other than {name!r}, which is {before.__qualname__}",
            "Rename.",
        )
    if cls.numbers not in NUMBERS:
        raise spec_error(f"{cls.__qualname__}.numbers = {cls.numbers!r}", ", ".join(map(repr, NUMBERS)), "Choose one.")
    for field in ("register", "operands"):
        value = getattr(cls, field)
        pair = value if field == "operands" and isinstance(value, tuple) else (value,)
        if value is not None:
            for one in pair:
                read_cast(one if not hasattr(one, "to_json") else str(one), cls.__qualname__, field)


def _give_kinds(cls: type[Custom]) -> None:
    """Make the fields of ``cls`` say their kinds, as those of our own accumulators do."""
    hints = typing.get_type_hints(cls, localns={"Cast": Cast})
    for field in cls.__dict__.get("__annotations__", {}):
        hint = hints[field]
        if typing.get_origin(hint) is ClassVar or field.startswith("_"):
            continue
        kind = _kind(hint)
        if kind is None:
            raise spec_error(
                f"{cls.__qualname__}.{field}: {hint}", "int, float, bool, str, Cast, or one of them | None", "Use one."
            )
        default = cls.__dict__.get(field, dataclasses.MISSING)
        if isinstance(default, dataclasses.Field):
            default = default.default
        setattr(cls, field, dataclasses.field(default=default, metadata=argument(kind)))


def _kind(hint: Any) -> Kind | None:
    members = typing.get_args(hint)
    if type(None) in members and len(members) == 2:
        inner = _kind(next(member for member in members if member is not type(None)))
        return None if inner is None else optional(inner)
    return _KINDS.get(hint)
