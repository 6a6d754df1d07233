"""torchao's names of element types, scale modes and kernels, and its configurations."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import torch

from .errors import ElementError, message

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
    "MXFP8TrainingRecipe",
    "MXFPInferenceConfig",
    "MXGemmKernelChoice",
    "MXInferenceLinearConfig",
    "MXLinearConfig",
    "MXLinearRecipeName",
    "QuantizeTensorKwargs",
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
    """Rules for the scale of a block, which gemmsim has under the same names (docs/reference/mx.md).

    Example:
        >>> from gemmsim.compat import torchao
        >>> x, modes = torch.tensor([[500.0, 1.0]]), torchao.ScaleCalculationMode
        >>> [torchao.to_mx(x, torch.float8_e4m3fn, 2, mode)[0].item() for mode in (modes.FLOOR, modes.RCEIL)]
        [1.0, 2.0]
    """

    FLOOR = "floor"
    RCEIL = "rceil"
    CEIL = "ceil"
    EVEN = "even"


class KernelPreference(str, Enum):
    """Accepted and stored. gemmsim computes every product as torchao's EMULATED one.

    Example:
        >>> from gemmsim.compat import torchao
        >>> config = torchao.MXDynamicActivationMXWeightConfig(kernel_preference=torchao.KernelPreference.TORCH)
        >>> config.kernel_preference.value
        'torch'
    """

    AUTO = "auto"
    TORCH = "torch"
    MSLK = "mslk"
    EMULATED = "emulated"


class MXGemmKernelChoice(Enum):
    """The name that torchao of 2025 has for ``KernelPreference``.

    Example:
        >>> from gemmsim.compat.torchao.prototype import mx_formats
        >>> config = mx_formats.MXInferenceLinearConfig(gemm_kernel_choice=mx_formats.MXGemmKernelChoice.CUBLAS)
        >>> config.gemm_kernel_choice.value
        'cublas'
    """

    EMULATED = "emulated"
    CUTLASS = "cutlass"
    CUBLAS = "cublas"


class MXFP8Dim0CastKernelChoice(Enum):
    """Accepted and stored. Casts give the same bits with any kernel.

    Example:
        >>> from gemmsim.compat import torchao
        >>> [choice.value for choice in torchao.MXFP8Dim0CastKernelChoice]
        ['triton', 'torch']
    """

    TRITON = "triton"
    TORCH = "torch"


class MXFP8Dim1CastKernelChoice(Enum):
    """Accepted and stored. Casts give the same bits with any kernel.

    Example:
        >>> from gemmsim.compat import torchao
        >>> config = torchao.MXLinearConfig.from_recipe_name("mxfp8_cublas")
        >>> config.mxfp8_dim1_cast_kernel_choice is torchao.MXFP8Dim1CastKernelChoice.CUDA
        True
    """

    TRITON = "triton"
    CUDA = "cuda"
    TORCH = "torch"
    CUTEDSL = "cutedsl"
    FLYDSL = "flydsl"


def format_name(elem_dtype: ElemDType, block_size: int, mode: ScaleCalculationMode, compat: str = "torchao") -> str:
    """gemmsim's name of the block format.

    Raises:
        ElementError: for an element type, scale mode or ``compat`` that torchao does not have.
    """
    if elem_dtype not in _BASES:
        asked = f"unsupported elem_dtype {elem_dtype!r}"
        raise ElementError(message(asked, ", ".join(map(str, _BASES)), "Try torch.float8_e4m3fn."))
    if not isinstance(mode, ScaleCalculationMode):
        asked = f"unsupported scaling calculation mode {mode!r}"
        raise ElementError(message(asked, "ScaleCalculationMode's members", "Try ScaleCalculationMode.FLOOR."))
    if compat not in ("torchao", "torchao-0.18", "torchao-0.6.1"):
        allowed = "'torchao', 'torchao-0.18' and 'torchao-0.6.1'"
        raise ElementError(message(f"compat={compat!r}", allowed, "Leave it out for the main branch."))
    if compat == "torchao-0.6.1" and mode is not ScaleCalculationMode.FLOOR:
        raise ElementError(message(f"torchao-0.6.1 has no scaling mode {mode}", "FLOOR", "Leave the mode out."))
    return f"{_BASES[elem_dtype]}/b{block_size}/{mode.value}/{compat}"


class QuantizeTensorKwargs(ABC):  # noqa: B024 - as torchao's, it says what belongs together
    """The base class of the classes that say how an operand is encoded.

    Example:
        >>> from gemmsim.compat import torchao
        >>> from gemmsim.compat.torchao.quantization.quantize_.common import QuantizeTensorKwargs
        >>> isinstance(torchao.QuantizeTensorToMXKwargs(), QuantizeTensorKwargs)
        True
    """


@dataclass
class QuantizeTensorToMXKwargs(QuantizeTensorKwargs):
    """How a plain left operand of a product is encoded (dynamic activation quantisation).

    Example:
        >>> from gemmsim.compat import torchao
        >>> kwargs = torchao.QuantizeTensorToMXKwargs(elem_dtype=torchao.DTYPE_FP6_E2M3)
        >>> kwargs.elem_dtype, kwargs.block_size
        ('fp6_e2m3', 32)
    """

    elem_dtype: ElemDType = torch.float8_e4m3fn
    block_size: int = 32
    scaling_mode: ScaleCalculationMode = ScaleCalculationMode.FLOOR
    kernel_preference: KernelPreference = KernelPreference.EMULATED
    is_swizzled_scales: bool = False


@dataclass
class MXDynamicActivationMXWeightConfig:
    """For ``quantize_``: weights are stored in MX, and activations are encoded at each call.

    Raises:
        AssertionError: for different element types of the two, or unknown ones.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(32, 16, dtype=torch.bfloat16))
        >>> gs.compat.torchao.quantize_(model, gs.compat.torchao.MXDynamicActivationMXWeightConfig())
        >>> type(model[0].weight.data).__name__
        'MXTensor'
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


