"""torchao's linear layers and the functions that put them into models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

import gemmsim as gs
from gemmsim.nn.undoing import naming, unchanged_on_error
from gemmsim.nn.weights import computed_parameter, own_forward, refuse_computed, refuse_own_forward, take_hooks
from gemmsim.ops.lazy_dynamo import assume_constant_result

from .kinds import (
    ElemDType,
    KernelPreference,
    MXDynamicActivationMXWeightConfig,
    MXFP8Dim0CastKernelChoice,
    MXFP8Dim1CastKernelChoice,
    MXFP8TrainingOpConfig,
    MXFPInferenceConfig,
    MXInferenceLinearConfig,
    MXLinearConfig,
    QuantizeTensorToMXKwargs,
    ScaleCalculationMode,
    format_name,
)
from .nvfp4 import (
    NVFP4DynamicActivationNVFP4WeightConfig,
    NVFP4InferenceConfig,
    NVFP4MMConfig,
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
    "_to_mxfp8_then_scaled_mm",
    "mx_mm",
    "quantize_",
    "replace_with_custom_fn_if_matches_filter",
    "swap_linear_with_mx_inference_linear",
    "swap_linear_with_mx_linear",
]

FilterFn = Callable[[nn.Module, str], bool]


class MXFP8Linear(gs.mx.MXLinear):
    """``gemmsim.mx.MXLinear`` in e4m3 with PyTorch's own products and torchao's arguments.

    Example:
        >>> from gemmsim.compat import torchao
        >>> layer = torchao.MXFP8Linear(32, 16, scale_calculation_mode=torchao.ScaleCalculationMode.FLOOR)
        >>> layer(torch.ones(4, 32)).shape
        torch.Size([4, 16])
    """

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
    """torchao's differentiable product of its MX layers: ``mx_mm.apply(input, weight, ...)``.

    Example:
        >>> from gemmsim.compat import torchao
        >>> e4m3 = torch.float8_e4m3fn
        >>> torchao.mx_mm.apply(torch.full((1, 32), 0.3), torch.ones(1, 32), e4m3, e4m3, e4m3, 32)
        tensor([[10.]])
    """

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
        ``wgrad_with_hp``, ``g.T @ x``; PyTorch's own products of the decoded operands. Kernel choices change no bits.

        Raises:
            AssertionError: for element types and scale modes that torchao does not have.
            ShapeError: for sizes that do not fit.
        """
        kinds = (in_elem_dtype, w_elem_dtype, grad_elem_dtype)
        config = _mx_mm_config(kinds, block_size, scale_calculation_mode, wgrad_with_hp)
        rows = input_hp.reshape(-1, input_hp.shape[-1])
        return gs.mx.trained_matmul(rows, weight_hp.t(), config).reshape(*input_hp.shape[:-1], weight_hp.shape[0])


