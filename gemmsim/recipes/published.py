"""Training recipes with the scales, blocks, transforms and roundings that their publications describe.

They are made of scaled casts (``gemmsim.formats.ScaledCast``): every part stands in the text of a product's spec, and
can be taken away or changed there.
"""

from __future__ import annotations

from functools import lru_cache

from ..arithmetic import SpecError
from ..ops.errors import message
from ..ops.product.affine_formats import QAffineFormats
from .presets import mxfp8

__all__ = [
    "deepseek_v3",
    "hopper_fp8_current",
    "hopper_fp8_delayed",
    "mxfp4_hadamard",
    "mxfp8_pretraining",
    "nvfp4_pretraining",
    "torchao_rowwise",
    "torchao_rowwise_gw_hp",
    "torchao_tensorwise",
]

#: FP8 sums of Hopper's register over the whole sum ("fast accumulation"), and promoted to fp32 every 128 terms.
_FAST = "scaled(hw(hopper, wgmma, e4m3), fp32)"
_SPLIT = "scaled(promote(hw(hopper, wgmma, e5m2, e4m3), 128), fp32)"
_SPLIT_E4M3 = "scaled(promote(hw(hopper, wgmma, e4m3), 128), fp32)"


@lru_cache(maxsize=None, typed=True)
def hopper_fp8_current(margin: int = 0) -> QAffineFormats:
    """FP8 on Hopper with current scaling of each tensor: e4m3 forward, e5m2 gradients.

    A tensor is multiplied by ``448 / amax`` (57344 / amax for gradients), a binary32 number that need not be a power
    of two, and rounded with saturation. The forward product sums in wgmma's accumulator of 13 fraction bits; both
    gradients promote it to fp32 every 128 terms. The inverse scales multiply each sum.

    Args:
        margin: the largest magnitude becomes the format's largest number over 2^margin.

    The source does not specify these, so gemmsim chooses: infinities do not count for amax; scales are multiplied
    with each other in binary32, and the sum times that is rounded again.

    Source: NVIDIA Transformer Engine, recipe ``Float8CurrentScaling`` (``Format.HYBRID``, split accumulators in both
    backward products); Micikevicius et al., arXiv:2209.05433.

    Example:
        >>> gs.recipes.hopper_fp8_current().dgrad.a
        parse('e5m2/sat@tensor')
    """
    end = f"/margin({margin})" if margin else ""
    x, g = f"e4m3/sat@tensor{end}", f"e5m2/sat@tensor{end}"
    return QAffineFormats(fprop=f"{x} : {_FAST}", dgrad=f"{g} * {x} : {_SPLIT}", wgrad=f"{g} * {x} : {_SPLIT}")


@lru_cache(maxsize=None, typed=True)
def hopper_fp8_delayed(history: int = 1024, margin: int = 0) -> QAffineFormats:
    """FP8 on Hopper with scales from earlier calls: e4m3 forward, e5m2 gradients.

    As ``hopper_fp8_current``, except for amax: it is the largest of the last ``history`` training calls, without the
    present one, of each layer's input, weight and output gradient. The first call has the scale 1; numbers that have
    grown since saturate. A layer's history is the buffer ``amax_history``.

    Args:
        history: number of calls; 1 is only the last call ("most recent").
        margin: the largest magnitude becomes the format's largest number over 2^margin.

    Raises:
        FormatError: for a history that is not 1 to 65536 calls, and for a margin beyond 64.

    The source does not specify these, so gemmsim chooses: a call without a gradient leaves the gradient's history
    unchanged; an evaluation (``module.training`` False) reads the scales and changes nothing.

    Source: NVIDIA Transformer Engine, recipe ``DelayedScaling`` (``Format.HYBRID``, ``amax_compute_algo="max"``,
    ``margin=0``, ``amax_history_len=1024``).

    Example:
        >>> gs.recipes.hopper_fp8_delayed(16).fprop.a
        parse('e4m3/sat@tensor/delayed(16)')
    """
    end = f"{f'/margin({margin})' if margin else ''}/delayed({history})"
    x, g = f"e4m3/sat@tensor{end}", f"e5m2/sat@tensor{end}"
    return QAffineFormats(fprop=f"{x} : {_FAST}", dgrad=f"{g} * {x} : {_SPLIT}", wgrad=f"{g} * {x} : {_SPLIT}")