class MXLinearRecipeName(Enum):
    """The recipes of torchao of 2025 for ``MXLinearConfig.from_recipe_name``.

    Example:
        >>> from gemmsim.compat import torchao
        >>> from gemmsim.compat.torchao.prototype.mx_formats import MXLinearRecipeName
        >>> torchao.MXLinearConfig.from_recipe_name(MXLinearRecipeName.MXFP8_CUBLAS_RCEIL).scale_calculation_mode.value
        'rceil'
    """

    MXFP8_EMULATED = "mxfp8_emulated"
    MXFP8_CUBLAS = "mxfp8_cublas"
    MXFP8_CUBLAS_RCEIL = "mxfp8_cublas_rceil"
    MXFP4_EMULATED = "mxfp4_emulated"
    MXFP4_CUTLASS = "mxfp4_cutlass"


@dataclass
class MXLinearConfig:
    """For ``quantize_``, in torchao of 2025: linear layers for training, with an element type for each operand.

    The kernel choices change no bits; ``gemm_kernel_choice`` and ``mxfp8_cast_kernel_choice`` are those of 0.13.

    Raises:
        AssertionError: for element types that torchao does not have.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao.MXLinearConfig(elem_dtype_grad_output_override=torch.float8_e5m2).kinds()
        (torch.float8_e4m3fn, torch.float8_e4m3fn, torch.float8_e5m2)
    """

    block_size: int = 32
    elem_dtype: ElemDType = torch.float8_e4m3fn
    elem_dtype_weight_override: ElemDType | None = None
    elem_dtype_grad_output_override: ElemDType | None = None
    kernel_preference: KernelPreference = KernelPreference.EMULATED
    mxfp8_dim0_cast_kernel_choice: MXFP8Dim0CastKernelChoice = MXFP8Dim0CastKernelChoice.TORCH
    mxfp8_dim1_cast_kernel_choice: MXFP8Dim1CastKernelChoice = MXFP8Dim1CastKernelChoice.TORCH
    scale_calculation_mode: ScaleCalculationMode = ScaleCalculationMode.FLOOR
    gemm_kernel_choice: MXGemmKernelChoice | None = None
    mxfp8_cast_kernel_choice: MXFP8Dim1CastKernelChoice | None = None

    def __post_init__(self) -> None:
        for kind in self.kinds():
            format_name(kind, self.block_size, self.scale_calculation_mode)

    def kinds(self) -> tuple[ElemDType, ElemDType, ElemDType]:
        """Element types of input, weight and gradient."""
        weight = self.elem_dtype_weight_override or self.elem_dtype
        return self.elem_dtype, weight, self.elem_dtype_grad_output_override or self.elem_dtype

    @staticmethod
    def from_recipe_name(recipe_name: MXLinearRecipeName | str) -> MXLinearConfig:
        """The configuration of a recipe, given as a member or by its value.

        Raises:
            AssertionError: for an unknown recipe.
        """
        names = [recipe.value for recipe in MXLinearRecipeName]
        name = getattr(recipe_name, "value", recipe_name)
        if name not in names:
            raise AssertionError(f"recipe_name {recipe_name!r}; allowed: {', '.join(names)}")
        emulated = name.endswith("emulated")
        fp8 = name.startswith("mxfp8")
        return MXLinearConfig(
            elem_dtype=torch.float8_e4m3fn if fp8 else torch.float4_e2m1fn_x2,
            kernel_preference=KernelPreference.EMULATED if emulated else KernelPreference.AUTO,
            mxfp8_dim1_cast_kernel_choice=(
                MXFP8Dim1CastKernelChoice.CUDA if fp8 and not emulated else MXFP8Dim1CastKernelChoice.TORCH
            ),
            scale_calculation_mode=(
                ScaleCalculationMode.RCEIL if name.endswith("rceil") else ScaleCalculationMode.FLOOR
            ),
        )


