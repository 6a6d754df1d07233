"""torchao's names of element types, scale modes and kernels, and its configurations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import torch

__all__ = [
    "DTYPE_FP6_E2M3",
    "DTYPE_FP6_E3M2",
    "SUPPORTED_ELEM_DTYPES",
    "ElemDType",
    "KernelPreference",
    "MXDynamicActivationMXWeightConfig",
    "MXFP8Dim0CastKernelChoice",
    "MXFP8Dim1CastKernelChoice",
    "MXFP8TrainingOpConfig",
    "MXInferenceLinearConfig",
    "MXLinearConfig",
    "QuantizeTensorToMXKwargs",
    "ScaleCalculationMode",
    "format_name",
]

DTYPE_FP6_E2M3 = "fp6_e2m3"
DTYPE_FP6_E3M2 = "fp6_e3m2"
#: Element types: torch's own dtypes, strings where torch has none.
ElemDType: TypeAlias = "torch.dtype | str"
_BASES: dict[ElemDType, str] = {
    torch.float8_e4m3fn: "mxfp8_e4m3",
    torch.float8_e5m2: "mxfp8_e5m2",
    DTYPE_FP6_E2M3: "mxfp6_e2m3",
    DTYPE_FP6_E3M2: "mxfp6_e3m2",
    torch.float4_e2m1fn_x2: "mxfp4",
    "fp4_e2m1": "mxfp4",  # torchao 0.6.1's name
}
SUPPORTED_ELEM_DTYPES: list[ElemDType] = [name for name in _BASES if name != "fp4_e2m1"]


class ScaleCalculationMode(Enum):
    """gemmsim's scale rules of the same names (docs/reference/mx.md)."""

    FLOOR = "floor"
    RCEIL = "rceil"
    CEIL = "ceil"
    EVEN = "even"


class KernelPreference(Enum):
    """Accepted and kept; every product here is computed as torchao's EMULATED one."""

    AUTO = "auto"
    TORCH = "torch"
    EMULATED = "emulated"


class MXFP8Dim0CastKernelChoice(Enum):
    """Accepted; casts give the same bits by any kernel."""

    TRITON = "triton"
    TORCH = "torch"


class MXFP8Dim1CastKernelChoice(Enum):
    """Accepted; casts give the same bits by any kernel."""

    TRITON = "triton"
    CUDA = "cuda"
    TORCH = "torch"
    CUTEDSL = "cutedsl"
    FLYDSL = "flydsl"


def format_name(elem_dtype: ElemDType, block_size: int, mode: ScaleCalculationMode, compat: str = "torchao") -> str:
    """gemmsim's name of the block format.

    Raises:
        AssertionError: for an element type, scale mode or ``compat`` that the system has not.
    """
    if elem_dtype not in _BASES:
        raise AssertionError(f"unsupported elem_dtype {elem_dtype}; allowed: {', '.join(map(str, _BASES))}")
    if not isinstance(mode, ScaleCalculationMode):
        raise AssertionError(f"unsupported scaling calculation mode {mode!r}; allowed: ScaleCalculationMode's members")
    if compat not in ("torchao", "torchao-0.18", "torchao-0.6.1"):
        raise AssertionError(f"compat={compat!r}; allowed: 'torchao', 'torchao-0.18' and 'torchao-0.6.1'")
    if compat == "torchao-0.6.1" and mode is not ScaleCalculationMode.FLOOR:
        raise AssertionError(f"torchao-0.6.1 has no scaling mode {mode}; allowed: FLOOR")
    return f"{_BASES[elem_dtype]}/b{block_size}/{mode.value}/{compat}"


@dataclass
class QuantizeTensorToMXKwargs:
    """How a plain left operand of a product is encoded (dynamic activation quantisation)."""

    elem_dtype: ElemDType = torch.float8_e4m3fn
    block_size: int = 32
    scaling_mode: ScaleCalculationMode = ScaleCalculationMode.FLOOR
    kernel_preference: KernelPreference = KernelPreference.EMULATED
    is_swizzled_scales: bool = False