class MXLinear(gs.nn.Emulated, nn.Linear):
    """torchao's training layer in both its forms, with the parameters of ``torch.nn.Linear``.

    With a ``MXLinearConfig`` (2025) it has the three products of ``mx_mm``, and adds the bias in the result's dtype.
    Under autocast it converts x and W first. With an element type and a block size (0.6.1) it encodes x, W and the
    output's gradient in MX, each along its last dimension. The backward products use the same x and W, so that their
    blocks lie across the sum: ``gemmsim.mx.BlockDimWarning``.

    Example:
        >>> from gemmsim.compat import torchao
        >>> layer = torchao.MXLinear.from_float(torch.nn.Linear(32, 32), torchao.MXLinearConfig())
        >>> layer(torch.ones(4, 32)).shape
        torch.Size([4, 32])
    """

    config: MXLinearConfig | None
    elem_dtype: ElemDType
    block_size: int

    @classmethod
    def from_float(
        cls, mod: nn.Linear, elem_dtype: MXLinearConfig | ElemDType | None = None, block_size: int = 32
    ) -> MXLinear:
        """Convert ``mod`` itself to this class, by default with ``MXLinearConfig()``, and return it.

        Raises:
            AssertionError: for other modules and element types.
            ComputedWeightError (TypeError): where a parametrisation or a hook computes the weight or the bias.
            TypeError: for a module with a ``forward`` set on the object, which would stay.
        """
        if not isinstance(mod, nn.Linear):
            raise AssertionError(f"a {type(mod).__name__}; allowed: torch.nn.Linear")
        refuse_own_forward("MXLinear.from_float", mod)
        refuse_computed("MXLinear.from_float", mod)
        config = MXLinearConfig() if elem_dtype is None else elem_dtype
        if not isinstance(config, MXLinearConfig):
            format_name(config, block_size, ScaleCalculationMode.FLOOR)
        mod.__class__ = cls
        gs.nn.call_children(mod)
        assert isinstance(mod, MXLinear)
        if isinstance(config, MXLinearConfig):
            mod.config, mod.elem_dtype, mod.block_size = config, config.elem_dtype, config.block_size
        else:
            mod.config, mod.elem_dtype, mod.block_size = None, config, block_size
        return mod

    def forward(self, x: Tensor) -> Tensor:
        """``x @ weight.T + bias`` of operands in MX."""
        if self.config is not None:
            return _configured(x, self.weight, self.bias, self.config)
        kind = self.elem_dtype, self.block_size
        out = nn.functional.linear(MXTensor.to_mx(x, *kind), MXTensor.to_mx(self.weight, *kind), self.bias)
        result: Tensor = NoopFwToMXBw.apply(out, *kind)
        return result

    def extra_repr(self) -> str:
        """Sizes and configuration, or element type and block size."""
        if self.config is not None:
            return f"{super().extra_repr()}, config={self.config}"
        return f"{super().extra_repr()}, elem_dtype={self.elem_dtype}, block_size={self.block_size}"


