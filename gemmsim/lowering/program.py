"""An accumulator as kernels run it: a run of terms inside wrappers that say which totals meet in which order.

How an accumulator becomes one is registered beside others of its kind: ``orders`` (wrappers), ``runs`` and
``instructions``. ``accumulators`` puts them together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gemmsim.arithmetic import Accumulator
from gemmsim.arithmetic.shuffled import Shuffled
from gemmsim.formats import Cast
from gemmsim.hardware.step_parameters import LEAST_EXPONENT

from .abi_constants import Method
from .orders import Wrapped
from .type_registry import Function, enter, registered

__all__ = ["HardwareStep", "Program", "Register", "Run", "run_of", "runs"]


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
    """gemmsim::HardwareModel: a matrix instruction's step (gemmsim/hardware/step_parameters.py). ``kept`` -1: exact."""

    kind: int = 0
    products: int = 0
    kept: int = 0
    out: int = 0
    k: int = 0
    least: int = LEAST_EXPONENT
    group: int = 0
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


_Running = Callable[[Any], Run]
_RUNS: dict[type[Accumulator], _Running] = {}


def runs(*kinds: type[Accumulator]) -> Callable[[Function], Function]:
    """Decorator: the function ``accumulator -> Run`` says which run accumulators of ``kinds`` are."""
    return enter(_RUNS, kinds)


def run_of(accumulator: Accumulator) -> Run | None:
    """The run that ``accumulator`` is, None if it is none."""
    found: _Running | None = registered(_RUNS, accumulator)
    return None if found is None else found(accumulator)