@lru_cache(maxsize=None, typed=True)
def deepseek_v3() -> QAffineFormats:
    """FP8 as DeepSeek-V3 was trained: e4m3 everywhere, blocks of 1 x 128 and 128 x 128, promotion after 128 terms.

    Activations and gradients have one binary32 scale for every 128 channels of each token; weights have one for each
    128 x 128. Each product sums 128 products in wgmma's accumulator of 13 fraction bits; a fused multiply-add adds
    that sum times both scales to an fp32 accumulator. The weight's gradient sums over tokens: the activation that the
    forward product quantised along channels is quantised a second time, along tokens.

    The source does not specify these, so gemmsim chooses: the gradient is quantised along tokens from its unquantised
    values. Scales of activations are not rounded to powers of two (the report does so for some layers).

    Source: DeepSeek-V3 technical report, arXiv:2412.19437, 3.3.1 to 3.3.3 and figures 6 and 7; scales amax / 448 as
    in DeepSeek's published kernels (DeepGEMM); the instruction as arXiv:2511.10909 models it.

    Example:
        >>> print(gs.recipes.deepseek_v3().fprop)
        e4m3/sat@1x128/divide * e4m3/sat@128x128/divide : scaled(hw(hopper, wgmma, e4m3))
    """
    x, w = "e4m3/sat@1x128/divide", "e4m3/sat@128x128/divide"
    return QAffineFormats(
        fprop=f"{x} * {w} : {_FAST}", dgrad=f"{x} * {w} : {_FAST}", wgrad=f"{x} * {x}/stored({x}) : {_FAST}"
    )


@lru_cache(maxsize=None, typed=True)
def mxfp8_pretraining() -> QAffineFormats:
    """MXFP8 as published for pretraining: ``mxfp8("e4m3")`` under the name of the publication's recipe.

    The publication keeps embeddings, the last projection and the products inside attention in bf16: use ``rules`` to
    apply the recipe only to the other layers.

    Source: Mishra et al., "Recipes for pre-training LLMs with MXFP8", arXiv:2506.08027.

    Example:
        >>> gs.recipes.mxfp8_pretraining() == gs.recipes.mxfp8("e4m3")
        True
    """
    return mxfp8("e4m3")


@lru_cache(maxsize=None, typed=True)
def nvfp4_pretraining(signs: int = 0) -> QAffineFormats:
    """NVFP4 as published for pretraining: 16 x 16 blocks of weights, stochastic gradients, transforms before wgrad.

    Elements are e2m1 with e4m3 scales and one binary32 scale for the tensor. Weights have one scale for each 16 x 16,
    so the forward product and dgrad multiply the same numbers. Activations and gradients have one for every 16 terms
    along each reduction dimension. Gradients are rounded stochastically, everything else to nearest even. Before
    wgrad both operands are transformed by a Hadamard matrix of 16 terms (tokens) with random signs. Products are
    those of Blackwell's mxf4nvf4 instruction.

    Args:
        signs: seed of the signs, which are the same in all layers and steps.

    Raises:
        SpecError: for signs that are not a seed.

    The source does not specify these, so gemmsim chooses: the number of random bits (16), the order of the matrix
    (Sylvester's), the transform's precision (an exact sum, rounded to binary32). The publication keeps about 15 % of
    the linear layers in bf16, most of them near the end. It also keeps embeddings, the last projection and
    attention's own products. Use ``rules`` to apply the recipe only to the other layers.

    Source: NVIDIA, "Pretraining large language models with NVFP4", arXiv:2509.25149, section 4 and figure 5.

    Example:
        >>> net = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3)))
        >>> net = gs.convert(net, gs.recipes.rules(net, gs.recipes.nvfp4_pretraining(), last=1))
        >>> [gs.emulation.arithmetic_of(net).config.formats(path, "linear") is None for path in "012"]
        [False, False, True]
    """
    _check_signs("nvfp4_pretraining", signs)
    x, w, g, turned = "e2m1/sat@1x16/nvfp4", "e2m1/sat@16x16/nvfp4", "e2m1/sat/sr@1x16/nvfp4", f"/hadamard(16,{signs})"
    instruction = "hw(blackwell, mxf4nvf4, e2m1)"
    return QAffineFormats(
        fprop=f"{x} * {w} : {instruction}",
        dgrad=f"{g} * {w} : {instruction}",
        wgrad=f"{g}{turned} * {x}{turned} : {instruction}",
    )


