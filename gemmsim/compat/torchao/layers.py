"""torchao's linear layers and what puts them into models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

import gemmsim as gs
from gemmsim.ops.tracing import assume_constant_result

from .kinds import (
    ElemDType,
    KernelPreference,
    MXDynamicActivationMXWeightConfig,
    MXFP8Dim0CastKernelChoice,
    MXFP8Dim1CastKernelChoice,
    MXFP8TrainingOpConfig,
    MXInferenceLinearConfig,
    MXLinearConfig,
    QuantizeTensorToMXKwargs,
    ScaleCalculationMode,
    format_name,
)
from .nvfp4 import (
    NVFP4DynamicActivationNVFP4WeightConfig,
    NVFP4ObservedLinear,
    NVFP4Tensor,
    NVFP4WeightOnlyConfig,
    QuantizationStep,
    QuantizeTensorToNVFP4Kwargs,
    per_tensor_amax_to_scale,
)
from .tensor import MXTensor, NoopFwToMXBw

__all__ = [
    "MXFP8Linear",
    "MXInferenceLinear",
    "MXLinear",
    "mx_mm",
    "quantize_",
    "swap_linear_with_mx_inference_linear",
    "swap_linear_with_mx_linear",
]

FilterFn = Callable[[nn.Module, str], bool]


class MXFP8Linear(gs.mx.MXLinear):
    """``gemmsim.mx.MXLinear`` in e4m3 with PyTorch's own products, under torchao's arguments."""

    def __init__(
        self,
        *args: Any,
        kernel_preference: KernelPreference = KernelPreference.AUTO,
        scale_calculation_mode: ScaleCalculationMode = ScaleCalculationMode.RCEIL,
        wgrad_with_hp: bool = False,
        **kwargs: Any,
    ) -> None:
        name = format_name(torch.float8_e4m3fn, 32, scale_calculation_mode)
        kwargs.setdefault("config", gs.mx.MXLinearConfig(name, accumulator=None, wgrad_with_hp=wgrad_with_hp))
        super().__init__(*args, **kwargs)
        self.kernel_preference, self.scale_calculation_mode = kernel_preference, scale_calculation_mode
        self.wgrad_with_hp = wgrad_with_hp


@assume_constant_result
def _mx_mm_config(
    kinds: tuple[ElemDType, ElemDType, ElemDType], block_size: int, mode: ScaleCalculationMode, hp: bool
) -> gs.mx.MXLinearConfig:
    """What ``mx_mm`` computes; a constant of compiled code, whose tracer parses nothing."""
    names = [format_name(kind, block_size, mode) for kind in kinds]
    return gs.mx.MXLinearConfig(names[0], names[1], names[2], accumulator=None, wgrad_with_hp=hp)


class mx_mm:
    """torchao's differentiable product of its MX layers: ``mx_mm.apply(input, weight, ...)``."""

    @staticmethod
    def apply(
        input_hp: Tensor,
        weight_hp: Tensor,
        in_elem_dtype: ElemDType,
        w_elem_dtype: ElemDType,
        grad_elem_dtype: ElemDType,
        block_size: int,
        kernel_preference: KernelPreference = KernelPreference.EMULATED,
        mxfp8_dim0_cast_kernel_choice: MXFP8Dim0CastKernelChoice = MXFP8Dim0CastKernelChoice.TORCH,
        mxfp8_dim1_cast_kernel_choice: MXFP8Dim1CastKernelChoice = MXFP8Dim1CastKernelChoice.TORCH,
        scale_calculation_mode: ScaleCalculationMode = ScaleCalculationMode.FLOOR,
        wgrad_with_hp: bool = False,
    ) -> Tensor:
        """``input_hp @ weight_hp.T`` (..., out) with three products of MX operands, each encoded along its own sum.

        ``out = Q(x; K) Q(W; K).T``, ``dx = Q(g; N) Q(W.T; N).T``, ``dW = Q(g.T; M) Q(x.T; M).T`` or, with
        ``wgrad_with_hp``, ``g.T @ x``; PyTorch's own products of the decoded operands. Kernel choices change no bit.

        Raises:
            AssertionError: for element types and scale modes that the system has not.
            ShapeError: for sizes that do not fit.
        """
        kinds = (in_elem_dtype, w_elem_dtype, grad_elem_dtype)
        config = _mx_mm_config(kinds, block_size, scale_calculation_mode, wgrad_with_hp)
        rows = input_hp.reshape(-1, input_hp.shape[-1])
        return gs.mx.trained_matmul(rows, weight_hp.t(), config).reshape(*input_hp.shape[:-1], weight_hp.shape[0])


