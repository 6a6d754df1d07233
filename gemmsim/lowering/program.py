"""An accumulator as kernels run it: a run of terms inside wrappers that say which totals meet in which order.

How an accumulator becomes one is registered beside others of its kind: ``orders`` (wrappers), ``runs`` and
``instructions``. ``accumulators`` puts them together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from gemmsim.arithmetic import Accumulator
from gemmsim.arithmetic.shuffled import Shuffled
from gemmsim.formats import Cast

from .numbers import Method

if TYPE_CHECKING:
    from .orders import Order

__all__ = ["HardwareStep", "Program", "Register", "Run", "Wrapped", "run_of", "runs", "wrapper_of", "wraps"]


@dataclass(frozen=True)
class Wrapped:
    """One wrapper: which order, its size, the rounding of each combination (none for a permutation)."""

    order: Order
    n: int
    cast: Cast | None
    pairs: bool = False


@dataclass(frozen=True)
class Register:
    """gemmsim::Register: of two's complement and fixed point; of BINNED runs the first number is the carry."""

    bits: int = 1
    saturate: int = 0
    at_end: int = 0
    is_signed: int = 1
    shift: int = 0
    frac: int = 0


@dataclass(frozen=True)
class HardwareStep:
    """gemmsim::HardwareModel: the step of a matrix instruction (gemmsim/hardware/models.py). ``kept`` -1: no cut."""

    kind: int = 0
    products: int = 0
    kept: int = 0
    out: int = 0
    k: int = 0
    group: int = 0
    flush: int = 0
    total_bits: int = 0
    addend_bits: int = 0
    halves: int = 0
    window: int = 0
    a_emin: int = 0
    b_emin: int = 0


@dataclass(frozen=True)
class Run:
    """A run of terms: its method, the roundings of sums and products, where an addend enters."""

    method: Method
    add: Cast
    mul: Cast | None = None
    init: str = "zero"
    register: Register = Register()
    hardware: HardwareStep | None = None


@dataclass(frozen=True)
class Program(Run):
    """A run and the wrappers around it, from the outside in; the permutation, if any."""

    wrappers: tuple[Wrapped, ...] = ()
    shuffle: Shuffled | None = None


#: (accumulator, terms that share a pair of scales, if the accumulator takes scales apart).
_Wrapping = Callable[[Any, "int | None"], Wrapped]
_Running = Callable[[Any], Run]
_WRAPPERS: dict[type[Accumulator], _Wrapping] = {}
_RUNS: dict[type[Accumulator], _Running] = {}
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _enter(
    table: dict[type[Accumulator], Any], kinds: tuple[type[Accumulator], ...]
) -> Callable[[_Function], _Function]:
    def enter(function: _Function) -> _Function:
        table.update(dict.fromkeys(kinds, function))
        return function

    return enter


def wraps(*kinds: type[Accumulator]) -> Callable[[_Function], _Function]:
    """Decorator: the function ``(accumulator, group) -> Wrapped`` says which wrapper accumulators of ``kinds`` are."""
    return _enter(_WRAPPERS, kinds)


def runs(*kinds: type[Accumulator]) -> Callable[[_Function], _Function]:
    """Decorator: the function ``accumulator -> Run`` says which run accumulators of ``kinds`` are."""
    return _enter(_RUNS, kinds)


def _registered(table: dict[type[Accumulator], Any], accumulator: Accumulator) -> Any:
    return next((table[kind] for kind in type(accumulator).__mro__ if kind in table), None)


def wrapper_of(accumulator: Accumulator, group: int | None) -> Wrapped | None:
    """The wrapper that ``accumulator`` is, None if it is none."""
    found: _Wrapping | None = _registered(_WRAPPERS, accumulator)
    return None if found is None else found(accumulator, group)


def run_of(accumulator: Accumulator) -> Run | None:
    """The run that ``accumulator`` is, None if it is none."""
    found: _Running | None = _registered(_RUNS, accumulator)
    return None if found is None else found(accumulator)
