"""Published schemes."""

from __future__ import annotations

from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import Hardware, SpecLike
from gemmsim.arithmetic.errors import spec_error
from gemmsim.formats import parse_cast

from .scheme import Sliced
from .slices import FloatSlices, IntegerSlices

__all__ = ["bf16", "ozaki_int8", "tf32x3"]

#: Slices -> numbers of products there are, the default first: terms with i + j up to some sum.
_PRODUCTS = {1: (1,), 2: (3, 4), 3: (9, 6)}


@takes_spec("register")
def bf16(n: int, products: int | None = None, *, spec: SpecLike = ":exact(fp32)", joined: bool = False) -> Sliced:
    """float32 by ``n`` bf16 slices of each operand, 1 to 3: "BF16x9" and its shorter forms.

    Args:
        n: slices. Three hold a float32 (of magnitude 2^-110 or more) exactly.
        products: kept cross terms, those with the smallest i + j: 1; 3 or 4; 6 or 9. Default 1, 3 and 9.
        spec: of each term, for instance ":hw(hopper, wgmma, bf16)". The default is exact, so that only the slices left
            out and the roundings of the final sums count. (``register``, the former keyword, is deprecated.)
        joined: whether all terms are one sum in that accumulator; otherwise each term is a product, and these are added
            in fp32. Smallest terms first.

    NaN, infinities, overflow and zeros: see ``Sliced``.

    Raises:
        SpecError: for other numbers, or a spec that means nothing.

    Source: Henry, Tang, Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision
    computations", ARITH 2019, arXiv:1904.06376 (x3, x6, x9; which terms).

    Example:
        >>> a, b = torch.tensor([[1.2345678]]), torch.ones(1, 1)
        >>> [gs.sliced.bf16(n)(a, b).item() for n in (1, 2, 3)]
        [1.234375, 1.234567642211914, 1.2345677614212036]
    """
    if type(n) is not int or n not in _PRODUCTS:
        raise spec_error(f"sliced.bf16({n!r})", "1, 2 or 3 slices", "Three hold a float32.")
    kept = _PRODUCTS[n][0] if products is None else products
    if kept not in _PRODUCTS[n]:
        asked = f"sliced.bf16({n}, products={products!r})"
        raise spec_error(asked, " or ".join(map(str, _PRODUCTS[n])), "These are whole diagonals i + j.")
    terms = _least_first(n, {3: 3, 6: 4}.get(kept, 2 * n))
    return Sliced(FloatSlices(parse_cast("bf16/sat"), n), terms, spec, joined)  # type: ignore[arg-type]


def tf32x3(accumulate: str = "outside", *, arch: str = "ampere") -> Sliced:
    """float32 by three TF32 products: ``a_1 b_1 + 2^-11 (a_2 b_1 + a_1 b_2)``, with ``x_2 = tf32(2^11 (x - tf32(x)))``.

    Slices are rounded to nearest, ties away. The three products are summed in fp32, the two small ones first.

    Args:
        accumulate: "inside": each product in the tensor core's own accumulator, which truncates; "outside": each
            instruction from +0, its result added in fp32, to nearest even.
        arch: the chip whose largest tf32 instruction ``mma`` is modelled.

    NaN, infinities, overflow and zeros: see ``Sliced``.

    Raises:
        SpecError: for another word, or a chip without the instruction.

    Source: Ootomo, Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
    theoretical peak performance", IJHPCA 36 (2022), arXiv:2203.03341. There both small products go into one accumulator
    inside the tensor core, and only the large one is summed outside.

    Example:
        >>> a, b = torch.tensor([[1.2345678]]), torch.ones(1, 1)
        >>> gs.qmatmul(a, b, "tf32 : fp32").item(), gs.sliced.tf32x3()(a, b).item()
        (1.234375, 1.2345677614212036)
    """
    hardware = Hardware(arch, "mma", "tf32")
    if accumulate not in ("inside", "outside"):
        asked = f"sliced.tf32x3({accumulate!r})"
        raise spec_error(asked, "'inside', 'outside'", "Outside recovers the accuracy.")
    k = hardware.instruction.k
    spec = f":{hardware}" if accumulate == "inside" else f":chunked({k}, {hardware}, fp32)"
    return Sliced(FloatSlices(parse_cast("tf32/rna/sat"), 2, 11), _least_first(2, 3), spec)  # type: ignore[arg-type]


def ozaki_int8(slices: int, out: str = "fp64") -> Sliced:
    """float64 (or float32) by int8 products that are exact in int32: the Ozaki scheme.

    Args:
        slices: of 7 bits and sign, 1 to 64. The terms with i + j <= slices + 1 are kept, ``slices (slices + 1) / 2``
            products: 8 slices are 36.
        out: "fp64" or "fp32", the format of the result; the sum is in fp64 in either case.

    Slices are relative to the largest exponent of a's row and b's column, so that operands of wide range need more
    slices. The products are added in fp64, smallest first. K is at most 133144; beyond that int32 could overflow. NaN,
    infinities, overflow and zeros: see ``Sliced``.

    Raises:
        SpecError: for other numbers and formats.

    Source: Ootomo, Ozaki, Yokota, "DGEMM on integer matrix multiplication unit", IJHPCA 38 (2024), arXiv:2306.11975;
    Ozaki, Ogita, Oishi, Rump, "Error-free transformations of matrix multiplication by using fast routines of matrix
    multiplication and its applications", Numer. Algorithms 59 (2012). The order of the sum is our choice.

    Example:
        >>> a = torch.tensor([[1 / 3]], dtype=torch.float64)
        >>> [gs.sliced.ozaki_int8(n)(a, torch.ones(1, 1)).item() for n in (2, 4, 8)]
        [0.33331298828125, 0.3333333320915699, 0.3333333333333333]
    """
    cut = IntegerSlices(7, slices)
    terms = _least_first(slices, slices + 1)
    return Sliced(cut, terms, "int8 : int(32)", False, "fp64", out)  # type: ignore[arg-type]


def _least_first(count: int, most: int) -> tuple[tuple[int, int], ...]:
    """All (i, j) with i + j <= most, the largest sums first, then i descending."""
    pairs = [(i, j) for i in range(1, count + 1) for j in range(1, count + 1) if i + j <= most]
    return tuple(sorted(pairs, key=lambda pair: (-sum(pair), -pair[0])))