@lru_cache(maxsize=None, typed=True)
def mxfp4_hadamard(block: int = 64, signs: int = 0) -> QAffineFormats:
    """MXFP4 backward products with Hadamard transforms and stochastic rounding; the forward product in bf16.

    Both operands of dgrad and wgrad are transformed by a Hadamard matrix of ``block`` terms along the reduction
    dimension, with random signs. They are scaled by 3/4 and rounded stochastically to e2m1 with one power of two for
    every 32 values. The sums are multiplied by 16/9, which makes them unbiased.

    Args:
        block: terms of the transform, a power of two from 32 to 256.
        signs: seed of the signs, which are the same in all layers and steps.

    The source does not specify these, so gemmsim chooses: the forward product sums as Blackwell's bf16 instruction
    does; random bits are 16. No layers are kept in bf16.

    Raises:
        SpecError: for another block, and for signs that are not a seed.

    Source: Tseng, Yu and Park, "Training LLMs with MXFP4", arXiv:2502.20586, algorithms 1 to 3.

    Example:
        >>> print(gs.recipes.mxfp4_hadamard(block=128).dgrad)
        e2m1/sr16/sat@1x32/floor/hadamard(128,0)/gain(0.75) : hw(blackwell, mxf4, e2m1)
    """
    if block not in (32, 64, 128, 256) or isinstance(block, bool):
        asked = f"recipes.mxfp4_hadamard: block={block!r}"
        raise SpecError(message(asked, "32, 64, 128 or 256", "Try mxfp4_hadamard(64)."))
    _check_signs("mxfp4_hadamard", signs)
    x = f"e2m1/sat/sr@1x32/floor/gain(0.75)/hadamard({block},{signs})"
    back = f"{x} : hw(blackwell, mxf4, e2m1)"
    return QAffineFormats(fprop="bf16 : hw(blackwell, tcgen05, bf16)", dgrad=back, wgrad=back)


def _check_signs(recipe: str, signs: object) -> None:
    if isinstance(signs, bool) or not isinstance(signs, int) or not 0 <= signs < 2**31:
        asked = f"recipes.{recipe}: signs={signs!r}"
        raise SpecError(message(asked, "an integer from 0 to 2^31 - 1, a seed", f"Try {recipe}(signs=1)."))


@lru_cache(maxsize=None, typed=True)
def torchao_tensorwise() -> QAffineFormats:
    """torchao's float8 training, recipe "tensorwise": a scale for each tensor, e4m3 forward, e5m2 gradients.

    ``scale = max / amax`` with amax at least 1e-12. The forward product uses fast accumulation (Hopper's accumulator
    over the whole sum); both gradients do not (promoted to fp32 every 128 terms).

    Source: torchao.float8, ``Float8LinearConfig()`` and its documentation; the accumulators are those that
    ``torch._scaled_mm`` requests from cuBLAS on Hopper.

    Example:
        >>> gs.recipes.torchao_tensorwise().fprop.a, gs.recipes.torchao_tensorwise().dgrad.a
        (parse('e4m3/sat@tensor/least(1e-12)'), parse('e5m2/sat@tensor/least(1e-12)'))
    """
    x, g = "e4m3/sat@tensor/least(1e-12)", "e5m2/sat@tensor/least(1e-12)"
    return QAffineFormats(fprop=f"{x} : {_FAST}", dgrad=f"{g} * {x} : {_SPLIT}", wgrad=f"{g} * {x} : {_SPLIT}")


@lru_cache(maxsize=None, typed=True)
def torchao_rowwise() -> QAffineFormats:
    """torchao's float8 training, recipe "rowwise": e4m3 with one power of two for each row or column along each sum.

    ``scale = 2^floor(log2(448 / amax))`` with amax at least 1e-12. The forward product uses fast accumulation, both
    gradients do not (since torchao 0.13; before, all did).

    Source: torchao.float8, ``Float8LinearRecipeName.ROWWISE`` and its documentation.

    Example:
        >>> gs.recipes.torchao_rowwise().fprop.a
        parse('e4m3/sat@row/pow2/least(1e-12)')
    """
    x = "e4m3/sat@row/pow2/least(1e-12)"
    return QAffineFormats(fprop=f"{x} : {_FAST}", dgrad=f"{x} : {_SPLIT_E4M3}", wgrad=f"{x} : {_SPLIT_E4M3}")


@lru_cache(maxsize=None, typed=True)
def torchao_rowwise_gw_hp() -> QAffineFormats:
    """torchao's float8 training, recipe "rowwise_with_gw_hp": rowwise, and the weight's gradient in bf16.

    dgrad multiplies the gradient, which is scaled by rows, by the weight with one scale for the tensor, without fast
    accumulation.

    Source: torchao.float8, ``Float8LinearRecipeName.ROWWISE_WITH_GW_HP`` and its documentation.

    Example:
        >>> print(gs.recipes.torchao_rowwise_gw_hp().wgrad)
        e8m7 : hw(hopper, wgmma, e8m7)
    """
    x, w = "e4m3/sat@row/pow2/least(1e-12)", "e4m3/sat@tensor/pow2/least(1e-12)"
    return QAffineFormats(
        fprop=f"{x} : {_FAST}", dgrad=f"{x} * {w} : {_SPLIT_E4M3}", wgrad="bf16 : hw(hopper, wgmma, bf16)"
    )
