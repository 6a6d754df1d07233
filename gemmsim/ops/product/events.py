"""What happens at the additions of a product: swamping, lost bits, underflow and overflow, counted for each element."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import GemmSpec, SpecLike
from gemmsim.lowering.events import additions

from ..fx import traceable
from ..seeds import check_seed
from .affine_formats import QAffineFormats
from .int8_fp8_operands import as_numbers, is_narrow
from .matmul import check_operands
from .operators import count_events_op

__all__ = ["Events", "count_events"]


@dataclass(frozen=True, repr=False)
class Events:
    """How often each kind of event happened at the additions ``R(s + q)`` of each element.

    Tensors have the product's shape.

    Attributes:
        out: the product itself, with the bits of ``gemmsim.qmatmul``.
        swamped: int64, additions that left the accumulator unchanged (stagnation), ``R(s + q) == s``, although ``q`` is
            not 0.
        inexact: int64, additions that rounded, ``R(s + q) != s + q``; they include all the following ones.
        underflow: int64, inexact additions of a tiny sum: ``0 < abs(s + q)`` below the smallest normal number of the
            format, before rounding (IEEE 754-2019, 7.5, leaves that choice open). For fixed-point formats the limit is
            their step, for formats without subnormals their smallest number.
        overflow: int64, additions whose sum, rounded as if exponents had no bound, lies beyond the largest or lowest
            finite number (IEEE 754-2019, 7.4): the accumulator becomes infinite or NaN, or saturates.
        additions: the number of additions of one element, the same for all.

    Example:
        >>> events = gs.count_events(torch.ones(1, 4096), torch.ones(4096, 1), ":bf16")
        >>> events.swamped, events.additions
        (tensor([[3840]]), 4096)
    """

    out: Tensor
    swamped: Tensor
    inexact: Tensor
    underflow: Tensor
    overflow: Tensor
    additions: int

    def shares(self) -> dict[str, float]:
        """The fraction of all additions of all elements in each count, by its name; 0 where there are none.

        Example:
            >>> gs.count_events(torch.ones(1, 4096), torch.ones(4096, 1), ":bf16").shares()
            {'swamped': 0.9375, 'inexact': 0.9375, 'underflow': 0.0, 'overflow': 0.0}
        """
        made = self.additions * math.prod(self.out.shape)
        counts = {name: getattr(self, name) for name in ("swamped", "inexact", "underflow", "overflow")}
        return {name: int(count.sum()) / made if made else 0.0 for name, count in counts.items()}

    def __repr__(self) -> str:
        start = f"Events {tuple(self.out.shape)}, {self.additions} additions per element"
        if getattr(self.out, "is_meta", False):
            return f"<{start}>"
        return f"<{start}: {', '.join(f'{share:.3g} {name}' for name, share in self.shares().items())}>"


@traceable
@takes_spec()
def count_events(a: Tensor, b: Tensor, spec: SpecLike, *, c: Tensor | None = None, seed: int | None = None) -> Events:
    """Counts events at the additions of ``gemmsim.qmatmul(a, b, spec, c=c, seed=seed)``, and computes it, in one pass.

    An addition is one rounding ``R(s + q)`` of an accumulator ``s`` and an addend. The addend is a term, or a partial
    sum that ``chunked``, ``promote``, ``splitk`` and ``interleaved`` add to their running sum, or the right partial sum
    of a pair. In compensated sums the additions are the term to S, ``R(S + y)`` or ``R(S + x)``, and C to S at the end,
    but no step of the correction. Roundings that add nothing (of operands, of products by ``mul``, of a slice's partial
    sum to its workspace, of the output) are not additions.

    Args:
        a, b, c, seed: as for ``gemmsim.qmatmul``; the result has its dtype.
        spec: a ``GemmSpec``, an accumulator, a cast or format, or the string of one. Events are counted in accumulators
            in a format and compensated sums, alone or inside ``chunked``, ``promote``, ``pairwise``, ``interleaved``,
            ``splitk`` and ``shuffled``. Operands in block formats are the values of their codes times scales.

    An addition with an infinite or NaN addend or accumulator is not an event of any kind: an accumulator that
    overflowed to infinity counts once and then no more, while one that saturates counts each time. Zeros of either sign
    are one number: a change from +0 to -0 is not a change. K = 0 gives counts of 0. There is no gradient.

    Raises:
        UnsupportedSpec: for additions that no kernel watches: of exact, integer and binned sums, which do not round, of
            matrix instructions, ``scaled(...)``, palettes, tables and ``Custom`` accumulators, and with
            ``arithmetic="fp32"``.
        SpecError: for a spec that means nothing, and for ``c`` without a place in it.
        DTypeError, DeviceError, ShapeError, SeedError: as ``gemmsim.qmatmul``.

    Example:
        >>> gs.count_events(torch.ones(1, 4096), torch.ones(4096, 1), ":bf16")
        <Events (1, 1), 4096 additions per element: 0.938 swamped, 0.938 inexact, 0 underflow, 0 overflow>
    """
    meaning = GemmSpec.of(spec)
    seed = check_seed("count_events", seed)
    if is_narrow(a, b):
        a, b, _ = as_numbers("count_events", a, b, QAffineFormats.of(meaning), None)
    check_operands("count_events", a, b, c, None)
    left = a.unsqueeze(0) if a.dim() == 1 else a
    right = b.unsqueeze(1) if b.dim() == 1 else b
    addend = c
    if addend is not None and addend.dim() and b.dim() == 1:
        addend = addend.unsqueeze(-1)
    if addend is not None and addend.dim() and a.dim() == 1:
        addend = addend.unsqueeze(-2)
    out, counts = count_events_op(left.detach(), right.detach(), meaning.key, seed, addend)
    out, swamped, inexact, underflow, overflow = (
        _squeezed(t, a.dim() == 1, b.dim() == 1) for t in (out, *counts.unbind(0))
    )
    made = additions(meaning, int(left.shape[-1]), c is not None)
    return Events(out, swamped, inexact, underflow, overflow, made)


def _squeezed(t: Tensor, row: bool, column: bool) -> Tensor:
    """``t`` without the dimensions that operands that are vectors lack."""
    t = t.squeeze(-1) if column else t
    return t.squeeze(-1 if column else -2) if row else t