class MXLinear(nn.Linear):
    """torchao 0.6.1's training layer: x, W and the output's gradient in MX, each along its last dimension.

    The backward products use the same x and W, whose blocks then lie across the sum: ``gemmsim.mx.BlockDimWarning``.
    """

    elem_dtype: ElemDType
    block_size: int

    @classmethod
    def from_float(cls, mod: nn.Linear, elem_dtype: ElemDType, block_size: int) -> MXLinear:
        """``mod`` itself, of this class from now on."""
        mod.__class__ = cls
        assert isinstance(mod, MXLinear)
        mod.elem_dtype, mod.block_size = elem_dtype, block_size
        return mod

    def forward(self, x: Tensor) -> Tensor:
        """``F.linear`` of x and the weight in MX."""
        kind = self.elem_dtype, self.block_size
        out = nn.functional.linear(MXTensor.to_mx(x, *kind), MXTensor.to_mx(self.weight, *kind), self.bias)
        result: Tensor = NoopFwToMXBw.apply(out, *kind)
        return result

    def extra_repr(self) -> str:
        """Sizes, element type and block size."""
        return f"{super().extra_repr()}, elem_dtype={self.elem_dtype}, block_size={self.block_size}"


class MXInferenceLinear(nn.Linear):
    """torchao 0.6.1's inference layer: the weight in MX, decoded for each product."""

    weight_mx: MXTensor

    @classmethod
    @torch.no_grad()
    def from_float(cls, mod: nn.Linear, elem_dtype: ElemDType, block_size: int) -> MXInferenceLinear:
        """A layer with ``mod``'s weight encoded and its own bias."""
        with torch.device("meta"):
            made = cls(mod.in_features, mod.out_features, bias=False)
        made._parameters.pop("weight")
        # a buffer, so that state dicts and .to(device) have it
        made.register_buffer("weight_mx", MXTensor.to_mx(mod.weight.detach(), elem_dtype, block_size))
        made.bias = mod.bias
        return made.train(mod.training)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """``F.linear`` of x and the decoded weight."""
        return nn.functional.linear(x, self.weight_mx.to_dtype(x.dtype), self.bias)

    def extra_repr(self) -> str:
        """Sizes, element type and block size."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        return f"{sizes}, elem_dtype={self.weight_mx.elem_dtype}, block_size={self.weight_mx.block_size}"


def swap_linear_with_mx_linear(
    model: nn.Module, elem_dtype: ElemDType, block_size: int, filter_fn: FilterFn | None = None
) -> None:
    """torchao 0.6.1: exchange the linear layers below ``model`` that ``filter_fn(mod, fqn)`` is true for."""
    _replace(model, lambda mod: MXLinear.from_float(mod, elem_dtype, block_size), filter_fn, "")


def swap_linear_with_mx_inference_linear(
    model: nn.Module, elem_dtype: ElemDType, block_size: int, filter_fn: FilterFn | None = None
) -> None:
    """torchao 0.6.1: exchange the linear layers below ``model`` that ``filter_fn(mod, fqn)`` is true for."""
    _replace(model, lambda mod: MXInferenceLinear.from_float(mod, elem_dtype, block_size), filter_fn, "")


def quantize_(model: nn.Module, config: object, filter_fn: FilterFn | None = None, device: Any = None) -> None:
    """Encode the weights of ``model``'s linear layers as ``config`` says, in place.

    ``filter_fn(mod, fqn)`` replaces "is a ``torch.nn.Linear``". ``model`` may be such a layer itself, but for configs
    that exchange layers.

    Raises:
        AssertionError: for weights that are not bfloat16 (MX), or have other than two dimensions.
        RuntimeError: for NVFP4 weights whose sizes are no multiples of 16.
        TypeError: for another config.
    """
    if device is not None:
        model.to(device)
    make = _transform(config)
    chosen = filter_fn if filter_fn is not None else lambda mod, name: isinstance(mod, nn.Linear)
    if chosen(model, "") and make(model) is not model:
        raise TypeError("the model is itself a layer to exchange; allowed: a model that contains it")
    _replace(model, make, chosen, "", nn.Module)


def _replace(
    model: nn.Module,
    make: Callable[[Any], nn.Module],
    filter_fn: FilterFn | None,
    prefix: str,
    kind: type[nn.Module] = nn.Linear,
) -> None:
    for name, child in list(model.named_children()):
        full = f"{prefix}.{name}" if prefix else name
        if isinstance(child, kind) and (filter_fn is None or filter_fn(child, full)):
            setattr(model, name, make(child))
        else:
            _replace(child, make, filter_fn, full, kind)


def _transform(config: object) -> Callable[[Any], nn.Module]:
    """What ``config`` does to a layer."""
    if isinstance(config, MXDynamicActivationMXWeightConfig):
        return lambda mod: _mx_weight(mod, config)
    if isinstance(config, MXFP8TrainingOpConfig):
        return lambda mod: _mxfp8_linear(mod, config)
    if isinstance(config, MXLinearConfig):
        three = config.formats()
        plan = gs.mx.MXLinearConfig(three[0], three[1], three[2], accumulator=None)
        return lambda mod: gs.mx.MXLinear.from_float(mod, plan)
    if isinstance(config, MXInferenceLinearConfig):
        return lambda mod: MXInferenceLinear.from_float(mod, config.elem_dtype, config.block_size)
    if isinstance(config, NVFP4WeightOnlyConfig):
        return lambda mod: _nvfp4_weight(mod, config.use_dynamic_per_tensor_scale, None)
    if isinstance(config, NVFP4DynamicActivationNVFP4WeightConfig):
        return lambda mod: _nvfp4_dynamic(mod, config)
    if callable(config):
        return lambda mod: cast(nn.Module, config(mod))
    raise TypeError(
        f"config is a {type(config).__name__}; allowed: the configs of gemmsim.compat.torchao, or a function of a layer"
    )


def _mx_weight(mod: nn.Linear, config: MXDynamicActivationMXWeightConfig) -> nn.Linear:
    if mod.weight.dtype != torch.bfloat16:
        raise AssertionError(f"weight of {mod.weight.dtype}; allowed: torch.bfloat16")
    kwargs = QuantizeTensorToMXKwargs(
        config.activation_dtype, config.block_size, config.scaling_mode, config.kernel_preference
    )
    weight = MXTensor.to_mx(
        mod.weight.detach(),
        config.weight_dtype,
        config.block_size,
        config.scaling_mode,
        config.kernel_preference,
        kwargs,
    )
    mod.weight = nn.Parameter(weight, requires_grad=False)
    return mod


def _mxfp8_linear(mod: nn.Linear, config: MXFP8TrainingOpConfig) -> MXFP8Linear:
    made = MXFP8Linear(
        mod.in_features,
        mod.out_features,
        mod.bias is not None,
        device="meta",
        kernel_preference=config.kernel_preference,
        scale_calculation_mode=config.scale_calculation_mode,
        wgrad_with_hp=config.wgrad_with_hp,
    )
    made.weight, made.bias = mod.weight, mod.bias
    return made.train(mod.training)


def _nvfp4_weight(
    mod: nn.Linear, per_tensor: bool, kwargs: QuantizeTensorToNVFP4Kwargs | None, act_scale: Tensor | None = None
) -> nn.Linear:
    weight = mod.weight.detach()
    if weight.dim() != 2:
        raise AssertionError(f"weight of {weight.dim()} dimensions; allowed: 2")
    if weight.shape[0] % 16 or weight.shape[1] % 16:
        raise RuntimeError(f"NVFP4 weight of shape {tuple(weight.shape)}; allowed: both sizes multiples of 16")
    scale = per_tensor_amax_to_scale(weight.abs().amax()) if per_tensor else None
    encoded = NVFP4Tensor.to_nvfp4(
        weight,
        per_tensor_scale=scale,
        act_per_tensor_scale=act_scale,
        is_swizzled_scales=True,
        act_quant_kwargs=kwargs,
    )
    mod.weight = nn.Parameter(encoded, requires_grad=False)
    return mod


def _nvfp4_dynamic(mod: nn.Linear, config: NVFP4DynamicActivationNVFP4WeightConfig) -> nn.Linear:
    if config.step is QuantizationStep.PREPARE:
        return NVFP4ObservedLinear.from_float(mod)
    kwargs = QuantizeTensorToNVFP4Kwargs(16, True, config.use_triton_kernel, config.use_dynamic_per_tensor_scale)
    if config.step is None:
        return _nvfp4_weight(mod, config.use_dynamic_per_tensor_scale, kwargs)
    if not isinstance(mod, NVFP4ObservedLinear):
        return mod
    plain = nn.Linear(mod.in_features, mod.out_features, mod.bias is not None, device="meta")
    plain.weight, plain.bias = mod.weight, mod.bias
    return _nvfp4_weight(plain.train(mod.training), True, kwargs, per_tensor_amax_to_scale(mod.amax))
