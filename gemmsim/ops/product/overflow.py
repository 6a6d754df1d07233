"""Overflow events of two's complement registers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from torch import Tensor

from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import Accumulator, GemmSpec, SpecError, SpecLike
from gemmsim.arithmetic.wrappers import Composite
from gemmsim.formats import Cast, FixedFormat

from ..errors import message
from ..fx import traceable
from ..seeds import check_seed
from .affine_formats import QAffineFormats
from .format_warnings import FormatsWarning, caller
from .int8_fp8_operands import as_numbers, is_narrow
from .matmul import check_operands
from .operators import count_overflows_op

__all__ = ["count_overflows"]


@traceable
@takes_spec("accumulator")
def count_overflows(a: Tensor, b: Tensor, spec: SpecLike, *, seed: int | None = None) -> Tensor:
    """How often the ``int`` or ``fixed`` accumulator of each element of ``a @ b`` overflowed.

    The accumulator wraps or saturates at each overflow. The result is int64, in the shape of ``torch.matmul``.
    Accumulators inside other ones count, summed over all their chunks. Sums of these chunks that are rounded to a
    fixed-point format, as those of ``adder_tree`` are, do not count, and a ``FormatsWarning`` says so. With
    ``when="end"`` an accumulator counts at most once per chunk.

    Args:
        a, b: operands as for ``gemmsim.qmatmul``.
        spec: such an accumulator, a ``GemmSpec`` with one, or the string of either. The spec's operand casts are
            applied first; its output cast has no influence. (``accumulator``, the former keyword, is deprecated.)
        seed: seed of the random bits of stochastic roundings, as for ``gemmsim.qmatmul``.

    An infinite product is an overflow of a ``fixed`` accumulator that saturates. An accumulator that is NaN, as one
    that wraps becomes after an infinite product, does not overflow any more. Zeros of either sign change nothing. K = 0
    gives 0. There is no gradient.

    Raises:
        SpecError: for an accumulator that is not ``int`` or ``fixed``.
        UnsupportedSpec: for one that the backend of the operands' device does not compute.
        ValueError: for operands of ``int`` that are not integers after their cast; on a GPU their elements are -1.
        DTypeError, DeviceError, ShapeError, SeedError: as ``gemmsim.qmatmul``.

    Source: docs/reference/accumulators.md#exact-registers.

    Example:
        >>> gs.count_overflows(torch.full((1, 8), 100.0), torch.full((8, 1), 50.0), ":int(16)")
        tensor([[1]])
    """
    meaning = GemmSpec.of(spec)
    if not meaning.accumulator.counts_overflows:
        raise SpecError(
            message(
                f"count_overflows of {meaning.accumulator}",
                "int(...), fixed(...), and accumulators made of them",
                "Use fixed(bits, frac, rounding=...) for an accumulator that counts overflows.",
            )
        )
    _warn_of_uncounted(meaning.accumulator)
    seed = check_seed("count_overflows", seed)
    if is_narrow(a, b):
        a, b, _ = as_numbers("count_overflows", a, b, QAffineFormats.of(meaning), None)
    check_operands("count_overflows", a, b, None, None)
    left = a.unsqueeze(0) if a.dim() == 1 else a
    right = b.unsqueeze(1) if b.dim() == 1 else b
    counts: Tensor = count_overflows_op(left, right, meaning.key, seed)
    if b.dim() == 1:
        counts = counts.squeeze(-1)
    return counts.squeeze(-2 if b.dim() > 1 else -1) if a.dim() == 1 else counts


def _warn_of_uncounted(accumulator: Accumulator) -> None:
    uncounted = sorted({str(cast) for cast in _fixed_casts(accumulator)})
    if uncounted:
        warnings.warn(
            message(
                f"count_overflows of {accumulator}: partial sums are added in {', '.join(uncounted)}, and overflows of "
                "these additions are not counted",
                "int(...) and fixed(...) count",
                "Compare the results with those of wider partial sums to find the outputs that overflow.",
            ),
            FormatsWarning,
            stacklevel=caller(),
        )


def _fixed_casts(accumulator: Accumulator) -> Iterator[Cast]:
    """The fixed-point formats in which ``accumulator`` adds partial sums."""
    while isinstance(accumulator, Composite):
        yield from (cast for cast in accumulator.own_casts() if isinstance(cast.format, FixedFormat))
        accumulator = accumulator.inner
