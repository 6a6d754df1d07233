"""Accumulators under the names people know them by."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ..formats import Cast, FixedFormat, FloatFormat, Format
from ..formats.errors import shortened, shown
from ..hardware.chips import CHIPS, chip_key
from .accumulator import Accumulator
from .argument_kinds import ChoiceKind, IntKind
from .chunked import Chunked, Promote
from .errors import spec_error
from .hardware import Hardware
from .integer import Integer
from .sequential import Sequential

__all__ = [
    "PRESETS",
    "a2q",
    "ada_fp8",
    "adder_tree",
    "batch_invariant",
    "blackwell_mxfp8",
    "blackwell_nvfp4",
    "build_preset",
    "cdna3_fp8",
    "cublas_fp32",
    "deepgemm",
    "fp16_accumulate",
    "hopper_fp8_2xacc",
    "hopper_fp8_fast",
    "lba_m7e4",
    "mptorch_cuda",
    "preset_signature",
    "srmac_fp12",
    "wang2018",
]

CastLike = str | Format | Cast
FormatLike = str | FloatFormat
_Preset = TypeVar("_Preset", bound=Callable[..., Accumulator])

#: Of an adder tree: levels, of which 20 add a million terms, and widths whose every value float64 holds.
_MOST_TREE_LEVELS = 20
_TREE_WIDTH = IntKind(1, 53)

#: Presets by name, as spec strings call them: ``deepgemm()``, ``cublas_fp32(h100)``. They print as what they expand to.
PRESETS: dict[str, Callable[..., Accumulator]] = {}


def _preset(function: _Preset) -> _Preset:
    """Makes a function of this file known to spec strings."""
    PRESETS[function.__name__] = function
    return function


def preset_signature(name: str) -> str:
    """The preset as one writes it: ``cublas_fp32(arch=hopper, a=bf16, b=none)``."""
    parts = []
    for one in inspect.signature(PRESETS[name]).parameters.values():
        default = "none" if one.default is None else one.default
        parts.append(one.name if one.default is one.empty else f"{one.name}={default}")
    return f"{name}({', '.join(parts)})"


def build_preset(name: str, args: list[object], kwargs: Mapping[str, object]) -> Accumulator:
    """Accumulator of a preset's name and its arguments, objects or text.

    Raises:
        SpecError: for missing, superfluous or unknown arguments, or impossible values.
    """
    try:
        inspect.signature(PRESETS[name]).bind(*args, **kwargs)
    except TypeError as error:
        given = [shortened(f"{value}") for value in args]
        given += [shortened(f"{key}={value}") for key, value in kwargs.items()]
        asked = f"{name}({', '.join(given)}): {error}"
        raise spec_error(asked, preset_signature(name), "Correct the arguments.") from None
    return PRESETS[name](*args, **kwargs)


#: The unit that libraries use for large products where it is not mma.
_LARGEST_UNIT = {"hopper": "wgmma", "blackwell": "tcgen05"}


@_preset
def mptorch_cuda(add: CastLike, mul: CastLike | None = None) -> Chunked:
    """The order of mptorch's GPU kernels: ``chunked(8, sequential(add, mul))``, totals in ``add`` too."""
    return Chunked(8, Sequential(add, mul))  # type: ignore[arg-type]


@_preset
def wang2018(n: int = 64) -> Chunked:
    """``chunked(64, e6m9)``: FP8 training with chunked accumulation in 1-6-9. Operands there are e5m2.

    Source: Wang et al., "Training deep neural networks with 8-bit floating point numbers", NeurIPS 2018 (FP16 there is
    1-6-9). Its stochastic rounding is that of the weight update; sums round to nearest.
    """
    return Chunked(n, "e6m9")  # type: ignore[arg-type]


@_preset
def batch_invariant() -> Sequential:
    """``fp32``, k ascending: one order for every shape, no split of K.

    Source: He et al., "Defeating nondeterminism in LLM inference", Thinking Machines Lab, 2025, which fixes the order
    on tensor cores; this is the order alone. Every accumulator here gives an element the same bits in any batch.
    """
    return Sequential("fp32")  # type: ignore[arg-type]


@_preset
def srmac_fp12(r: int = 13) -> Sequential:
    """``e6m5/srN``: stochastic rounding with r random bits in a 12-bit register.

    Source: Ben Ali, Filip, Sentieys, "A stochastic rounding-enabled low-precision floating-point MAC for DNN training",
    DATE 2024: FP8 products, accumulator E6M5, r = 13 the width it settles on. Its smallest unit has no subnormals,
    which is ``e6m5/ftz/sr13``.
    """
    return Sequential(f"e6m5/sr{r}")  # type: ignore[arg-type]


