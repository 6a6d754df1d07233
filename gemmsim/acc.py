"""Constructors of accumulators: the same names and argument order as in spec strings.

A format stands for the sequential accumulator in it wherever an accumulator is asked for, and constructors nest:
``chunked(64, kahan("bf16"), "fp32")``. Strings, formats, casts and accumulators are accepted alike. All raise
``SpecError`` (a ``ValueError``) for arguments that mean nothing, saying what is allowed.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ._keywords import takes_spec
from .arithmetic import (
    Accumulator,
    Binned,
    Chunked,
    Custom,
    Exact,
    FastTwoSum,
    Fixed,
    Fused,
    Hardware,
    Integer,
    Interleaved,
    Kahan,
    Lookup,
    Neumaier,
    Pairwise,
    Palette,
    ProductTable,
    Promote,
    Scaled,
    Sequential,
    Shuffled,
    SpecLike,
    SplitK,
    Swapped,
    Tree,
    TwoSum,
    define,
    min_accumulator_bits,
    overflow_certificate,
    table,
)
from .arithmetic.presets import (
    a2q,
    ada_fp8,
    adder_tree,
    batch_invariant,
    blackwell_mxfp8,
    blackwell_nvfp4,
    cdna3_fp8,
    cublas_fp32,
    deepgemm,
    fp16_accumulate,
    hopper_fp8_2xacc,
    hopper_fp8_fast,
    lba_m7e4,
    mptorch_cuda,
    srmac_fp12,
    wang2018,
)
from .formats import Cast, FloatFormat, Format, Rounding

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Custom",
    "a2q",
    "ada_fp8",
    "adder_tree",
    "batch_invariant",
    "binned",
    "blackwell_mxfp8",
    "blackwell_nvfp4",
    "cdna3_fp8",
    "chunked",
    "count_overflows",
    "cublas_fp32",
    "deepgemm",
    "define",
    "exact",
    "fast_two_sum",
    "fixed",
    "fused",
    "fp16_accumulate",
    "hopper_fp8_2xacc",
    "hopper_fp8_fast",
    "hw",
    "int",
    "interleaved",
    "kahan",
    "lookup",
    "lba_m7e4",
    "min_accumulator_bits",
    "mptorch_cuda",
    "neumaier",
    "overflow_certificate",
    "pairwise",
    "palette",
    "promote",
    "scaled",
    "sequential",
    "shuffled",
    "splitk",
    "srmac_fp12",
    "swapped",
    "table",
    "tree",
    "two_sum",
    "wang2018",
]


def __dir__() -> list[str]:
    return sorted(__all__)


CastLike = str | Format | Cast
AccumulatorLike = str | Format | Cast | Accumulator

# The classes coerce what they are given; their fields are annotated with what comes out of that.
# mypy: disable-error-code="arg-type"


def sequential(
    add: CastLike, mul: CastLike | None = None, *, seed: builtins.int | None = None, init: str = "zero"
) -> Sequential:
    """``s = R_add(s + q_k)`` for k ascending; ``q_k = a_k * b_k`` exactly, or ``R_mul(a_k * b_k)`` if ``mul`` is given.

    ``mul=None`` is the fused multiply-add. ``seed`` fixes the random bits of stochastic roundings; None takes
    a new seed at each call. ``init`` says where the addend C enters: "zero" (there is none), "c_first", "c_last".
    NaN, infinities, -0 and overflow: see ``gemmsim.arithmetic.Sequential``.

    Raises:
        SpecError: for unknown formats or words.
    """
    return Sequential(add, mul, seed=seed, init=init)


def chunked(n: builtins.int, inner: AccumulatorLike, outer: AccumulatorLike | None = None) -> Chunked:
    """Each run of ``n`` terms from +0 in ``inner``; the totals are added in order, rounded by ``outer`` (None: the
    inner register). An accumulator as ``outer`` has the totals as its terms. NaN, infinities, -0 and overflow: see
    ``gemmsim.arithmetic.Chunked``.

    Raises:
        SpecError: for n below 1, or an inner accumulator without a register for totals and no ``outer``.

    Example:
        >>> gs.acc.chunked(64, "bf16", "fp32")
        Accumulator.parse('chunked(64, e8m7, e8m23)')
        >>> gs.acc.chunked(64, "fp16", gs.acc.kahan("fp16"))  # FABsum
        Accumulator.parse('chunked(64, e5m10, kahan(e5m10))')
    """
    return Chunked(n, inner, outer)


def promote(inner: AccumulatorLike, n: builtins.int, outer: AccumulatorLike = "fp32") -> Promote:
    """``chunked(n, inner, outer)`` as tensor-core software names it: every ``n`` terms the partial register is added
    to a wider one and zeroed. NaN, infinities, -0 and overflow: see ``gemmsim.arithmetic.Chunked``.

    Raises:
        SpecError: for n below 1 or a bad inner accumulator.

    Example:
        >>> gs.acc.promote(gs.acc.hopper_fp8_fast(), 128)
        Accumulator.parse('promote(hw(hopper, wgmma, e4m3), 128)')
    """
    return Promote(inner, n, outer)


def scaled(inner: AccumulatorLike, outer: AccumulatorLike = "fp32", n: builtins.int | None = None) -> Scaled:
    """Groups of ``n`` adjacent products of block-format elements in ``inner``, without scales; then
    ``S = R_outer(S + X_a * X_b * s)`` with the scales of each group, rounded once. ``n`` divides both block sizes; None
    is their greatest common divisor. A tensor's own scale multiplies S at the end: ``R_outer(T_a * T_b * S)``. NaN,
    infinities, -0 and overflow: see ``gemmsim.arithmetic.Scaled``.

    Raises:
        SpecError: for n below 1 or a bad inner accumulator; from ``GemmSpec`` without an operand in a block format, or
            for an n that does not divide the block sizes.
    """
    return Scaled(inner, outer, n)


def pairwise(inner: AccumulatorLike, leaf: builtins.int = 1, *, pairs: str = "adjacent") -> Pairwise:
    """Runs of ``leaf`` terms in ``inner``, then a binary tree in its register: of adjacent pairs, an odd last element
    passes up; or of ``pairs="halves"``, x_i + x_(i+n/2). NaN, infinities, -0 and overflow: see
    ``gemmsim.arithmetic.Pairwise``.

    Raises:
        SpecError: for leaf below 1, other words, or an inner accumulator without a register for totals.
    """
    return Pairwise(inner, leaf, pairs=pairs)


def interleaved(
    lanes: builtins.int,
    inner: AccumulatorLike,
    combine: AccumulatorLike = "sequential",
    *,
    width: builtins.int = 1,
) -> Interleaved:
    """Lane l takes the terms l, l + lanes, ..., or runs of ``width`` adjacent terms in turn; lanes are combined
    "sequential", "pairwise" or "halves" in the inner register, as a running sum in a format, or by an accumulator whose
    terms are the lanes' totals. NaN, infinities, -0 and overflow: see ``gemmsim.arithmetic.Interleaved``.

    Raises:
        SpecError: for no lanes, another ``combine``, or an inner accumulator without a register for totals.

    Example:
        >>> gs.acc.interleaved(32, "fp32", "halves", width=4)
        Accumulator.parse('interleaved(32, e8m23, combine=halves, width=4)')
    """
    return Interleaved(lanes, inner, combine, width=width)


def splitk(
    slices: builtins.int | Sequence[builtins.int],
    inner: AccumulatorLike,
    reduce: AccumulatorLike,
    *,
    grain: builtins.int = 1,
    partial: CastLike | None = None,
    share: str = "ceil",
) -> SplitK:
    """Slices of ceil(K / slices) adjacent terms in ``inner``; each total is rounded by ``reduce`` and then added in
    order, rounded by ``reduce``. Slices are multiples of ``grain`` terms, or have the lengths of a list. ``partial``
    rounds each total where it is not ``reduce``; an accumulator as ``reduce`` has the totals as its terms.
    ``share="floor"`` leaves terms out. NaN, infinities, -0 and overflow: see ``gemmsim.arithmetic.SplitK``.

    Raises:
        SpecError: for slices below 1, a list with grain or share, or a bad inner accumulator.

    Example:
        >>> gs.acc.splitk(9, gs.acc.hw("h100", "wgmma", "fp16"), "fp32", grain=64)
        Accumulator.parse('splitk(9, hw(hopper, wgmma, e5m10), e8m23, grain=64)')
    """
    return SplitK(slices, inner, reduce, grain=grain, partial=partial, share=share)


def tree(sums: str, fmt: CastLike | None = None) -> Tree:
    """The totals 0 to n-1 of n lanes or slices, added as the brackets of ``sums`` say; each sum rounded by ``fmt``, or
    in the register of the totals. NaN, infinities, -0 and overflow: see ``gemmsim.arithmetic.Tree``.

    Raises:
        SpecError: for text that is no tree, and leaves that are not 0 to n-1 once each.

    Example:
        >>> gs.acc.interleaved(4, "fp32", gs.acc.tree("(3+(0+2))+1"), width=64)
        Accumulator.parse('interleaved(4, e8m23, combine=tree(((3+(0+2))+1)), width=64)')
    """
    return Tree(sums, fmt)


def lookup(products: ProductTable | str, inner: AccumulatorLike) -> Lookup:
    """Products ``products[x][y]`` of the operands' codes (``table``), added by ``inner``: approximate multipliers.

    Raises:
        SpecError: for an unknown table, an inner accumulator that multiplies or asks for operands of its own, and
            products that are not integers in an ``int(...)`` register.
    """
    return Lookup(products, inner)


def swapped(inner: Custom) -> Swapped:
    """An accumulator of a user's own class whose step is given b's term as ``a``, and a's as ``b``.

    Raises:
        SpecError: for an accumulator that is no ``Custom``.
    """
    return Swapped(inner)


def shuffled(inner: AccumulatorLike, seed: builtins.int) -> Shuffled:
    """``inner`` over the terms in the order ``.permutation(K)``, a LongTensor that only depends on ``seed`` and K.
    NaN, infinities, -0 and overflow follow ``inner``.

    Raises:
        SpecError: for a seed outside [0, 2**64) or a bad inner accumulator.
    """
    return Shuffled(inner, seed)


def kahan(fmt: CastLike, mul: CastLike | None = None) -> Kahan:
    """``y=R(q-C); t=R(S+y); C=R(R(t-S)-y); S=t``; result S. See ``gemmsim.arithmetic.Kahan``.

    Raises:
        SpecError: unless ``fmt`` is a signed float format.
    """
    return Kahan(fmt, mul)


def neumaier(fmt: CastLike, mul: CastLike | None = None) -> Neumaier:
    """``x=R(q); t=R(S+x); C=R(C+R(R(hi-t)+lo)); S=t``; result R(S+C). See ``gemmsim.arithmetic.Neumaier``.

    Raises:
        SpecError: unless ``fmt`` is a signed float format.
    """
    return Neumaier(fmt, mul)


def two_sum(fmt: CastLike, mul: CastLike | None = None) -> TwoSum:
    """Sum2: errors of each sum by the branch-free TwoSum, added up in C; result R(S+C). See
    ``gemmsim.arithmetic.TwoSum``.

    Raises:
        SpecError: unless ``fmt`` is a signed float format.
    """
    return TwoSum(fmt, mul)


def fast_two_sum(fmt: CastLike, mul: CastLike | None = None) -> FastTwoSum:
    """As ``two_sum`` with ``e=R(x-R(t-S))``, the error where |S| >= |x|. See ``gemmsim.arithmetic.FastTwoSum``.

    Raises:
        SpecError: unless ``fmt`` is a signed float format.
    """
    return FastTwoSum(fmt, mul)


def exact(out: CastLike = "fp32") -> Exact:
    """The exact sum of the exact products, rounded once. See ``gemmsim.arithmetic.Exact`` for NaN and infinities.

    Raises:
        SpecError: for an unknown format.

    Example:
        >>> gs.qmatmul(torch.tensor([[1e8, 1.0, -1e8]]), torch.ones(3, 1), gs.acc.exact())
        tensor([[1.]])
    """
    return Exact(out)


def binned(out: CastLike = "fp32", *, carry: builtins.int = 4) -> Binned:
    """One small exact register for each product exponent, added to a sum in ``out`` when it overflows and at the end.
    See ``gemmsim.arithmetic.Binned``.

    Raises:
        SpecError: for an unknown format, or carry outside 1 to 53.
    """
    return Binned(out, carry=carry)


def int(
    P: builtins.int,
    overflow: str = "wrap",
    *,
    when: str = "every",
    signed: bool = True,
    shift: builtins.int = 0,
) -> Integer:
    """Integers in a two's complement register of ``P`` bits that wraps or saturates at every addition or at the end.
    Operands must be integers, in whatever dtype. See ``gemmsim.arithmetic.Integer``.

    Raises:
        SpecError: for P outside 1 to 53 or unknown words.
    """
    return Integer(P, overflow, when=when, signed=signed, shift=shift)


def fixed(
    P: builtins.int, frac: builtins.int, *, rounding: str | Rounding = "rtz", overflow: str = "saturate"
) -> Fixed:
    """Each exact product rounded to a multiple of ``2**-frac``, added in a two's complement register of ``P`` bits.
    See ``gemmsim.arithmetic.Fixed`` for NaN and infinities.

    Raises:
        SpecError: for P outside 1 to 53 or unknown words.
    """
    return Fixed(P, frac, rounding=rounding, overflow=overflow)


def fused(
    n: builtins.int,
    kept: builtins.int | str | None,
    out: CastLike = "e8m23/rtz",
    *,
    a: str | FloatFormat = "fp32",
    b: str | FloatFormat | None = None,
    least: builtins.int | None = None,
    first: builtins.int | None = None,
) -> Fused:
    """The step of a matrix unit: ``n`` products and the register are cut toward zero ``kept`` bits below the largest
    exponent of them all, at least ``least`` ("exact" or None: not at all), summed exactly and rounded to ``out``, from
    +0. Operands are cast to ``a`` and ``b`` (None: ``a``) first. ``first``: so many terms are a tile, and the terms
    that do not fill one come first, filled up with zeros. See ``gemmsim.arithmetic.Fused`` for NaN, infinities,
    -0 and overflow.

    Raises:
        SpecError: for n outside 1 to 64, kept outside 1 to 60, least outside -252 to 127 or with nothing cut, a
            stochastic rounding, or formats that are not signed floats within binary32.
    """
    return Fused(n, kept, out, a=a, b=b, least=least, first=first)


def hw(
    arch: str,
    op: str,
    a: str | FloatFormat,
    b: str | FloatFormat | None = None,
    *,
    out: str | FloatFormat = "fp32",
    first: builtins.int | None = None,
) -> Hardware:
    """A chain of the largest matrix instructions ``op`` (mma, wgmma, tcgen05, mfma, mxf8f6f4, mxf4, mxf4nvf4) of
    ``arch`` for operands in ``a`` and ``b`` (None: ``a``) and a register in ``out``, from +0. Operands are cast to
    ``a`` and ``b``. The mx ops take elements and scales of block-format operands (``GemmSpec``) as they are; other
    operands have scale 1. ``first``: so many terms are a tile, and the terms that do not fill one come first, filled
    up with zeros. See ``gemmsim.arithmetic.Hardware`` for NaN, infinities, -0, overflow and the source.

    Raises:
        SpecError: for an architecture, op or formats outside the tables; it says what there is. For a ``first`` that is
            no multiple of the instruction's k.

    Example:
        >>> gs.acc.hw("h100", "wgmma", "e4m3").instruction.k
        32
    """
    return Hardware(arch, op, a, b, out=out, first=first)


def palette(*accs: AccumulatorLike) -> Palette:
    """One of up to eight accumulators for each output element, chosen by the ``select`` that goes with the call.

    Raises:
        SpecError: for none or more than eight, a palette or ``init`` among them, or members with different seeds.
    """
    return Palette(accs)


@takes_spec("accumulator")
def count_overflows(a: Tensor, b: Tensor, spec: SpecLike, *, seed: builtins.int | None = None) -> Tensor:
    """``gemmsim.count_overflows``: how often the ``int`` or ``fixed`` register of each element of ``a @ b`` left its
    range, as int64. Loads PyTorch and the operators, which nothing else here does. (``accumulator``, the former keyword
    for ``spec``, is deprecated.)

    Raises:
        SpecError: for an accumulator without such a register; further errors as ``gemmsim.qmatmul``.
    """
    # Not at the top: the constructors work without torch.
    from .ops import count_overflows as count

    return count(a, b, spec, seed=seed)
