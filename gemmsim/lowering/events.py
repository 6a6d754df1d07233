"""Decides for which specs kernels can count events, and how many additions an order makes."""

from __future__ import annotations

from collections.abc import Sequence

from gemmsim.arithmetic import GemmSpec, Palette
from gemmsim.formats import Cast

from .abi_constants import HardwareKind, Method
from .accumulators import programs
from .orders import Order, Wrapped
from .program import Program
from .refusal import Refusal
from .schedule import schedule
from .supported import refuses as refuses_product

__all__ = ["SUPPORTED", "additions", "least_normals", "refuses"]

#: The supported accumulators, for error messages.
SUPPORTED = (
    "accumulators in a format, kahan, neumaier, two_sum and fast_two_sum, alone or inside chunked, promote, pairwise, "
    'interleaved, splitk and shuffled, with arithmetic "exact"'
)


def refuses(spec: GemmSpec, backend: str) -> Refusal | None:
    """Return why kernels cannot count the events of ``spec``'s additions, or ``None`` if they can.

    ``backend`` is the backend's name in the reason.
    """
    if spec.needs_steps:
        return Refusal("its steps or its values are looked up or written in Python, outside the kernels")
    if spec.has_blocks:
        return Refusal(
            "sums of blocks are scaled before they are added, which no kernel counts; use a plain accumulator "
            "with the same operands"
        )
    if spec.arithmetic != "exact":
        return Refusal(f'arithmetic="{spec.arithmetic}" rounds each addition twice')
    if spec.out is not None and spec.out.via is not None:
        return Refusal("its output is rounded twice in a row, which is not an addition; leave the output format out")
    if isinstance(spec.accumulator, Palette):
        return Refusal("a palette has several accumulators; count each of its members")
    refusal = refuses_product(spec, backend)
    if refusal is not None:
        return refusal
    found = programs(spec.accumulator, spec.group)
    return found if isinstance(found, Refusal) else _refuses_run(found[0])


def _refuses_run(one: Program) -> Refusal | None:
    if one.hardware is not None and one.hardware.kind != HardwareKind.NONE:
        return Refusal(
            "a step of a matrix instruction adds several products at once, which is not an addition of two numbers"
        )
    if one.method > Method.FAST_TWO_SUM:
        return Refusal(
            "exact, binned, int and fixed sums do not round when they add; count_overflows counts overflows of int "
            "and fixed"
        )
    return None


def least_normals(one: Program) -> list[float]:
    """Return the smallest normal number of the register's format, then of each wrapper's (1 for a permutation)."""
    casts: Sequence[Cast | None] = [one.add, *(wrapper.cast for wrapper in one.wrappers)]
    return [1.0 if cast is None else float(cast.format.smallest_normal) for cast in casts]


def additions(spec: GemmSpec, k: int, has_addend: bool = False) -> int:
    """Return how many additions make one element of a product of ``k`` terms.

    ``has_addend``: an addend C is given. The count includes the addition of each term to its register and of each pair
    of partial sums. It also includes the final addition of S and C in a compensated sum. A first term is added to +0,
    and so is a first partial sum where partial sums are added in sequence.

    Raises:
        KeyError, AssertionError: for a spec that ``refuses`` refuses.
    """
    found = programs(spec.accumulator, spec.group)
    assert not isinstance(found, Refusal)
    (one,) = found
    if one.scheduled is not None:
        made = schedule(one.scheduled, k)
        inner = [w for w in one.wrappers if w.order not in (Order.SHUFFLED, Order.SCHEDULED)]
        return sum(_additions(one.method, inner, size) for size in made.runs) + made.additions
    return _additions(one.method, one.wrappers, k) + int(has_addend and one.init == "c_last")


def _additions(method: Method, wrappers: Sequence[Wrapped], k: int) -> int:
    if k == 0:
        return 0
    if not wrappers:
        return k + int(method > Method.KAHAN)
    outer, inner = wrappers[0], wrappers[1:]
    if outer.order == Order.SHUFFLED:
        return _additions(method, inner, k)
    if outer.order == Order.INTERLEAVED:
        count = min(outer.n, k)
        longer = k % count
        lanes = ((longer, k // count + 1), (count - longer, k // count))
        inside = sum(many * _additions(method, inner, size) for many, size in lanes)
    else:
        size = -(-k // outer.n) if outer.order == Order.SPLITK else outer.n
        whole, rest = divmod(k, size)
        count = whole + bool(rest)
        inside = whole * _additions(method, inner, size) + _additions(method, inner, rest)
    in_pairs = outer.order == Order.PAIRWISE or outer.pairs
    return inside + count - int(in_pairs)
