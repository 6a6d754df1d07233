"""Recipes with one scale rule for all tensors, and one arithmetic for all products."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from .._keywords import takes_spec
from ..arithmetic import GemmSpec, SpecError, SpecLike
from ..formats import FormatError
from ..ops.errors import message
from ..ops.product.affine_formats import QAffineFormats

__all__ = ["all_products", "deepseek_fp8", "fp16_accumulate", "hopper_fp8", "mxfp8", "nvfp4"]


@lru_cache(maxsize=None, typed=True)
def hopper_fp8(margin: int = 0) -> QAffineFormats:
    """FP8 on Hopper with a scale for each tensor: e4m3 forward, e5m2 gradients.

    Forward: input and weight in e4m3, saturating, are summed by wgmma's accumulator of 13 fraction bits over all of
    K. Both gradients: the incoming gradient in e5m2, saturating, is multiplied by the operand as the forward product
    rounded it; the accumulator is added to an fp32 one and zeroed every 128 terms. Each operand is scaled first, by
    the power of two that brings its largest finite magnitude to at most the format's largest value over
    ``2**margin``; results are scaled back.

    Different from the source: scales are those of the present tensor ("current scaling"; delayed scaling takes them
    from earlier steps) and always powers of two, which the source has as an option. Infinities become the largest
    value; NaN stays. For convolutions and linear layers.

    Raises:
        FormatError: for a margin that is not an integer.

    Source: Micikevicius et al., "FP8 formats for deep learning", arXiv:2209.05433 (formats, scaling per tensor,
    saturation); NVIDIA Transformer Engine, recipes ``DelayedScaling`` and ``Float8CurrentScaling``
    (``Format.HYBRID``, split accumulators only in the backward products); the instruction:
    docs/reference/hardware.md#evidence.

    Example:
        >>> gs.nn.QLinear(64, 32, spec="hopper_fp8")  # or gs.recipes.hopper_fp8()
        QLinear(in_features=64, out_features=32, bias=True, spec='hopper_fp8')
    """
    split = "promote(hw(hopper, wgmma, e5m2, e4m3), 128)"
    return QAffineFormats(
        fprop="e4m3/sat : hw(hopper, wgmma, e4m3)",
        dgrad=f"e5m2/sat * e4m3/sat : {split}",
        wgrad=f"e5m2/sat * e4m3/sat : {split}",
        use_scaling=True,
        scale_margin=_margin("hopper_fp8", margin),
    )


def _margin(recipe: str, margin: object) -> int:
    if isinstance(margin, bool) or not isinstance(margin, int):
        do = f"Try recipes.{recipe}(margin=1)."
        raise FormatError(
            message(f"recipes.{recipe}: margin={margin!r}", "an integer, the exponent of a power of two", do)
        )
    return margin


@lru_cache(maxsize=None, typed=True)
def deepseek_fp8() -> QAffineFormats:
    """FP8 as DeepSeek-V3 trains: e4m3 for all tensors, a scale for every 128 values, sums in fp32.

    Each product encodes its operands along its own reduction dimension, in blocks of 128. A block's scale is the
    least power of two that keeps the largest magnitude in range. The accumulator of wgmma, with 13 fraction bits,
    sums 128 products from zero; that sum times both scales is added to an fp32 accumulator.

    Different from the source: weights have 1 x 128 blocks (finer than its 128 x 128). Scales are powers of two
    everywhere, as in DeepSeek-V3.1 (ue8m0), where V3 has float32 scales except for some activations. A block with a
    NaN or an infinity becomes NaN. For linear layers and convolutions (docs/reference/conv.md).

    Source: DeepSeek-V3 technical report, arXiv:2412.19437, 3.3; the instruction as arXiv:2511.10909 models it.

    Example:
        >>> print(gs.recipes.deepseek_fp8().fprop)
        mxfp8_e4m3/b128/rceil : scaled(hw(hopper, wgmma, e4m3))
    """
    return QAffineFormats.of("mxfp8_e4m3/b128/rceil : scaled(hw(hopper, wgmma, e4m3), fp32)")


@lru_cache(maxsize=None, typed=True)
def mxfp8(grad: str = "e4m3") -> QAffineFormats:
    """MXFP8 on Blackwell: blocks of 32 with a power of two each, e4m3 for all tensors.

    Each product encodes its operands from full precision, along its own reduction dimension. Scales are rounded up,
    so nothing saturates. The tensor core's mxf8f6f4 instruction multiplies and sums. ``grad``: element format of the
    incoming gradient, "e4m3" as published or "e5m2".

    A block with a NaN or an infinity becomes NaN. For linear layers and convolutions (docs/reference/conv.md).

    Raises:
        SpecError: for another ``grad``.

    Source: Mishra et al., "Recipes for pre-training LLMs with MXFP8", arXiv:2506.08027 (e4m3 for all tensors, scales
    rounded up); OCP Microscaling Formats rev. 1.0; NVIDIA Transformer Engine, ``MXFP8BlockScaling``; the instruction:
    docs/reference/hardware.md#evidence.

    Example:
        >>> print(gs.recipes.mxfp8(grad="e5m2").dgrad)
        mxfp8_e5m2/rceil * mxfp8_e4m3/rceil : hw(blackwell, mxf8f6f4, e5m2, e4m3)
    """
    if grad not in ("e4m3", "e5m2"):
        asked = f"recipes.mxfp8: grad={grad!r}"
        raise SpecError(message(asked, "'e4m3', 'e5m2'", "Write other formats as QAffineFormats(fprop=..., ...)."))
    x, g = "mxfp8_e4m3/rceil", f"mxfp8_{grad}/rceil"
    back = f"{g} * {x} : hw(blackwell, mxf8f6f4, {grad}, e4m3)"
    return QAffineFormats(fprop=f"{x} : hw(blackwell, mxf8f6f4, e4m3)", dgrad=back, wgrad=back)


@lru_cache(maxsize=None, typed=True)
def nvfp4() -> QAffineFormats:
    """NVFP4 on Blackwell: e2m1 in blocks of 16 with e4m3 scales, and one float32 scale for the tensor.

    Each product encodes its operands from full precision, along its own reduction dimension; the tensor core's
    mxf4nvf4 instruction multiplies and sums.

    This recipe omits parts of the source's recipe for long training runs. Those are stochastic rounding of gradients
    (here to nearest even), random Hadamard transforms before the weight's gradient, 16 x 16 blocks of weights (here 1
    x 16), and some layers in higher precision. A block with a NaN or an infinity becomes NaN. For linear layers and
    convolutions (docs/reference/conv.md).

    Source: NVIDIA, "Pretraining large language models with NVFP4", arXiv:2509.25149; the instruction:
    docs/reference/hardware.md#evidence.

    Example:
        >>> print(gs.recipes.nvfp4().fprop)
        nvfp4/tensor : hw(blackwell, mxf4nvf4, e2m1)
    """
    return QAffineFormats.of("nvfp4/tensor : hw(blackwell, mxf4nvf4, e2m1)")


@lru_cache(maxsize=None, typed=True)
def fp16_accumulate(margin: int = 14) -> QAffineFormats:
    """fp16 operands with fp16 accumulators in all three products, and a scale for each tensor.

    The accumulator is rounded to fp16 after every instruction (16 products on Hopper's wgmma) and overflows beyond
    65504. Each operand is scaled first, by the power of two that brings its largest finite magnitude to at most
    ``65504 / 2**margin``; results are scaled back. With the default of 14, magnitudes are below 4 and no sum of up to
    4096 terms overflows. A smaller margin keeps more of small values.

    Infinities and NaN stay. For convolutions and linear layers.

    Raises:
        FormatError: for a margin that is not an integer.

    Source: PTX ISA, wgmma with .f16 accumulators, as the tables have it (docs/reference/hardware.md#evidence).
    Scaling by powers of two follows Micikevicius et al., "Mixed precision training", arXiv:1710.03740, which scales
    the loss; a scale for each tensor and its margin are choices of gemmsim.

    Example:
        >>> print(gs.recipes.fp16_accumulate().fprop)
        e5m10 : hw(hopper, wgmma, e5m10, out=e5m10)
    """
    spec = "fp16 : hw(hopper, wgmma, fp16, out=fp16)"
    margin = _margin("fp16_accumulate", margin)
    return QAffineFormats(fprop=spec, dgrad=spec, wgrad=spec, use_scaling=True, scale_margin=margin)


@takes_spec()
def all_products(spec: SpecLike, grad: str | None = None) -> QAffineFormats:
    """Use one arithmetic for all three products: gradients are cast like the operands of the forward product.

    A spec alone casts the operands of the forward product; its backward products multiply the incoming gradient
    uncast. Here dgrad is ``grad * weight`` in the spec's formats (a, b), and wgrad is ``grad * input`` in (b, a): the
    gradient takes the format of the operand that it replaces. Nothing is scaled, so small gradients may become zero.

    Args:
        spec: the spec of one product, with formats for its operands.
        grad: a format for the gradient in both backward products, in place of these.

    Raises:
        SpecError, FormatError: for an unknown spec or format.

    Example:
        >>> gs.recipes.all_products("e4m3 : fp32", grad="e5m2").wgrad
        GemmSpec.parse('e5m2 * e4m3 : e8m23')
    """
    one = GemmSpec.of(spec)
    back = one.transposed()
    if grad is None:
        return QAffineFormats(fprop=one, dgrad=one, wgrad=back)
    cast = GemmSpec.of(f"{grad} : fp32").a
    return QAffineFormats(fprop=one, dgrad=replace(one, a=cast), wgrad=replace(back, a=cast))
