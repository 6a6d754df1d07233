"""Lowers accumulators that add terms themselves, rather than partial sums of other accumulators."""

from __future__ import annotations

from gemmsim.arithmetic import Sequential
from gemmsim.arithmetic.compensated import Compensated, FastTwoSum, Kahan, Neumaier, TwoSum
from gemmsim.arithmetic.exact_sum import Binned, Exact
from gemmsim.arithmetic.integer import Fixed, Integer

from .abi_constants import Method
from .program import Register, Run, runs

__all__ = ["method_of_compensated"]

_COMPENSATED: dict[type[Compensated], Method] = {
    Kahan: Method.KAHAN,
    Neumaier: Method.NEUMAIER,
    TwoSum: Method.TWO_SUM,
    FastTwoSum: Method.FAST_TWO_SUM,
}


def method_of_compensated(one: Compensated) -> Method:
    """Return the number of a compensated sum's method."""
    return _COMPENSATED[type(one)]


@runs(Sequential)
def _sequential(one: Sequential) -> Run:
    return Run(Method.REGISTER, one.add, one.mul, one.init)


@runs(*_COMPENSATED)
def _compensated(one: Compensated) -> Run:
    return Run(_COMPENSATED[type(one)], one.fmt, one.mul)


@runs(Exact)
def _exact(one: Exact) -> Run:
    return Run(Method.LONG, one.out)


@runs(Binned)
def _binned(one: Binned) -> Run:
    return Run(Method.BINNED, one.out, register=Register(one.carry))


@runs(Integer)
def _integer(one: Integer) -> Run:
    saturate, at_end = int(one.overflow == "saturate"), int(one.when == "end")
    return Run(Method.INTEGER, one.add_cast, register=Register(one.P, saturate, at_end, int(one.signed), one.shift))


@runs(Fixed)
def _fixed(one: Fixed) -> Run:
    register = Register(one.P, int(one.overflow == "saturate"), frac=one.frac)
    return Run(Method.FIXED, one.add_cast, one.product_cast, register=register)
