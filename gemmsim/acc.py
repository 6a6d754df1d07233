"""Constructors of accumulators: the same names and argument order as in spec strings.

A format is accepted in place of an accumulator and means the sequential accumulator in that format. Constructors nest:
``chunked(64, kahan("bf16"), "fp32")``. Strings, formats, casts and accumulators are accepted alike. All constructors
raise ``SpecError`` (a ``ValueError``) for arguments that mean nothing; the message says what is allowed.
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

    ``mul=None`` is the fused multiply-add. ``seed`` fixes the random bits of stochastic roundings; None takes a new
    seed at each call. ``init`` says where the addend C enters: "zero" (there is none), "c_first", "c_last". NaN,
    infinities, -0 and overflow: see ``gemmsim.arithmetic.Sequential``.

    Raises:
        SpecError: for unknown formats or words.

    Example:
        >>> gs.acc.sequential("bf16"), gs.acc.sequential("bf16/rtz", mul="bf16")
        (Accumulator.parse('e8m7'), Accumulator.parse('mul=e8m7, add=e8m7/rtz'))
        >>> gs.qmatmul(torch.ones(1, 4096), torch.ones(4096, 1), gs.acc.sequential("bf16"))  # stagnates at 256
        tensor([[256.]])
    """
    return Sequential(add, mul, seed=seed, init=init)


def chunked(n: builtins.int, inner: AccumulatorLike, outer: AccumulatorLike | None = None) -> Chunked:
    """Each chunk of ``n`` terms is added in ``inner`` from +0; ``outer`` adds the partial sums in order.

    None as ``outer`` is the format of the inner accumulator. An accumulator as ``outer`` has the partial sums as its
    terms. NaN, infinities, -0 and overflow: see ``gemmsim.arithmetic.Chunked``.

    Raises:
        SpecError: for n below 1, or an inner accumulator that cannot combine partial sums and no ``outer``.

    Example:
        >>> gs.acc.chunked(64, "bf16", "fp32")
        Accumulator.parse('chunked(64, e8m7, e8m23)')
        >>> gs.acc.chunked(64, "fp16", gs.acc.kahan("fp16"))  # FABsum
        Accumulator.parse('chunked(64, e5m10, kahan(e5m10))')
    """
    return Chunked(n, inner, outer)


def promote(inner: AccumulatorLike, n: builtins.int, outer: AccumulatorLike = "fp32") -> Promote:
    """``chunked(n, inner, outer)`` under its name in tensor-core software.

    Every ``n`` terms the partial sum is added to the wider accumulator and restarts from zero. NaN, infinities, -0 and
    overflow: see ``gemmsim.arithmetic.Chunked``.

    Raises:
        SpecError: for n below 1 or a bad inner accumulator.

    Example:
        >>> gs.acc.promote(gs.acc.hopper_fp8_fast(), 128)
        Accumulator.parse('promote(hw(hopper, wgmma, e4m3), 128)')
    """
    return Promote(inner, n, outer)


def scaled(inner: AccumulatorLike, outer: AccumulatorLike = "fp32", n: builtins.int | None = None) -> Scaled:
    """Groups of ``n`` adjacent products of block-format elements in ``inner``; scales enter each sum.

    The products are those of elements without their scales. Each group sum s gives ``S = R_outer(S + X_a * X_b * s)``
    with the scales of its blocks, rounded once. ``n`` divides both block sizes; None is their greatest common divisor.
    A tensor's own scale multiplies S at the end: ``R_outer(T_a * T_b * S)``. NaN, infinities, -0 and overflow: see
    ``gemmsim.arithmetic.Scaled``.

    Raises:
        SpecError: for n below 1 or a bad inner accumulator; from ``GemmSpec`` without an operand in a block format, or
            for an n that does not divide the block sizes.

    Example:
        >>> spec = gs.GemmSpec(a="mxfp8_e4m3", b="mxfp8_e4m3", accumulator=gs.acc.scaled("fp32", "fp32"))
        >>> gs.qmatmul(torch.full((1, 64), 0.3), torch.ones(64, 1), spec)  # 64 * 0.3125
        tensor([[20.]])
    """
    return Scaled(inner, outer, n)