@dataclass
class MXDynamicActivationMXWeightConfig:
    """For ``quantize_``: weights kept in MX, activations encoded at each call.

    Raises:
        AssertionError: for different element types of the two, or unknown ones.
    """

    block_size: int = 32
    activation_dtype: ElemDType = torch.float8_e4m3fn
    weight_dtype: ElemDType = torch.float8_e4m3fn
    kernel_preference: KernelPreference = KernelPreference.AUTO
    scaling_mode: ScaleCalculationMode = ScaleCalculationMode.RCEIL

    def __post_init__(self) -> None:
        if self.activation_dtype != self.weight_dtype:
            raise AssertionError(
                f"activation_dtype {self.activation_dtype} and weight_dtype {self.weight_dtype}; allowed: equal ones"
            )
        if self.weight_dtype not in SUPPORTED_ELEM_DTYPES:
            raise AssertionError(f"elem_dtype must be one of {SUPPORTED_ELEM_DTYPES}, got {self.weight_dtype}")


@dataclass
class MXLinearConfig:
    """torchao of 2025, for ``quantize_``: linear layers for training, an element type for each operand.

    The kernel choices change no bit.

    Raises:
        AssertionError: for element types that the system has not.
    """

    block_size: int = 32
    elem_dtype: ElemDType = torch.float8_e4m3fn
    elem_dtype_weight_override: ElemDType | None = None
    elem_dtype_grad_output_override: ElemDType | None = None
    kernel_preference: KernelPreference = KernelPreference.EMULATED
    mxfp8_dim0_cast_kernel_choice: MXFP8Dim0CastKernelChoice = MXFP8Dim0CastKernelChoice.TORCH
    mxfp8_dim1_cast_kernel_choice: MXFP8Dim1CastKernelChoice = MXFP8Dim1CastKernelChoice.TORCH
    scale_calculation_mode: ScaleCalculationMode = ScaleCalculationMode.FLOOR

    def __post_init__(self) -> None:
        self.formats()

    def formats(self) -> tuple[str, str, str]:
        """Names of the block formats of input, weight and gradient."""
        weight = self.elem_dtype_weight_override or self.elem_dtype
        grad = self.elem_dtype_grad_output_override or self.elem_dtype
        one, two, three = (
            format_name(kind, self.block_size, self.scale_calculation_mode) for kind in (self.elem_dtype, weight, grad)
        )
        return one, two, three


@dataclass
class MXInferenceLinearConfig:
    """torchao of 2025, for ``quantize_``: linear layers exchanged for ``MXInferenceLinear``, weights alone in MX.

    Raises:
        AssertionError: for element types that the system has not.
    """

    block_size: int = 32
    elem_dtype: ElemDType = torch.float8_e4m3fn

    def __post_init__(self) -> None:
        format_name(self.elem_dtype, self.block_size, ScaleCalculationMode.FLOOR)


#: Fields that a recipe of ``MXFP8TrainingOpConfig`` sets.
_RECIPES: dict[str, dict[str, Any]] = {
    "mxfp8_rceil": {},
    "mxfp8_rceil_wgrad_with_hp": {"wgrad_with_hp": True},
    "mxfp8_emulated_rceil": {"kernel_preference": KernelPreference.EMULATED},
}


@dataclass
class MXFP8TrainingOpConfig:
    """For ``quantize_``: linear layers exchanged for ``MXFP8Linear``."""

    kernel_preference: KernelPreference = KernelPreference.AUTO
    scale_calculation_mode: ScaleCalculationMode = ScaleCalculationMode.RCEIL
    wgrad_with_hp: bool = False

    @classmethod
    def from_recipe(cls, recipe: Any) -> MXFP8TrainingOpConfig:
        """The configuration of a recipe, given by name or as an enumeration's member.

        Raises:
            ValueError: for an unknown recipe.
        """
        name = getattr(recipe, "value", recipe)
        if name not in _RECIPES:
            raise ValueError(f"recipe {name!r}; allowed: {', '.join(_RECIPES)}.\n  Give one of these.")
        return cls(**_RECIPES[name])
