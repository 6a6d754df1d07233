"""``torchao.float8.config``: how a linear layer's operands become float8, and the recipes by name."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch

from ..errors import ElementError, message, shown

__all__ = [
    "CastConfig",
    "Float8GemmConfig",
    "Float8LinearConfig",
    "Float8LinearRecipeName",
    "Float8TypeConfig",
    "ScalingGranularity",
    "ScalingType",
    "e4m3_dtype",
    "e5m2_dtype",
]

#: The float8 types of operands and of gradients, on every device.
e4m3_dtype = torch.float8_e4m3fn
e5m2_dtype = torch.float8_e5m2

_LOG = logging.getLogger("gemmsim")


@dataclass
class Float8TypeConfig:
    """The float8 types of operands and of gradients, on every device (torchao: others on AMD's MI300)."""

    e4m3_dtype: torch.dtype = e4m3_dtype
    e5m2_dtype: torch.dtype = e5m2_dtype


class ScalingType(Enum):
    """Whether an operand is scaled by its current values and cast, or left as it is.

    Example:
        >>> from gemmsim.compat.torchao.float8 import CastConfig, ScalingType
        >>> CastConfig(scaling_type=ScalingType.DISABLED).scaling_type
        <ScalingType.DISABLED: 'disabled'>
    """

    DYNAMIC = "dynamic"
    DISABLED = "disabled"

    def short_str(self) -> str:
        """Three letters for a layer's text."""
        return "dyn" if self is ScalingType.DYNAMIC else "dis"


class ScalingGranularity(Enum):
    """Which elements share a scale: the whole tensor, or each row or column along the sum.

    Example:
        >>> from gemmsim.compat.torchao.float8 import Float8LinearConfig, ScalingGranularity
        >>> Float8LinearConfig().cast_config_input.scaling_granularity is ScalingGranularity.TENSORWISE
        True
    """

    TENSORWISE = "tensorwise"
    AXISWISE = "axiswise"

    def short_str(self) -> str:
        """Three letters for a layer's text."""
        return "ten" if self is ScalingGranularity.TENSORWISE else "axs"


@dataclass(frozen=True)
class CastConfig:
    """How one operand becomes float8.

    Args:
        scaling_type: DYNAMIC, or DISABLED for an operand that stays as it is.
        scaling_granularity: which elements share a scale.
        target_dtype: a float8 dtype. The ``Float8LinearConfig`` that takes this object replaces None by e4m3, or by
            e5m2 for gradients. An object that serves several operands keeps the dtype that it got first.

    Raises:
        ElementError: for scales of rows without scaling, and other dtypes or modes; a FormatError and an
            AssertionError.

    Example:
        >>> from gemmsim.compat.torchao.float8 import CastConfig, Float8LinearConfig
        >>> cast = CastConfig(target_dtype=torch.float8_e5m2)
        >>> Float8LinearConfig(cast_config_input=cast).cast_config_input.target_dtype
        torch.float8_e5m2
    """

    scaling_type: ScalingType = ScalingType.DYNAMIC
    scaling_granularity: ScalingGranularity = ScalingGranularity.TENSORWISE
    target_dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        _check_member("CastConfig", "scaling_type", self.scaling_type, ScalingType)
        _check_member("CastConfig", "scaling_granularity", self.scaling_granularity, ScalingGranularity)
        by_rows = self.scaling_granularity is ScalingGranularity.AXISWISE
        if by_rows and self.scaling_type is not ScalingType.DYNAMIC:
            asked = "CastConfig: scaling_granularity=AXISWISE with scaling_type=DISABLED"
            raise ElementError(message(asked, "AXISWISE with DYNAMIC", "Leave the granularity out."))
        dtype = self.target_dtype
        if dtype is None or (isinstance(dtype, torch.dtype) and dtype.is_floating_point and dtype.itemsize == 1):
            return
        asked = f"CastConfig: target_dtype={shown(dtype)}"
        raise ElementError(message(asked, "a floating-point dtype of 8 bits", "Try torch.float8_e4m3fn."))

    def short_str(self) -> str:
        """Scaling, granularity and dtype for a layer's text."""
        name = {e4m3_dtype: "e4m3", e5m2_dtype: "e5m2"}.get(self.target_dtype or e4m3_dtype, str(self.target_dtype))
        return f"{self.scaling_type.short_str()}_{self.scaling_granularity.short_str()}_{name}"


@dataclass(frozen=True)
class Float8GemmConfig:
    """Options of one product.

    With ``use_fast_accum`` the sum is one chain of instructions. Otherwise every 128 terms are a chain, and the chains
    are added in float32. Emulated products ignore it.

    Example:
        >>> from gemmsim.compat.torchao.float8 import Float8GemmConfig, Float8LinearConfig
        >>> Float8LinearConfig(gemm_config_output=Float8GemmConfig(use_fast_accum=False)).gemm_config_output
        Float8GemmConfig(use_fast_accum=False)
    """

    use_fast_accum: bool = False


class Float8LinearRecipeName(Enum):
    """Recipes that ``Float8LinearConfig.from_recipe_name`` knows.

    TENSORWISE: a scale for each tensor, gradients in e5m2. ROWWISE: powers of two for rows along each sum, all in e4m3.
    ROWWISE_WITH_GW_HP: the same for the output, the gradient of the input with one scale for the weight, and the
    gradient of the weight without casts.

    Example:
        >>> from gemmsim.compat.torchao.float8 import Float8LinearConfig, Float8LinearRecipeName
        >>> config = Float8LinearConfig.from_recipe_name(Float8LinearRecipeName.ROWWISE)
        >>> config.cast_config_input.scaling_granularity, config.round_scales_to_power_of_2
        (<ScalingGranularity.AXISWISE: 'axiswise'>, True)
    """

    TENSORWISE = "tensorwise"
    ROWWISE = "rowwise"
    ROWWISE_WITH_GW_HP = "rowwise_with_gw_hp"


@dataclass(frozen=True)
class Float8LinearConfig:
    """How a ``Float8Linear`` computes its three products.

    Args:
        cast_config_input, cast_config_weight, cast_config_grad_output: casts of the operands.
        cast_config_input_for_grad_weight, cast_config_weight_for_grad_input, cast_config_grad_output_for_grad_weight:
            the same in the backward product named; None: as above.
        gemm_config_output, gemm_config_grad_input, gemm_config_grad_weight: accumulation of each product.
        enable_fsdp_float8_all_gather, pad_inner_dim, force_recompute_fp8_weight_in_bwd: kept; they change no bits here.
        emulate: whether products are PyTorch's own of the decoded operands, in float32; else Hopper's are emulated.
        round_scales_to_power_of_2: whether scales are powers of two, rounded down.

    Raises:
        ElementError: where a product has one operand in float8 and the other not, an operand has two dtypes, or weights
            have scales for rows and are gathered in float8; a FormatError and an AssertionError.

    Example:
        >>> from gemmsim.compat.torchao.float8 import Float8LinearConfig
        >>> Float8LinearConfig().cast_config_grad_output.target_dtype
        torch.float8_e5m2
    """

    cast_config_input: CastConfig = field(default_factory=CastConfig)
    cast_config_input_for_grad_weight: CastConfig | None = None
    cast_config_weight: CastConfig = field(default_factory=CastConfig)
    cast_config_weight_for_grad_input: CastConfig | None = None
    cast_config_grad_output: CastConfig = field(default_factory=CastConfig)
    cast_config_grad_output_for_grad_weight: CastConfig | None = None
    gemm_config_output: Float8GemmConfig = Float8GemmConfig(use_fast_accum=True)  # frozen
    gemm_config_grad_input: Float8GemmConfig = Float8GemmConfig()
    gemm_config_grad_weight: Float8GemmConfig = Float8GemmConfig()
    enable_fsdp_float8_all_gather: bool = False
    pad_inner_dim: bool = False
    emulate: bool = False
    force_recompute_fp8_weight_in_bwd: bool = False
    round_scales_to_power_of_2: bool = False

    def __post_init__(self) -> None:
        for name, later in _LATER.items():
            if getattr(self, later) is None:
                object.__setattr__(self, later, getattr(self, name))
            for each in (name, later):
                _check_member("Float8LinearConfig", each, getattr(self, each), CastConfig)
        for name in ("gemm_config_output", "gemm_config_grad_input", "gemm_config_grad_weight"):
            _check_member("Float8LinearConfig", name, getattr(self, name), Float8GemmConfig)
        by_rows = self.cast_config_weight.scaling_granularity is not ScalingGranularity.TENSORWISE
        if by_rows and self.enable_fsdp_float8_all_gather:
            asked = "Float8LinearConfig: enable_fsdp_float8_all_gather with weights scaled by rows"
            raise ElementError(message(asked, "weights under one scale (TENSORWISE)", "Leave it out."))
        self._check_products()
        for name, later in _LATER.items():
            self._set_dtypes(name, later)
        if self.force_recompute_fp8_weight_in_bwd:
            _LOG.warning("Float8LinearConfig: force_recompute_fp8_weight_in_bwd is deprecated and has no effect")

    def _check_products(self) -> None:
        for product, left, right in _PRODUCTS:
            kinds = [getattr(self, name).scaling_type for name in (left, right)]
            if kinds[0] is not kinds[1]:
                asked = f"Float8LinearConfig: {left} {kinds[0].name} with {right} {kinds[1].name} in {product}"
                raise ElementError(message(asked, "both operands of a product in float8, or neither", "Change one."))

    def _set_dtypes(self, name: str, later: str) -> None:
        default = e5m2_dtype if name == "cast_config_grad_output" else e4m3_dtype
        casts = [getattr(self, name), getattr(self, later)]
        for cast in casts:
            if cast.target_dtype is None:
                object.__setattr__(cast, "target_dtype", default)
        if casts[0].target_dtype != casts[1].target_dtype:
            asked = f"Float8LinearConfig: {name} in {casts[0].target_dtype}, {later} in {casts[1].target_dtype}"
            raise ElementError(message(asked, "one dtype for both products of an operand", "Change one of them."))

    @staticmethod
    def from_recipe_name(recipe_name: Float8LinearRecipeName | str) -> Float8LinearConfig:
        """The configuration of a recipe, by its name or member.

        Raises:
            ElementError: for another name; a FormatError and an AssertionError.

        Example:
            >>> from gemmsim.compat.torchao.float8 import Float8LinearConfig
            >>> Float8LinearConfig.from_recipe_name("rowwise").round_scales_to_power_of_2
            True
        """
        recipe = recipe_of(recipe_name)
        if recipe is Float8LinearRecipeName.TENSORWISE:
            return Float8LinearConfig()
        rows = ScalingGranularity.AXISWISE
        grad = CastConfig(scaling_granularity=rows, target_dtype=e4m3_dtype)
        operands: dict[str, Any] = {
            "cast_config_input": CastConfig(scaling_granularity=rows, target_dtype=e4m3_dtype),
            "cast_config_weight": CastConfig(scaling_granularity=rows, target_dtype=e4m3_dtype),
            "cast_config_grad_output": grad,
            "round_scales_to_power_of_2": True,
        }
        if recipe is Float8LinearRecipeName.ROWWISE_WITH_GW_HP:
            operands["cast_config_weight_for_grad_input"] = CastConfig()
            for name in ("cast_config_input_for_grad_weight", "cast_config_grad_output_for_grad_weight"):
                operands[name] = CastConfig(ScalingType.DISABLED, target_dtype=e4m3_dtype)
        return Float8LinearConfig(**operands)


#: Operand -> the same one in the other product that it is part of.
_LATER = {
    "cast_config_input": "cast_config_input_for_grad_weight",
    "cast_config_weight": "cast_config_weight_for_grad_input",
    "cast_config_grad_output": "cast_config_grad_output_for_grad_weight",
}
#: Product, and its operands.
_PRODUCTS = (
    ("output", "cast_config_input", "cast_config_weight"),
    ("grad_input", "cast_config_grad_output", "cast_config_weight_for_grad_input"),
    ("grad_weight", "cast_config_input_for_grad_weight", "cast_config_grad_output_for_grad_weight"),
)


def recipe_of(name: object) -> Float8LinearRecipeName:
    """The recipe of this name; ``ElementError`` for none."""
    if isinstance(name, Float8LinearRecipeName):
        return name
    known = [recipe.value for recipe in Float8LinearRecipeName]
    if isinstance(name, str) and name in known:
        return Float8LinearRecipeName(name)
    raise ElementError(message(f"float8 recipe {shown(name)}", ", ".join(known), f"Try '{_nearest(name, known)}'."))


def _nearest(name: object, known: list[str]) -> str:
    from difflib import get_close_matches  # which only this message needs

    return next(iter(get_close_matches(str(name)[:80], known, 1)), known[1])


def _check_member(owner: str, name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise ElementError(message(f"{owner}: {name}={shown(value)}", f"a {kind.__name__}", f"Make a {kind.__name__}."))