def pairwise(inner: AccumulatorLike, leaf: builtins.int = 1, *, pairs: str = "adjacent") -> Pairwise:
    """Groups of ``leaf`` terms in ``inner``, then a binary tree in its format.

    ``pairs="adjacent"`` adds adjacent pairs, and an odd last element passes to the next level; ``pairs="halves"`` adds
    x_i and x_(i+n/2). NaN, infinities, -0 and overflow: see ``gemmsim.arithmetic.Pairwise``.

    Raises:
        SpecError: for leaf below 1, other words, or an inner accumulator that cannot combine partial sums.

    Example:
        >>> gs.qmatmul(torch.ones(1, 4096), torch.ones(4096, 1), gs.acc.pairwise("bf16"))  # "bf16" gives 256
        tensor([[4096.]])
    """
    return Pairwise(inner, leaf, pairs=pairs)


def interleaved(
    lanes: builtins.int,
    inner: AccumulatorLike,
    combine: AccumulatorLike = "sequential",
    *,
    width: builtins.int = 1,
) -> Interleaved:
    """Lane l adds the terms l, l + lanes, ..., or ``width`` adjacent ones in turn; then lanes are combined.

    They are combined "sequential", "pairwise" or "halves" in the format of ``inner``, as a running sum in a format, or
    by an accumulator whose terms are the partial sums of the lanes. NaN, infinities, -0 and overflow: see
    ``gemmsim.arithmetic.Interleaved``.

    Raises:
        SpecError: for no lanes, another ``combine``, or an inner accumulator that cannot combine partial sums.

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
    """Slices of ceil(K / slices) adjacent terms in ``inner``; ``reduce`` rounds and adds the partial sums.

    The sums are rounded by ``reduce`` too. Slices are multiples of ``grain`` terms, or have the lengths of a list.
    ``partial`` rounds each partial sum where it is not ``reduce``; an accumulator as ``reduce`` has the partial sums as
    its terms. ``share="floor"`` leaves terms out. NaN, infinities, -0 and overflow: see ``gemmsim.arithmetic.SplitK``.

    Raises:
        SpecError: for slices below 1, a list with grain or share, or a bad inner accumulator.

    Example:
        >>> gs.acc.splitk(9, gs.acc.hw("h100", "wgmma", "fp16"), "fp32", grain=64)
        Accumulator.parse('splitk(9, hw(hopper, wgmma, e5m10), e8m23, grain=64)')
    """
    return SplitK(slices, inner, reduce, grain=grain, partial=partial, share=share)


def tree(sums: str, fmt: CastLike | None = None) -> Tree:
    """The partial sums 0 to n-1 of n lanes or slices, added as the brackets of ``sums`` say.

    Each sum is rounded by ``fmt``, or in the format of the partial sums. NaN, infinities, -0 and overflow: see
    ``gemmsim.arithmetic.Tree``.

    Raises:
        SpecError: for text that is not a tree, and leaves that are not 0 to n-1 once each.

    Example:
        >>> gs.acc.interleaved(4, "fp32", gs.acc.tree("(3+(0+2))+1"), width=64)
        Accumulator.parse('interleaved(4, e8m23, combine=tree(((3+(0+2))+1)), width=64)')
    """
    return Tree(sums, fmt)


def lookup(products: ProductTable | str, inner: AccumulatorLike) -> Lookup:
    """Products ``products[x][y]`` of the operands' codes (``table``), added by ``inner``: approximate multipliers.

    Raises:
        SpecError: for an unknown table, an inner accumulator that multiplies or requires operands of its own, and
            products that are not integers in an ``int(...)`` accumulator.

    Example:
        >>> rows = [[x * y & ~1 for y in range(4)] for x in range(4)]  # a multiplier without the lowest bit
        >>> products = gs.acc.table(rows, "uint2", name="even_products")
        >>> gs.qmatmul(torch.tensor([[3.0, 3.0]]), torch.tensor([[3.0], [1.0]]), gs.acc.lookup(products, "int(8)"))
        tensor([[10.]])
    """
    return Lookup(products, inner)


def swapped(inner: Custom) -> Swapped:
    """An accumulator of a user's own class whose step gets b's term as ``a``, and a's as ``b``.

    Raises:
        SpecError: for an accumulator that is not a ``Custom`` one.

    Example:
        >>> @gs.acc.define("one_sided")
        ... class OneSided(gs.acc.Custom):
        ...     def step(self, s, a, b, k):
        ...         return s + a.abs() * b
        >>> a, b = torch.tensor([[-1.0, -2.0]]), torch.ones(2, 1)
        >>> gs.qmatmul(a, b, OneSided()), gs.qmatmul(a, b, gs.acc.swapped(OneSided()))
        (tensor([[3.]]), tensor([[-3.]]))
    """
    return Swapped(inner)


def shuffled(inner: AccumulatorLike, seed: builtins.int) -> Shuffled:
    """``inner`` over the terms in the order ``.permutation(K)``, a LongTensor that only depends on ``seed`` and K.

    NaN, infinities, -0 and overflow follow ``inner``.

    Raises:
        SpecError: for a seed outside [0, 2**64) or a bad inner accumulator.

    Example:
        >>> a, b = torch.tensor([[2.0**24, 1.0, -(2.0**24), 1.0]]), torch.ones(4, 1)
        >>> [gs.qmatmul(a, b, gs.acc.shuffled("fp32", seed)).item() for seed in range(6)]
        [1.0, 2.0, 0.0, 2.0, 1.0, 2.0]
    """
    return Shuffled(inner, seed)


def kahan(fmt: CastLike, mul: CastLike | None = None) -> Kahan:
    """Kahan's compensated sum: ``y=R(q-C); t=R(S+y); C=R(R(t-S)-y); S=t``; the result is S.

    NaN, infinities, -0 and overflow: see ``gemmsim.arithmetic.Kahan``.

    Raises:
        SpecError: unless ``fmt`` is a signed float format.

    Example:
        >>> gs.qmatmul(torch.ones(1, 4096), torch.ones(4096, 1), gs.acc.kahan("bf16"))  # "bf16" gives 256
        tensor([[4096.]])
    """
    return Kahan(fmt, mul)


def neumaier(fmt: CastLike, mul: CastLike | None = None) -> Neumaier:
    """Neumaier's compensated sum: ``x=R(q); t=R(S+x); C=R(C+R(R(hi-t)+lo)); S=t``; the result is R(S+C).

    NaN, infinities, -0 and overflow: see ``gemmsim.arithmetic.Neumaier``.

    Raises:
        SpecError: unless ``fmt`` is a signed float format.

    Example:
        >>> a = torch.tensor([[1.0, 512.0, 1.0, -512.0]])  # kahan(bf16) gives 0
        >>> gs.qmatmul(a, torch.ones(4, 1), gs.acc.neumaier("bf16"))
        tensor([[2.]])
    """
    return Neumaier(fmt, mul)


def two_sum(fmt: CastLike, mul: CastLike | None = None) -> TwoSum:
    """Sum2: the errors of all sums, by the branch-free TwoSum, are added up in C; the result is R(S+C).

    NaN, infinities, -0 and overflow: see ``gemmsim.arithmetic.TwoSum``.

    Raises:
        SpecError: unless ``fmt`` is a signed float format.

    Example:
        >>> a = torch.tensor([[1.0, 512.0, 1.0, -512.0]])  # kahan(bf16) gives 0
        >>> gs.qmatmul(a, torch.ones(4, 1), gs.acc.two_sum("bf16"))
        tensor([[2.]])
    """
    return TwoSum(fmt, mul)


def fast_two_sum(fmt: CastLike, mul: CastLike | None = None) -> FastTwoSum:
    """As ``two_sum``, with ``e=R(x-R(t-S))``, which is the error where |S| >= |x|.

    NaN, infinities, -0 and overflow: see ``gemmsim.arithmetic.FastTwoSum``.

    Raises:
        SpecError: unless ``fmt`` is a signed float format.

    Example:
        >>> a = torch.tensor([[1.0, 512.0, 1.0, -512.0]])  # two_sum(bf16) gives 2
        >>> gs.qmatmul(a, torch.ones(4, 1), gs.acc.fast_two_sum("bf16"))
        tensor([[1.]])
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
    """One small exact accumulator per product exponent, added to a sum in ``out`` when it overflows and at the end.

    NaN, infinities, -0 and overflow: see ``gemmsim.arithmetic.Binned``.

    Raises:
        SpecError: for an unknown format, or carry outside 1 to 53.

    Example:
        >>> gs.qmatmul(torch.ones(1, 4096), torch.ones(4096, 1), gs.acc.binned("bf16"))  # "bf16" gives 256
        tensor([[4096.]])
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
    """Integers in a two's complement accumulator of ``P`` bits that wraps or saturates at every addition or at the end.

    Operands must be integers, in any dtype. See ``gemmsim.arithmetic.Integer``.

    Raises:
        SpecError: for P outside 1 to 53 or unknown words.

    Example:
        >>> a, b = torch.full((1, 3), 100.0), torch.ones(3, 1)
        >>> gs.qmatmul(a, b, gs.acc.int(8)), gs.qmatmul(a, b, gs.acc.int(8, "saturate"))
        (tensor([[44.]]), tensor([[127.]]))
    """
    return Integer(P, overflow, when=when, signed=signed, shift=shift)


def fixed(
    P: builtins.int, frac: builtins.int, *, rounding: str | Rounding = "rtz", overflow: str = "saturate"
) -> Fixed:
    """Exact products, rounded to multiples of ``2**-frac``, are added in a two's complement accumulator.

    The accumulator has ``P`` bits. NaN and infinities: see ``gemmsim.arithmetic.Fixed``.

    Raises:
        SpecError: for P outside 1 to 53 or unknown words.

    Example:
        >>> acc = gs.acc.fixed(8, frac=4)  # multiples of 1/16 up to 7.9375
        >>> gs.qmatmul(torch.tensor([[0.3, 0.3], [0.3, 100.0]]), torch.ones(2, 1), acc)
        tensor([[0.5000],
                [7.9375]])
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
    """The step of a matrix unit: ``n`` products and the accumulator are truncated, then summed exactly.

    They are truncated toward zero, ``kept`` bits below the largest exponent of them all, which is at least ``least``
    ("exact" or None: nothing is truncated). The sum is rounded to ``out``. The accumulator starts at +0. Operands are
    cast to ``a`` and ``b`` (None: ``a``) first. With ``first``, the K mod ``first`` terms that come first are padded
    with zeros to ``first`` terms. See ``gemmsim.arithmetic.Fused`` for NaN, infinities, -0 and overflow.

    Raises:
        SpecError: for n outside 1 to 64, kept outside 1 to 60, least outside -252 to 127 or without truncation, a
            stochastic rounding, or formats that are not signed floats within binary32.

    Example:
        >>> a = torch.tensor([[256.0, 0.01, 0.01]])
        >>> gs.qmatmul(a, torch.ones(3, 1), gs.acc.fused(4, 13, a="fp16"))  # keeps multiples of 2**-5
        tensor([[256.]])
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
    """A chain of the largest matrix instructions ``op`` of an architecture or chip ``arch``, from +0.

    ``op`` is mma, wgmma, tcgen05, mfma, mxf8f6f4, mxf4 or mxf4nvf4. Operands are cast to ``a`` and ``b`` (None: ``a``);
    the accumulator is in ``out``. The mx ops take elements and scales of block-format operands (``GemmSpec``) as they
    are; other operands have scale 1. With ``first``, the K mod ``first`` terms that come first are padded with zeros to
    ``first`` terms. See ``gemmsim.arithmetic.Hardware`` for NaN, infinities, -0, overflow and the source.

    Raises:
        SpecError: for an architecture, op or formats outside the tables; the message lists the allowed ones. For a
            ``first`` that is not a multiple of the instruction's k.

    Example:
        >>> gs.acc.hw("h100", "wgmma", "e4m3").instruction.k
        32
    """
    return Hardware(arch, op, a, b, out=out, first=first)


def palette(*accs: AccumulatorLike) -> Palette:
    """One of up to eight accumulators for each output element; the argument ``select`` of the product chooses.

    Raises:
        SpecError: for none or more than eight, a palette or ``init`` among them, or members with different seeds.

    Example:
        >>> select = torch.tensor([[0], [1]], dtype=torch.uint8)
        >>> gs.qmatmul(torch.ones(2, 4096), torch.ones(4096, 1), gs.acc.palette("bf16", "fp32"), select=select)
        tensor([[ 256.],
                [4096.]])
    """
    return Palette(accs)


@takes_spec("accumulator")
def count_overflows(a: Tensor, b: Tensor, spec: SpecLike, *, seed: builtins.int | None = None) -> Tensor:
    """``gemmsim.count_overflows``: how often the ``int`` or ``fixed`` accumulator of each element overflowed.

    The counts are int64. This function loads PyTorch and the operators, as nothing else in this module does.
    (``accumulator``, the former keyword for ``spec``, is deprecated.)

    Raises:
        SpecError: for an accumulator that is not ``int`` or ``fixed``; further errors as ``gemmsim.qmatmul``.

    Example:
        >>> gs.acc.count_overflows(torch.full((1, 3), 100.0), torch.ones(3, 1), gs.acc.int(8))
        tensor([[1]])
    """
    # Not at the top: the constructors work without torch.
    from .ops import count_overflows as count

    return count(a, b, spec, seed=seed)