@_preset
def lba_m7e4(acc_bias: int = 10, prod_bias: int = 12, n: int = 16) -> Chunked:
    """Lower-bit accumulators (FMAq): product, then sum, both cut toward zero to 7+4 bits, no subnormals, saturating.

    Source: Blumenfeld, Hubara, Soudry, "Towards cheaper inference in deep networks with lower bit-width accumulators",
    ICLR 2024: M7E4, both by floor (of magnitudes), underflow to zero, chunks of 16, biases 10 and 12, which follow its
    rule acc_bias = prod_bias - log2(n) / 2. The range is that of an IEEE-like exponent field with that bias: -9 to 4
    for bias 10 (docs/reference/accumulators.md#presets). If the field has no reserved codes in the paper, which we
    could not check, the range is one binade wider at each end: ``float(p=8,emin=-10,emax=5,specials=none)/ftz``.
    """
    add, mul = (f"e4m7b{bias}/rtz/sat/ftz" for bias in (acc_bias, prod_bias))
    return Chunked(n, Sequential(add, mul))  # type: ignore[arg-type]


@_preset
def a2q(P: int) -> Integer:
    """``int(P)``: a register that wraps, which weights with an ``overflow_certificate`` for P never make it do.

    Source: Colbert, Pappalardo, Petri-Koenig, "A2Q: accumulator-aware quantization with guaranteed overflow avoidance",
    ICCV 2023.
    """
    return Integer(P)


@_preset
def adder_tree(
    widths: str | Sequence[int], outer: int | CastLike | Accumulator, *, overflow: str = "saturate"
) -> Chunked:
    """A tree of adders with a width for each level: pairs of products in the first, pairs of those sums in the next.

    ``adder_tree([17, 18, 19], "fixed(32,0)")`` is ``chunked(8, chunked(4, chunked(2, int(17, saturate, when=end),
    fixed(18,0)), fixed(19,0)), fixed(32,0))``: 2**3 terms go through one tree, and the results of trees are added in
    ``outer``, in order. An adder gives F(x + y): the exact sum of its two inputs, or the nearer end of its two's
    complement range; or F wraps. Terms that do not fill a tree are as if zeros followed.

    Args:
        widths: bits of the adders of each level, 1 to 20 levels, none narrower than the one before.
        outer: what the results are added in: a number of bits, a format, int(P, saturate) or another accumulator that
            ``chunked`` takes.
        overflow: of the adders: "saturate", or "wrap", modulo 2^bits, for widths of which only the first can overflow:
            any number of levels of the first width, then at least a bit more at each level.

    Operands must be integers. Source: docs/reference/accumulators.md#adder-trees.

    Raises:
        SpecError: for no list of 1 to 20 widths from 1 to 53, one narrower than the one before, another ``overflow``, a
            later level that could wrap, and what ``chunked`` does not take as ``outer``, such as a register that wraps.
    """
    levels = _widths(widths)
    wraps = ChoiceKind("wrap", "saturate", sat="saturate").read(overflow, "adder_tree", "overflow") == "wrap"
    found: Accumulator = Integer(levels[0], "wrap" if wraps else "saturate", when="end")
    first = levels.count(levels[0]) if wraps else 1  # sums modulo 2^bits have no order: one register for these levels
    for level, bits in enumerate(levels[first:], first):
        if wraps and bits < levels[0] + level - first + 1:
            raise spec_error(
                f"adder_tree: widths={levels} with overflow='wrap'",
                "levels of the first width, then at least a bit more each, so that only the first width can overflow",
                "Use overflow='saturate', or wider levels.",
            )
        found = Chunked(2**level, found, FixedFormat(bits, 0))  # type: ignore[arg-type]
    last = str(outer).strip()
    into = f"fixed({last},0)" if last.isdecimal() and int(last) in range(1, 54) else outer
    return Chunked(2 ** len(levels), found, into)  # type: ignore[arg-type]


def _widths(given: object) -> list[int]:
    """The widths of the levels, from a list or its text."""
    text = given.strip() if isinstance(given, str) else ""
    is_list = text.startswith("[") and text.endswith("]")
    parts = [part.strip() for part in text[1:-1].split(",") if part.strip()] if is_list else given
    if not isinstance(parts, (list, tuple)) or not 1 <= len(parts) <= _MOST_TREE_LEVELS:
        asked, allowed = f"adder_tree: widths={shown(given)}", f"a list of 1 to {_MOST_TREE_LEVELS} widths, [17, 18]"
        raise spec_error(asked, allowed, "Give the bits of each level, the first one first.")
    found = [_TREE_WIDTH.read(one, "adder_tree", "widths") for one in parts]
    if found != sorted(found):
        raise spec_error(
            f"adder_tree: widths={found}",
            "no level narrower than the one before",
            "Saturate in the narrower one first.",
        )
    return found


