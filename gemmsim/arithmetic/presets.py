"""Accumulators under the names people know them by."""

from __future__ import annotations

from ..formats import Cast, Format
from .chunked import Chunked
from .integer import Integer
from .sequential import Sequential

__all__ = ["a2q", "batch_invariant", "lba_m7e4", "mptorch_cuda", "srmac_fp12", "wang2018"]

CastLike = str | Format | Cast


def mptorch_cuda(add: CastLike, mul: CastLike | None = None) -> Chunked:
    """The order of mptorch's GPU kernels: ``chunked(8, sequential(add, mul))``, totals in ``add`` too."""
    return Chunked(8, Sequential(add, mul))  # type: ignore[arg-type]


def wang2018(n: int = 64) -> Chunked:
    """``chunked(64, e6m9)``: FP8 training with chunked accumulation in 1-6-9. Operands there are e5m2.

    Source: Wang et al., "Training deep neural networks with 8-bit floating point numbers", NeurIPS 2018 (FP16 there is
    1-6-9). Its stochastic rounding is that of the weight update; sums round to nearest.
    """
    return Chunked(n, "e6m9")  # type: ignore[arg-type]


def batch_invariant() -> Sequential:
    """``fp32``, k ascending: one order for every shape, no split of K.

    Source: He et al., "Defeating nondeterminism in LLM inference", Thinking Machines Lab, 2025, which fixes the order
    on tensor cores; this is the order alone. Every accumulator here gives an element the same bits in any batch.
    """
    return Sequential("fp32")  # type: ignore[arg-type]


def srmac_fp12(r: int = 13) -> Sequential:
    """``e6m5/srN``: stochastic rounding with r random bits in a 12-bit register.

    Source: Ben Ali, Filip, Sentieys, "A stochastic rounding-enabled low-precision floating-point MAC for DNN training",
    DATE 2024: FP8 products, accumulator E6M5, r = 13 the width it settles on. Its smallest unit has no subnormals,
    which is ``e6m5/ftz/sr13``.
    """
    return Sequential(f"e6m5/sr{r}")  # type: ignore[arg-type]


def lba_m7e4(acc_bias: int = 10, prod_bias: int = 12, n: int = 16) -> Chunked:
    """Lower-bit accumulators (FMAq): product, then sum, both cut toward zero to 7+4 bits, no subnormals, saturating.

    Source: Blumenfeld, Hubara, Soudry, "Towards cheaper inference in deep networks with lower bit-width accumulators",
    ICLR 2024: M7E4, both by floor (of magnitudes), underflow to zero, chunks of 16, biases 10 and 12, which follow its
    rule acc_bias = prod_bias - log2(n) / 2. The range is that of an IEEE-like exponent field with that bias, as
    spec/accumulators.md, section 5, has it: -9 to 4 for bias 10. If the field has no reserved codes in the paper, which
    we could not check, the range is one binade wider at each end: ``float(p=8,emin=-10,emax=5,specials=none)/ftz``.
    """
    add, mul = (f"e4m7b{bias}/rtz/sat/ftz" for bias in (acc_bias, prod_bias))
    return Chunked(n, Sequential(add, mul))  # type: ignore[arg-type]


def a2q(P: int) -> Integer:
    """``int(P)``: a register that wraps, which weights with an ``overflow_certificate`` for P never make it do.

    Source: Colbert, Pappalardo, Petri-Koenig, "A2Q: accumulator-aware quantization with guaranteed overflow avoidance",
    ICCV 2023.
    """
    return Integer(P)
