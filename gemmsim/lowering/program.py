"""An accumulator as kernels read it: an innermost sum inside wrappers that say how partial sums are combined.

Each kind of accumulator registers its lowering in one module: ``orders`` (wrappers), ``innermost_sums`` or
``instructions``. ``accumulators`` assembles the program.
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
    """gemmsim::Register: an integer or fixed-point register. In BINNED sums the first number is the carry."""

    bits: int = 1
    saturate: int = 0
    at_end: int = 0
    is_signed: int = 1
    shift: int = 0
    frac: int = 0


@dataclass(frozen=True)
class HardwareStep:
    """gemmsim::HardwareModel: a matrix instruction's step (gemmsim/hardware/step_parameters.py).

    ``kept`` -1 means that all bits are kept, so that the sum is exact. ``first``: the terms of a tile, of which a run's
    first one is filled up with zeros; 0 for none.
    """

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
    first: int = 0


@dataclass(frozen=True)
class Run:
    """An innermost sum: its method, the casts of sums and products, and where an addend enters."""

    method: Method
    add: Cast
    mul: Cast | None = None
    init: str = "zero"
    register: Register = Register()
    hardware: HardwareStep | None = None


@dataclass(frozen=True)
class Program(Run):
    """An innermost sum, the wrappers around it from the outside in, and the permutation, if any."""

    wrappers: tuple[Wrapped, ...] = ()
    shuffle: Shuffled | None = None
    #: The accumulator whose partial sums are combined by a schedule (schedule.py), without the permutation around it.
    scheduled: Accumulator | None = None


_Running = Callable[[Any], Run]
_RUNS: dict[type[Accumulator], _Running] = {}


def runs(*kinds: type[Accumulator]) -> Callable[[Function], Function]:
    """Decorator: register the function ``accumulator -> Run`` that lowers accumulators of ``kinds``."""
    return enter(_RUNS, kinds)


def run_of(accumulator: Accumulator) -> Run | None:
    """Return the innermost sum that ``accumulator`` becomes, or None if it becomes none."""
    found: _Running | None = registered(_RUNS, accumulator)
    return None if found is None else found(accumulator)