def _unit(arch: str) -> str:
    key = chip_key(arch) if isinstance(arch, str) else ""
    return _LARGEST_UNIT.get(CHIPS.get(key, key), "mma")


@_preset
def cublas_fp32(arch: str = "hopper", a: FormatLike = "bf16", b: FormatLike | None = None) -> Hardware:
    """``hw(arch, wgmma, a, b)`` (tcgen05 on blackwell, else mma): what people call "fp32 accumulation" on tensor cores.

    It is not sequential fp32: the products of an instruction and the register are cut toward zero below the largest
    exponent, and the sum is cut to fp32. cuBLAS also chooses tiles and may split K; this is one chain over all of K.
    ``SpecError`` where the architecture does not take these operands.

    Source: ``.instruction.source``.
    """
    return Hardware(arch, _unit(arch), a, b)  # type: ignore[arg-type]


@_preset
def fp16_accumulate(arch: str = "hopper") -> Hardware:
    """``hw(arch, wgmma, fp16, out=fp16)`` (tcgen05 on blackwell, else mma): fp16 operands with an fp16 register.

    The sum of an instruction is exact above its cut, then rounded to the nearest fp16 once; past 65504 lies infinity.

    Source: ``.instruction.source``.
    """
    return Hardware(arch, _unit(arch), "fp16", out="fp16")


@_preset
def hopper_fp8_fast(a: FormatLike = "e4m3", b: FormatLike | None = None) -> Hardware:
    """``hw(hopper, wgmma, a, b)``: FP8 on Hopper without promotion, ``torch._scaled_mm(use_fast_accum=True)``.

    The register keeps 13 fraction bits from one instruction (32 products) to the next.

    Source: ``.instruction.source``; the DeepSeek-V3 technical report, 3.5.2, reports as many: 14 bits with the
    leading one.
    """
    return Hardware("hopper", "wgmma", a, b)  # type: ignore[arg-type]


@_preset
def hopper_fp8_2xacc(n: int = 128, a: FormatLike = "e4m3", b: FormatLike | None = None) -> Promote:
    """``promote(hopper_fp8_fast(a, b), n, fp32)``: every n terms the register is added to an fp32 one and zeroed.

    CUTLASS' default for FP8 on Hopper, four instructions between promotions. An n that is no multiple of 32 is allowed:
    each run is filled up with zeros by itself.

    Source: CUTLASS' two-level accumulation; ``.inner.instruction.source``.
    """
    return Promote(hopper_fp8_fast(a, b), n)


@_preset
def deepgemm(n: int = 128) -> Promote:
    """``promote(hopper_fp8_fast(), n, fp32)``: DeepGEMM's FP8 products on Hopper with all scales 1.

    DeepGEMM multiplies each run's total by the scales of its blocks before it is added. An n that is no multiple of 32
    is allowed: each run is filled up with zeros by itself.

    Source: DeepSeek-V3 technical report, 3.3.2; ``.inner.instruction.source``.
    """
    return hopper_fp8_2xacc(n)


@_preset
def ada_fp8(a: FormatLike = "e4m3", b: FormatLike | None = None) -> Hardware:
    """``hw(ada, mma, a, b)``: FP8 on Ada, 13 fraction bits kept, two steps of 16 products an instruction.

    Source: ``.instruction.source``.
    """
    return Hardware("ada", "mma", a, b)  # type: ignore[arg-type]


@_preset
def blackwell_mxfp8(a: FormatLike = "e4m3", b: FormatLike | None = None) -> Hardware:
    """``hw(blackwell, mxf8f6f4, a, b)``: MXFP8 on Blackwell, blocks of 32 with ue8m0 scales: ``mxfp8_e4m3 : ...``.

    Source: ``.instruction.source``.
    """
    return Hardware("blackwell", "mxf8f6f4", a, b)  # type: ignore[arg-type]


@_preset
def blackwell_nvfp4() -> Hardware:
    """``hw(blackwell, mxf4nvf4, e2m1)``: NVFP4 on Blackwell, blocks of 16 with ue4m3 scales: ``nvfp4 : ...``.

    Source: ``.instruction.source``.
    """
    return Hardware("blackwell", "mxf4nvf4", "e2m1")


@_preset
def cdna3_fp8(a: FormatLike = "e4m3fnuz", b: FormatLike | None = None) -> Hardware:
    """``hw(cdna3, mfma, a, b)``: FP8 (fnuz) on AMD's CDNA3; even and odd products are summed apart.

    e4m3fnuz ends at 240, and operands beyond become NaN, of which products warn once (``gemmsim.FormatsWarning``).
    Scale them, or let them saturate: "e4m3fnuz/sat : hw(cdna3, mfma, e4m3fnuz)".

    Source: ``.instruction.source``.
    """
    return Hardware("cdna3", "mfma", a, b)  # type: ignore[arg-type]