def _configured(x: Tensor, weight: Tensor, bias: Tensor | None, config: MXLinearConfig) -> Tensor:
    """``mx_mm`` as ``config`` says, and the bias."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        x, weight = (t.to(torch.get_autocast_dtype(kind)) for t in (x, weight))
    mode = config.scale_calculation_mode
    one, two, three = config.kinds()
    out = mx_mm.apply(x, weight, one, two, three, config.block_size, scale_calculation_mode=mode)
    return out if bias is None else out + bias.to(out.dtype)


def _to_mxfp8_then_scaled_mm(
    input_hp: Tensor,
    weight_hp: Tensor,
    kernel_preference: KernelPreference,
    scale_calculation_mode: ScaleCalculationMode,
    wgrad_with_hp: bool = False,
) -> Tensor:
    """``mx_mm`` of operands and gradients in e4m3 with blocks of 32."""
    kind = torch.float8_e4m3fn
    return mx_mm.apply(
        input_hp,
        weight_hp,
        kind,
        kind,
        kind,
        32,
        kernel_preference,
        scale_calculation_mode=scale_calculation_mode,
        wgrad_with_hp=wgrad_with_hp,
    )


class MXInferenceLinear(gs.nn.Emulated, nn.Linear):
    """The inference layer of torchao 0.6.1: the weight is in MX and decoded for each product.

    Input and bias have the gradients of ``F.linear`` with the decoded weight; torchao's layer has none. The weight has
    no gradient.

    Example:
        >>> from gemmsim.compat import torchao
        >>> layer = torchao.MXInferenceLinear.from_float(torch.nn.Linear(32, 16), torch.float8_e4m3fn, 32)
        >>> layer(torch.ones(4, 32)).shape
        torch.Size([4, 16])
    """

    weight_mx: MXTensor

    @classmethod
    @torch.no_grad()
    def from_float(
        cls, mod: nn.Linear, elem_dtype: MXInferenceLinearConfig | ElemDType, block_size: int = 32
    ) -> MXInferenceLinear:
        """A layer with ``mod``'s weight encoded, its own bias and hooks.

        ``elem_dtype``: a config, or an element type with ``block_size``.

        Raises:
            ComputedWeightError (TypeError): where a parametrisation or a hook computes the weight or the bias.
        """
        if isinstance(elem_dtype, MXInferenceLinearConfig):
            return cls.from_float(mod, elem_dtype.elem_dtype, elem_dtype.block_size)
        refuse_computed("MXInferenceLinear.from_float", mod)
        with torch.device("meta"):
            made = cls(mod.in_features, mod.out_features, bias=False)
        made._parameters.pop("weight")
        # a buffer, so that state dicts and .to(device) have it
        made.register_buffer("weight_mx", MXTensor.to_mx(mod.weight.detach(), elem_dtype, block_size))
        made.bias = mod.bias
        take_hooks(made, mod)
        return made.train(mod.training)

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
    """Replace the linear layers below ``model`` for which ``filter_fn(mod, fqn)`` is true, as torchao 0.6.1 does.

    Layers whose weight or bias is not a parameter are left, as in ``quantize_``, and so are layers with a ``forward``
    set on the object. After an error ``model`` is unchanged.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(32, 32))
        >>> gs.compat.torchao.swap_linear_with_mx_linear(model, torch.float8_e4m3fn, 32)
        >>> type(model[0]).__name__
        'MXLinear'
    """
    with gs.nn.Conversion.watched("torchao.swap_linear_with_mx_linear", model, _why(filter_fn)):
        make = _unless_own(lambda mod: MXLinear.from_float(mod, elem_dtype, block_size))
        _replace(model, make, filter_fn, "")
        gs.nn.call_children(model)


def swap_linear_with_mx_inference_linear(
    model: nn.Module, elem_dtype: ElemDType, block_size: int, filter_fn: FilterFn | None = None
) -> None:
    """Replace the linear layers below ``model`` for which ``filter_fn(mod, fqn)`` is true, as torchao 0.6.1 does.

    Layers left and errors as ``swap_linear_with_mx_linear``.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(32, 16))
        >>> gs.compat.torchao.swap_linear_with_mx_inference_linear(model, torch.float8_e4m3fn, 32)
        >>> type(model[0]).__name__
        'MXInferenceLinear'
    """
    with gs.nn.Conversion.watched("torchao.swap_linear_with_mx_inference_linear", model, _why(filter_fn)):
        make = _unless_own(lambda mod: MXInferenceLinear.from_float(mod, elem_dtype, block_size))
        _replace(model, make, filter_fn, "")
        gs.nn.call_children(model)


def replace_with_custom_fn_if_matches_filter(
    model: nn.Module,
    replacement_fn: Callable[[Any], nn.Module],
    filter_fn: FilterFn,
    cur_fqn: str = "",
) -> None:
    """Replace the modules below ``model`` for which ``filter_fn(mod, fqn)`` is true: all or, after an error, none.

    Example:
        >>> from gemmsim.compat.torchao.prototype.mx_formats import mx_linear
        >>> model, swap = torch.nn.Sequential(torch.nn.ReLU()), mx_linear.replace_with_custom_fn_if_matches_filter
        >>> swap(model, lambda mod: torch.nn.Identity(), lambda mod, fqn: isinstance(mod, torch.nn.ReLU))
    """
    with unchanged_on_error(model):
        _replace(model, replacement_fn, filter_fn, cur_fqn, nn.Module)
        gs.nn.call_children(model)


def quantize_(model: nn.Module, config: object, filter_fn: FilterFn | None = None, device: Any = None) -> None:
    """Encode the weights of ``model``'s linear layers as ``config`` says, in place.

    ``filter_fn(mod, fqn)`` replaces "is a ``torch.nn.Linear``". ``model`` may be such a layer itself, except for
    configs that replace layers. A log message says what was converted and what was left to PyTorch
    (``gemmsim.nn.Conversion``). Layers whose weight or bias is not a parameter, because a parametrisation or a hook
    computes it, are left, unless ``config`` is a function. Where ``config`` replaces layers, a layer with a ``forward``
    set on the object is left; a ``config`` that encodes weights leaves each layer its ``forward``. Errors name the
    layer and leave ``model`` unchanged, including its device.

    Raises:
        AssertionError: for weights that are not bfloat16 (MX), or have other than two dimensions.
        RuntimeError: for NVFP4 weights whose sizes are not multiples of 16.
        TypeError: for another config.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(32, 16, dtype=torch.bfloat16))
        >>> gs.compat.torchao.quantize_(model, gs.compat.torchao.NVFP4WeightOnlyConfig())
        >>> type(model[0].weight.data).__name__
        'NVFP4Tensor'
    """
    make = _transform(config)
    chosen = filter_fn if filter_fn is not None else lambda mod, name: isinstance(mod, nn.Linear)
    with gs.nn.Conversion.watched("torchao.quantize_", model, _why(chosen, _exchanges(config))):
        if device is not None:
            model.to(device)
        if chosen(model, "") and make(model) is not model:
            raise TypeError("the model is itself a layer to exchange; allowed: a model that contains it")
        _replace(model, make, chosen, "", nn.Module)
        gs.nn.call_children(model)


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
            with naming(full):
                setattr(model, name, make(child))
        else:
            _replace(child, make, filter_fn, full, kind)


def _why(chosen: FilterFn | None, exchanges: bool = True) -> Callable[[str, nn.Module], tuple[str, bool]]:
    """Why layers were left, and whether that was asked for."""

    def why(name: str, module: nn.Module) -> tuple[str, bool]:
        own = _own(module, exchanges) if isinstance(module, nn.Linear) else ""
        if own and (chosen is None or chosen(module, name)):
            return own, False
        return "this converter has no such layer", True

    return why


def _transform(config: object) -> Callable[[Any], nn.Module]:
    """What ``config`` does to a layer; of ours nothing where it has what its class does not say."""
    make = _change(config)
    return make if callable(config) else _unless_own(make, _exchanges(config))


def _exchanges(config: object) -> bool:
    """Whether layers become others, not weights."""
    encoding = (MXDynamicActivationMXWeightConfig, MXFPInferenceConfig, NVFP4InferenceConfig, NVFP4WeightOnlyConfig)
    if isinstance(config, NVFP4DynamicActivationNVFP4WeightConfig):
        return config.step is QuantizationStep.PREPARE
    return not callable(config) and not isinstance(config, encoding)


def _own(mod: nn.Module, exchanges: bool) -> str:
    """Why a layer is left: what it has that its class does not say."""
    return computed_parameter(mod) or (own_forward(mod) if exchanges else "")


def _unless_own(make: Callable[[Any], nn.Module], exchanges: bool = True) -> Callable[[Any], nn.Module]:
    return lambda mod: mod if _own(mod, exchanges) else make(mod)


def _change(config: object) -> Callable[[Any], nn.Module]:
    if isinstance(config, MXDynamicActivationMXWeightConfig):
        return lambda mod: _mx_weight(mod, config)
    if isinstance(config, MXFP8TrainingOpConfig):
        return lambda mod: _mxfp8_linear(mod, config)
    if isinstance(config, MXLinearConfig):
        return lambda mod: MXLinear.from_float(mod, config)
    if isinstance(config, MXInferenceLinearConfig):
        return lambda mod: MXInferenceLinear.from_float(mod, config)
    if isinstance(config, MXFPInferenceConfig):
        newer = config.newer()
        return lambda mod: _mx_weight(mod, newer)
    if isinstance(config, NVFP4InferenceConfig):
        dynamic = QuantizeTensorToNVFP4Kwargs() if config.mm_config is NVFP4MMConfig.DYNAMIC else None
        return lambda mod: _nvfp4_weight(mod, False, dynamic)
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
    take_hooks(made, mod)
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
    take_hooks(plain, mod)
    return _nvfp4_weight(plain.train(mod.training), True, kwargs, per_tensor_amax_to_scale(mod.amax))
