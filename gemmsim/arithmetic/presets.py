"""Accumulators under the names people know them by."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ..formats import Cast, FixedFormat, FloatFormat, Format
from ..formats.errors import shortened, shown
from ..hardware.chips import CHIPS, chip_key
from .accumulator import Accumulator
from .argument_kinds import ChoiceKind, IntKind, optional
from .chunked import Chunked, Promote
from .errors import spec_error
from .hardware import Hardware
from .integer import Integer
from .sequential import Sequential
from .totals import TOTALS

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
    """The order of mptorch's GPU kernels: ``chunked(8, sequential(add, mul))``, with partial sums in ``add`` too.

    Example:
        >>> gs.acc.mptorch_cuda("bf16", mul="fp16")
        Accumulator.parse('chunked(8, sequential(e8m7, mul=e5m10))')
    """
    return Chunked(8, Sequential(add, mul))  # type: ignore[arg-type]


@_preset
def wang2018(n: int = 64) -> Chunked:
    """``chunked(64, e6m9)``: FP8 training with chunked accumulation in 1-6-9. The operands in that paper are e5m2.

    Source: Wang et al., "Training deep neural networks with 8-bit floating point numbers", NeurIPS 2018 (FP16 there is
    1-6-9). Its stochastic rounding is that of the weight update; sums round to nearest.

    Example:
        >>> gs.GemmSpec(a="e5m2", b="e5m2", accumulator=gs.acc.wang2018())
        GemmSpec.parse('e5m2 : chunked(64, e6m9)')
    """
    return Chunked(n, "e6m9")  # type: ignore[arg-type]


@_preset
def batch_invariant() -> Sequential:
    """``fp32``, k ascending: one order for every shape, without split-K.

    Source: He et al., "Defeating nondeterminism in LLM inference", Thinking Machines Lab, 2025, which fixes the order
    on tensor cores; this is only the order. Every accumulator here gives an element the same bits in any batch.

    Example:
        >>> gs.acc.batch_invariant()
        Accumulator.parse('e8m23')
    """
    return Sequential("fp32")  # type: ignore[arg-type]


@_preset
def srmac_fp12(r: int = 13) -> Sequential:
    """``e6m5/srN``: stochastic rounding with r random bits in a 12-bit accumulator.

    Source: Ben Ali, Filip, Sentieys, "A stochastic rounding-enabled low-precision floating-point MAC for DNN training",
    DATE 2024: FP8 products, accumulator E6M5; r = 13 is the width that the paper settles on. Its smallest unit has no
    subnormals, which is ``e6m5/ftz/sr13``.

    Example:
        >>> a, b = torch.ones(1, 4096), torch.ones(4096, 1)
        >>> gs.qmatmul(a, b, "e6m5").item(), gs.qmatmul(a, b, gs.acc.srmac_fp12(), seed=0).item()
        (64.0, 4608.0)
    """
    return Sequential(f"e6m5/sr{r}")  # type: ignore[arg-type]


@_preset
def lba_m7e4(acc_bias: int = 10, prod_bias: int = 12, n: int = 16) -> Chunked:
    """Lower-bit accumulators (FMAq): product, then sum, both truncated to 7+4 bits, no subnormals, saturating.

    Source: Blumenfeld, Hubara, Soudry, "Towards cheaper inference in deep networks with lower bit-width accumulators",
    ICLR 2024: M7E4, both by floor (of magnitudes), underflow to zero, chunks of 16. The biases 10 and 12 follow its
    rule acc_bias = prod_bias - log2(n) / 2. The range is that of an IEEE-like exponent field with that bias: -9 to 4
    for bias 10 (docs/reference/accumulators.md#presets). We could not check whether the paper's field has reserved
    codes. If it has none, the range is one binade wider at each end: ``float(p=8,emin=-10,emax=5,specials=none)/ftz``.

    Example:
        >>> gs.acc.lba_m7e4().add_cast.format.max  # the accumulator saturates here
        31.875
    """
    add, mul = (f"e4m7b{bias}/rtz/sat/ftz" for bias in (acc_bias, prod_bias))
    return Chunked(n, Sequential(add, mul))  # type: ignore[arg-type]


@_preset
def a2q(P: int) -> Integer:
    """``int(P)``: an accumulator that wraps, but never for weights with an ``overflow_certificate`` for P.

    Source: Colbert, Pappalardo, Petri-Koenig, "A2Q: accumulator-aware quantization with guaranteed overflow avoidance",
    ICCV 2023.

    Example:
        >>> gs.acc.a2q(16)
        Accumulator.parse('int(16)')
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
    complement range; or F wraps. Terms that do not fill a tree are treated as if zeros followed.

    Args:
        widths: bits of the adders of each level, 1 to 20 levels, none narrower than the one before.
        outer: the accumulator of the results: a number of bits, a format, int(P, saturate) or another accumulator that
            ``chunked`` takes.
        overflow: of the adders: "saturate", or "wrap", modulo 2^bits, for widths of which only the first can overflow:
            any number of levels of the first width, then at least one bit more at each level.

    Operands must be integers. Source: docs/reference/accumulators.md#adder-trees.

    Raises:
        SpecError: for no list of 1 to 20 widths from 1 to 53, one narrower than the one before, another ``overflow``, a
            later level that could wrap, and what ``chunked`` does not take as ``outer``, such as an accumulator that
            wraps.

    Example:
        >>> gs.qmatmul(torch.full((1, 4), 100.0), torch.ones(4, 1), gs.acc.adder_tree([8, 9], 16))  # 127 + 127
        tensor([[254.]])
    """
    levels = _widths(widths)
    wraps = ChoiceKind("wrap", "saturate", sat="saturate").read(overflow, "adder_tree", "overflow") == "wrap"
    found: Accumulator = Integer(levels[0], "wrap" if wraps else "saturate", when="end")
    first = levels.count(levels[0]) if wraps else 1  # sums modulo 2^bits have no order: one register for these levels
    for level, bits in enumerate(levels[first:], first):
        if wraps and bits < levels[0] + level - first + 1:
            raise spec_error(
                f"adder_tree: widths={levels} with overflow='wrap'",
                "levels of the first width, then at least one more bit each, so that only the first width can overflow",
                "Use overflow='saturate', or wider levels.",
            )
        found = Chunked(2**level, found, FixedFormat(bits, 0))  # type: ignore[arg-type]
    return Chunked(2 ** len(levels), found, _after_trees(outer))


def _after_trees(outer: int | CastLike | Accumulator) -> Cast | Accumulator | None:
    """What adds the results of trees: a number of bits is a saturating integer of that width."""
    last = str(outer).strip()
    text = f"fixed({last},0)" if last.isdecimal() and int(last) in range(1, 54) else outer
    # Refused here, so that the message names the tree.
    found: Cast | Accumulator | None = optional(TOTALS).read(text, "adder_tree", "outer")
    return found


def _widths(given: object) -> list[int]:
    """The widths of the levels, from a list or its text."""
    text = given.strip() if isinstance(given, str) else ""
    is_list = text.startswith("[") and text.endswith("]")
    parts = [part.strip() for part in text[1:-1].split(",") if part.strip()] if is_list else given
    if not isinstance(parts, (list, tuple)) or not 1 <= len(parts) <= _MOST_TREE_LEVELS:
        asked, allowed = f"adder_tree: widths={shown(given)}", f"a list of 1 to {_MOST_TREE_LEVELS} widths, [17, 18]"
        raise spec_error(asked, allowed, "Give the bits of each level in order.")
    found = [_TREE_WIDTH.read(one, "adder_tree", "widths") for one in parts]
    if found != sorted(found):
        raise spec_error(
            f"adder_tree: widths={found}",
            "no level narrower than the previous one",
            "Put the narrower level first.",
        )
    return found


def _unit(arch: str) -> str:
    key = chip_key(arch) if isinstance(arch, str) else ""
    return _LARGEST_UNIT.get(CHIPS.get(key, key), "mma")


@_preset
def cublas_fp32(arch: str = "hopper", a: FormatLike = "bf16", b: FormatLike | None = None) -> Hardware:
    """``hw(arch, wgmma, a, b)`` (tcgen05 on blackwell, else mma): what people call "fp32 accumulation" on tensor cores.

    It is not sequential fp32. The products of an instruction and the accumulator are truncated below the largest
    exponent, and the sum is truncated to fp32. cuBLAS also chooses tiles and may split K; this is one chain over all of
    K. ``SpecError`` where the architecture does not take these operands.
    Source: ``.instruction.source``.

    Example:
        >>> a = torch.tensor([[2.0**24, 1.0, 1.0, 1.0]])
        >>> gs.qmatmul(a, torch.ones(4, 1), gs.acc.cublas_fp32()), gs.qmatmul(a, torch.ones(4, 1), "fp32")
        (tensor([[16777218.]]), tensor([[16777216.]]))
    """
    return Hardware(arch, _unit(arch), a, b)  # type: ignore[arg-type]


@_preset
def fp16_accumulate(arch: str = "hopper") -> Hardware:
    """``hw(arch, wgmma, fp16, out=fp16)`` (tcgen05 on blackwell, else mma): fp16 operands with an fp16 accumulator.

    The sum of an instruction is exact above its truncation limit, then rounded to the nearest fp16 once; a result
    beyond 65504 becomes infinity.
    Source: ``.instruction.source``.

    Example:
        >>> gs.qmatmul(torch.full((1, 32), 64.0), torch.full((32, 1), 64.0), gs.acc.fp16_accumulate())
        tensor([[inf]])
    """
    return Hardware(arch, _unit(arch), "fp16", out="fp16")


@_preset
def hopper_fp8_fast(a: FormatLike = "e4m3", b: FormatLike | None = None) -> Hardware:
    """``hw(hopper, wgmma, a, b)``: FP8 on Hopper without promotion, ``torch._scaled_mm(use_fast_accum=True)``.

    The accumulator keeps 13 fraction bits from one instruction (32 products) to the next.
    Source: ``.instruction.source``. The DeepSeek-V3 technical report, 3.5.2, reports the same number: 14 bits with the
    leading one.

    Example:
        >>> a, b = torch.ones(1, 1 << 17), torch.ones(1 << 17, 1)
        >>> gs.qmatmul(a, b, gs.acc.hopper_fp8_fast())  # stagnates at 2**14
        tensor([[16384.]])
    """
    return Hardware("hopper", "wgmma", a, b)  # type: ignore[arg-type]


@_preset
def hopper_fp8_2xacc(n: int = 128, a: FormatLike = "e4m3", b: FormatLike | None = None) -> Promote:
    """``promote(hopper_fp8_fast(a, b), n, fp32)``: every n terms the partial sum is promoted to fp32.

    CUTLASS' default for FP8 on Hopper, four instructions between promotions. An n that is not a multiple of 32 is
    allowed: each chunk is padded with zeros separately.
    Source: CUTLASS' two-level accumulation; ``.inner.instruction.source``.

    Example:
        >>> gs.acc.hopper_fp8_2xacc()
        Accumulator.parse('promote(hw(hopper, wgmma, e4m3), 128)')
    """
    return Promote(hopper_fp8_fast(a, b), n)


@_preset
def deepgemm(n: int = 128) -> Promote:
    """``promote(hopper_fp8_fast(), n, fp32)``: DeepGEMM's FP8 products on Hopper with all scales 1.

    DeepGEMM multiplies the partial sum of each chunk by the scales of its blocks before it adds it. An n that is not a
    multiple of 32 is allowed: each chunk is padded with zeros separately.
    Source: DeepSeek-V3 technical report, 3.3.2; ``.inner.instruction.source``.

    Example:
        >>> gs.acc.deepgemm().inner.instruction.name
        'wgmma.m64n8k32.f32.e4m3.e4m3'
    """
    return hopper_fp8_2xacc(n)


@_preset
def ada_fp8(a: FormatLike = "e4m3", b: FormatLike | None = None) -> Hardware:
    """``hw(ada, mma, a, b)``: FP8 on Ada, 13 fraction bits kept, two steps of 16 products per instruction.

    Source: ``.instruction.source``.

    Example:
        >>> gs.acc.ada_fp8("e4m3", "e5m2")
        Accumulator.parse('hw(ada, mma, e4m3, e5m2)')
    """
    return Hardware("ada", "mma", a, b)  # type: ignore[arg-type]


@_preset
def blackwell_mxfp8(a: FormatLike = "e4m3", b: FormatLike | None = None) -> Hardware:
    """``hw(blackwell, mxf8f6f4, a, b)``: MXFP8 on Blackwell, blocks of 32 with ue8m0 scales: ``mxfp8_e4m3 : ...``.

    Source: ``.instruction.source``.

    Example:
        >>> gs.GemmSpec(a="mxfp8_e4m3", b="mxfp8_e4m3", accumulator=gs.acc.blackwell_mxfp8())
        GemmSpec.parse('mxfp8_e4m3 : hw(blackwell, mxf8f6f4, e4m3)')
    """
    return Hardware("blackwell", "mxf8f6f4", a, b)  # type: ignore[arg-type]


@_preset
def blackwell_nvfp4() -> Hardware:
    """``hw(blackwell, mxf4nvf4, e2m1)``: NVFP4 on Blackwell, blocks of 16 with ue4m3 scales: ``nvfp4 : ...``.

    Source: ``.instruction.source``.

    Example:
        >>> gs.GemmSpec(a="nvfp4", b="nvfp4", accumulator=gs.acc.blackwell_nvfp4())
        GemmSpec.parse('nvfp4 : hw(blackwell, mxf4nvf4, e2m1)')
    """
    return Hardware("blackwell", "mxf4nvf4", "e2m1")


@_preset
def cdna3_fp8(a: FormatLike = "e4m3fnuz", b: FormatLike | None = None) -> Hardware:
    """``hw(cdna3, mfma, a, b)``: FP8 (fnuz) on AMD's CDNA3; even and odd products are summed separately.

    The largest e4m3fnuz number is 240, and larger operands become NaN; products warn of this once
    (``gemmsim.FormatsWarning``). Scale the operands, or let them saturate: "e4m3fnuz/sat : hw(cdna3, mfma, e4m3fnuz)".
    Source: ``.instruction.source``.

    Example:
        >>> gs.acc.cdna3_fp8()
        Accumulator.parse('hw(cdna3, mfma, e4m3fnuz)')
    """
    return Hardware("cdna3", "mfma", a, b)  # type: ignore[arg-type]