@dataclass
class MXInferenceLinearConfig:
    """For ``quantize_``, in torchao of 2025: linear layers become ``MXInferenceLinear``, which have only weights in MX.

    Raises:
        AssertionError: for element types that torchao does not have.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(32, 16))
        >>> gs.compat.torchao.quantize_(model, gs.compat.torchao.MXInferenceLinearConfig())
        >>> type(model[0]).__name__
        'MXInferenceLinear'
    """

    block_size: int = 32
    elem_dtype: ElemDType = torch.float8_e4m3fn
    gemm_kernel_choice: MXGemmKernelChoice = MXGemmKernelChoice.EMULATED

    def __post_init__(self) -> None:
        format_name(self.elem_dtype, self.block_size, ScaleCalculationMode.FLOOR)


@dataclass
class MXFPInferenceConfig:
    """torchao 0.13's ``MXDynamicActivationMXWeightConfig``, which computes scales by FLOOR.

    Raises:
        AssertionError: for different element types of the two, or unknown ones.

    Example:
        >>> from gemmsim.compat.torchao.prototype.mx_formats import MXFPInferenceConfig
        >>> MXFPInferenceConfig().newer().scaling_mode
        <ScaleCalculationMode.FLOOR: 'floor'>
    """

    block_size: int = 32
    activation_dtype: ElemDType = torch.float8_e4m3fn
    weight_dtype: ElemDType = torch.float8_e4m3fn
    gemm_kernel_choice: MXGemmKernelChoice = MXGemmKernelChoice.CUBLAS

    def __post_init__(self) -> None:
        self.newer()

    def newer(self) -> MXDynamicActivationMXWeightConfig:
        """The same configuration in the form of later versions."""
        return MXDynamicActivationMXWeightConfig(
            self.block_size, self.activation_dtype, self.weight_dtype, scaling_mode=ScaleCalculationMode.FLOOR
        )


class MXFP8TrainingRecipe(Enum):
    """Recipes for ``MXFP8TrainingOpConfig.from_recipe``.

    Example:
        >>> from gemmsim.compat import torchao
        >>> from gemmsim.compat.torchao.prototype.moe_training.config import MXFP8TrainingRecipe
        >>> torchao.MXFP8TrainingOpConfig.from_recipe(MXFP8TrainingRecipe.MXFP8_RCEIL_WGRAD_WITH_HP).wgrad_with_hp
        True
    """

    MXFP8_RCEIL = "mxfp8_rceil"
    MXFP8_RCEIL_WGRAD_WITH_HP = "mxfp8_rceil_wgrad_with_hp"
    MXFP8_EMULATED_RCEIL = "mxfp8_emulated_rceil"


#: Fields that a recipe of ``MXFP8TrainingOpConfig`` sets.
_RECIPES: dict[str, dict[str, Any]] = {
    "mxfp8_rceil": {},
    "mxfp8_rceil_wgrad_with_hp": {"wgrad_with_hp": True},
    "mxfp8_emulated_rceil": {"kernel_preference": KernelPreference.EMULATED},
}


@dataclass
class MXFP8TrainingOpConfig:
    """For ``quantize_``: linear layers become ``MXFP8Linear``.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(32, 32))
        >>> gs.compat.torchao.quantize_(model, gs.compat.torchao.MXFP8TrainingOpConfig.from_recipe("mxfp8_rceil"))
        >>> type(model[0]).__name__
        'MXFP8Linear'
    """

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
