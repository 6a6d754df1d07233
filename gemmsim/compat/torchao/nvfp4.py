"""NVFP4 with torchao's names: conversion, tensor, and calibration of activations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

import gemmsim as gs
from gemmsim.nn.weights import linear_like

from ..own_fields import OwnFields
from .conversions import swizzle
from .kinds import QuantizeTensorKwargs

__all__ = [
    "NVFP4DynamicActivationNVFP4WeightConfig",
    "NVFP4InferenceConfig",
    "NVFP4MMConfig",
    "NVFP4ObservedLinear",
    "NVFP4Tensor",
    "NVFP4WeightOnlyConfig",
    "QuantizationStep",
    "QuantizeTensorToNVFP4Kwargs",
    "nvfp4_quantize",
    "per_tensor_amax_to_scale",
]

aten = torch.ops.aten
_PRODUCTS = (aten.mm.default, aten.matmul.default, aten.bmm.default, aten._grouped_mm.default)


def per_tensor_amax_to_scale(amax: Tensor) -> Tensor:
    """amax / (448 * 6) in float32.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao.per_tensor_amax_to_scale(torch.tensor(2688.0))
        tensor(1.)
    """
    most = amax.to(torch.float32)
    return most / torch.full_like(most, 448.0 * 6.0)  # by a number it is a product on GPUs


def _check(data_hp: Tensor, block_size: int) -> None:
    if data_hp.dtype not in (torch.bfloat16, torch.float32, torch.float16):
        raise AssertionError(f"{data_hp.dtype} not supported; allowed: bfloat16, float32 and float16")
    if data_hp.shape[-1] % block_size:
        raise AssertionError(f"K dim {data_hp.shape[-1]} must be divisible by block_size {block_size}")
    if not data_hp.is_contiguous():
        raise AssertionError("Only contiguous data are supported")
    if block_size != 16:
        raise AssertionError(f"NVFP4 requires block_size=16, got {block_size}")


def nvfp4_quantize(
    data_hp: Tensor, block_size: int = 16, per_tensor_scale: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """A pair (scale, data): e4m3 scales [..., K/16] and packed codes [..., K/2], the first in the low half of a byte.

    A NaN or an infinity makes its block NaN; torchao does not define the scales there.

    Raises:
        AssertionError: for other dtypes, sizes, strides and block sizes.

    Example:
        >>> from gemmsim.compat import torchao
        >>> scale, data = torchao.nvfp4_quantize(torch.full((1, 16), 3.0))
        >>> scale.float(), data
        (tensor([[0.5000]]), tensor([[119, 119, 119, 119, 119, 119, 119, 119]], dtype=torch.uint8))
    """
    _check(data_hp, block_size)
    if per_tensor_scale is not None and per_tensor_scale.numel() != 1:
        shape = tuple(per_tensor_scale.shape)
        raise AssertionError(f"per_tensor_scale of shape {shape}; allowed: one number. Use a tensor for each expert")
    data_hp = data_hp.detach()
    if per_tensor_scale is None:
        codes, scales, _ = gs.mx.encode(data_hp, "nvfp4")
    else:
        data_hp, second = _in_range(data_hp, per_tensor_scale.reshape(()).float())
        codes, scales, _ = gs.mx.encode(data_hp, "nvfp4/tensor", tensor_scale=second)
    return scales.view(torch.float8_e4m3fn), codes


def _in_range(x: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Both times 2^48 where ``gemmsim.mx.encode`` would refuse the tensor's scale as too small: the codes stay."""
    tiny = (second > 0) & (second < 2.0**-96)
    if x.device.type == "cpu" and not torch.compiler.is_compiling() and not tiny:
        return x, second
    # without a branch: tracers have no numbers, and a GPU would be waited for
    factor = torch.where(tiny, 2.0**48, 1.0)
    return x * factor.to(torch.float32), second * factor


@dataclass
class QuantizeTensorToNVFP4Kwargs(QuantizeTensorKwargs):
    """How a plain left operand of a product is encoded.

    Example:
        >>> from gemmsim.compat import torchao
        >>> kwargs = torchao.QuantizeTensorToNVFP4Kwargs(use_dynamic_per_tensor_scale=True)
        >>> kwargs.block_size, kwargs.use_dynamic_per_tensor_scale
        (16, True)
    """

    block_size: int = 16
    is_swizzled_scales: bool = False
    use_triton_kernel: bool = False
    use_dynamic_per_tensor_scale: bool = False


class NVFP4Tensor(OwnFields):
    """``gemmsim.mx.MXTensor`` in NVFP4 with torchao's constructor, fields and products.

    Products are PyTorch's own of the operands decoded to ``orig_dtype``. A plain left operand is encoded as
    ``act_quant_kwargs`` says. Without them (weight-only) it is multiplied as it is.

    Raises:
        AssertionError: for scales that are not float8_e4m3fn, and other block sizes than 16.

    Example:
        >>> from gemmsim.compat import torchao
        >>> encoded = torchao.NVFP4Tensor.to_nvfp4(torch.full((1, 16), 0.3))
        >>> encoded.dequantize(torch.float32)[0, 0], encoded.qdata.shape
        (tensor(0.3047), torch.Size([1, 8]))
    """

    act_per_tensor_scale: Tensor | None
    is_swizzled_scales: bool
    use_triton_kernel: bool
    act_quant_kwargs: QuantizeTensorToNVFP4Kwargs | None
    _own_fields = ("act_per_tensor_scale", "is_swizzled_scales", "use_triton_kernel", "act_quant_kwargs")

    @staticmethod
    def __new__(
        cls: type[NVFP4Tensor],
        qdata: Tensor,
        scale: Tensor,
        block_size: int,
        orig_dtype: torch.dtype,
        per_tensor_scale: Tensor | None = None,
        act_per_tensor_scale: Tensor | None = None,
        is_swizzled_scales: bool = False,
        use_triton_kernel: bool = False,
        act_quant_kwargs: QuantizeTensorToNVFP4Kwargs | None = None,
    ) -> NVFP4Tensor:
        """A tensor of packed codes, blocks along the last dimension."""
        if block_size != 16:
            raise AssertionError(f"NVFP4 requires block_size=16, got {block_size}")
        if scale.dtype != torch.float8_e4m3fn:
            raise AssertionError(f"scale.dtype is {scale.dtype}; allowed: torch.float8_e4m3fn")
        if per_tensor_scale is not None and per_tensor_scale.numel() != 1:
            shape = tuple(per_tensor_scale.shape)
            raise AssertionError(
                f"per_tensor_scale of shape {shape}; allowed: one number. Use a tensor for each expert"
            )
        if is_swizzled_scales:
            from .conversions import unswizzle

            scale = unswizzle(scale, qdata.shape[-2], qdata.shape[-1] // 8)
        plain = gs.mx.MXTensor(
            qdata.view(torch.uint8),
            scale.view(torch.uint8),
            "nvfp4" if per_tensor_scale is None else "nvfp4/tensor",
            tensor_scale=None if per_tensor_scale is None else per_tensor_scale.reshape(()).float(),
            dtype=orig_dtype,
        )
        return NVFP4Tensor._with_fields(
            plain, act_per_tensor_scale, is_swizzled_scales, use_triton_kernel, act_quant_kwargs
        )

    @staticmethod
    def to_nvfp4(
        data_hp: Tensor,
        block_size: int = 16,
        per_tensor_scale: Tensor | None = None,
        act_per_tensor_scale: Tensor | None = None,
        is_swizzled_scales: bool = False,
        use_triton_kernel: bool = False,
        act_quant_kwargs: QuantizeTensorToNVFP4Kwargs | None = None,
    ) -> NVFP4Tensor:
        """``data_hp`` in NVFP4 along its last dimension; errors as ``nvfp4_quantize``."""
        scale, data = nvfp4_quantize(data_hp, block_size, per_tensor_scale)
        made = NVFP4Tensor(data, scale, block_size, data_hp.dtype, per_tensor_scale)
        return NVFP4Tensor._with_fields(
            made, act_per_tensor_scale, is_swizzled_scales, use_triton_kernel, act_quant_kwargs
        )

    @property
    def qdata(self) -> Tensor:
        """The packed codes."""
        return self.codes

    @property
    def scale(self) -> Tensor:
        """The scales as float8_e4m3fn, in tiled order if ``is_swizzled_scales``."""
        scales = self.scales.view(torch.float8_e4m3fn)
        if not self.is_swizzled_scales:
            return scales
        return swizzle(scales) if self.block_dim == -1 else swizzle(scales.mT).mT

    @property
    def per_tensor_scale(self) -> Tensor | None:
        """The tensor's own scale."""
        return self.tensor_scale

    @property
    def block_size(self) -> int:
        """16."""
        return self.format.block_size

    @property
    def orig_dtype(self) -> torch.dtype:
        """``dtype``."""
        return self.dtype

    def get_hp_scales(self) -> Tensor:
        """Scales of the blocks in float32, the tensor's own included."""
        scales = self.scales.view(torch.float8_e4m3fn).to(torch.float32)
        return scales if self.tensor_scale is None else scales * self.tensor_scale

    def __tensor_flatten__(self) -> tuple[list[str], tuple[object, ...]]:
        names, meta = super().__tensor_flatten__()
        kwargs = None if self.act_quant_kwargs is None else tuple(vars(self.act_quant_kwargs).values())
        second = [] if self.act_per_tensor_scale is None else ["act_per_tensor_scale"]
        return [*names, *second], (*meta, self.is_swizzled_scales, self.use_triton_kernel, kwargs)

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], meta: Any, outer_size: Any, outer_stride: Any) -> NVFP4Tensor:
        plain = gs.mx.MXTensor.__tensor_unflatten__(inner, meta[:-3], outer_size, outer_stride)
        swizzled, triton, kwargs = meta[-3:]
        again = None if kwargs is None else QuantizeTensorToNVFP4Kwargs(*kwargs)
        return NVFP4Tensor._with_fields(plain, inner.get("act_per_tensor_scale"), swizzled, triton, again)

    def __reduce_ex__(self, protocol: Any) -> Any:
        names, meta = self.__tensor_flatten__()
        inner = {name: getattr(self, name) for name in names}
        return _rebuild, (inner, meta, self.shape, self.requires_grad, getattr(self, "_is_param", False))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """torchao's treatment of plain left operands, then gemmsim's operator."""
        first = {aten.addmm.default: 1, aten.linear.default: 0, **dict.fromkeys(_PRODUCTS, 0)}.get(func)
        if first is not None and isinstance(args[first + 1], NVFP4Tensor):
            a, b = args[first], args[first + 1]
            if not isinstance(a, gs.mx.MXTensor):
                if b.act_quant_kwargs is None:
                    return func(*args[:first], a, b.dequantize(), *args[first + 2 :], **(kwargs or {}))
                args = (*args[:first], _activation(a, b), *args[first + 1 :])
        return super().__torch_dispatch__(func, types, args, kwargs)


def _activation(a: Tensor, b: NVFP4Tensor) -> NVFP4Tensor:
    """``a`` encoded as ``b`` says, under the calibrated scale, its own, or none."""
    scale = b.act_per_tensor_scale
    if scale is None and b.act_quant_kwargs is not None and b.act_quant_kwargs.use_dynamic_per_tensor_scale:
        scale = per_tensor_amax_to_scale(a.abs().amax())
    return NVFP4Tensor.to_nvfp4(a.contiguous(), per_tensor_scale=scale)


def _rebuild(inner: dict[str, Tensor], meta: Any, shape: Any, requires_grad: bool, parameter: bool) -> Tensor:
    """What ``__reduce_ex__`` took apart."""
    made = NVFP4Tensor.__tensor_unflatten__(inner, meta, shape, None)
    return nn.Parameter(made, requires_grad) if parameter else made.requires_grad_(requires_grad)


torch.serialization.add_safe_globals([_rebuild, NVFP4Tensor])


class QuantizationStep(str, Enum):
    """The steps of the calibration of activations.

    Example:
        >>> from gemmsim.compat import torchao
        >>> [step.value for step in torchao.QuantizationStep]
        ['prepare', 'convert']
    """

    PREPARE = "prepare"
    CONVERT = "convert"


@dataclass
class NVFP4DynamicActivationNVFP4WeightConfig:
    """For ``quantize_``: weights and activations in NVFP4. ``step`` calibrates the scale of the activations.

    Raises:
        ValueError: for an unknown step.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(32, 16, dtype=torch.bfloat16))
        >>> gs.compat.torchao.quantize_(model, gs.compat.torchao.NVFP4DynamicActivationNVFP4WeightConfig())
        >>> type(model[0].weight.data).__name__
        'NVFP4Tensor'
    """

    use_triton_kernel: bool = True
    use_dynamic_per_tensor_scale: bool = True
    step: QuantizationStep | str | None = None

    def __post_init__(self) -> None:
        if self.step is not None:
            self.step = QuantizationStep(self.step)
            self.use_dynamic_per_tensor_scale = False


class NVFP4MMConfig(Enum):
    """Whether activations are encoded as well, in torchao 0.13.

    Example:
        >>> from gemmsim.compat.torchao.prototype import mx_formats
        >>> [choice.value for choice in mx_formats.NVFP4MMConfig]
        ['dynamic', 'weight_only']
    """

    DYNAMIC = "dynamic"
    WEIGHT_ONLY = "weight_only"


@dataclass
class NVFP4InferenceConfig:
    """For ``quantize_``, in torchao 0.13: NVFP4 weights without a scale of the tensor, activations by ``mm_config``.

    Example:
        >>> from gemmsim.compat.torchao.prototype import mx_formats
        >>> mx_formats.NVFP4InferenceConfig(mx_formats.NVFP4MMConfig.WEIGHT_ONLY).mm_config.value
        'weight_only'
    """

    mm_config: NVFP4MMConfig = NVFP4MMConfig.DYNAMIC
    use_triton_kernel: bool = True


@dataclass
class NVFP4WeightOnlyConfig:
    """For ``quantize_``: weights in NVFP4.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(32, 16, dtype=torch.bfloat16))
        >>> gs.compat.torchao.quantize_(model, gs.compat.torchao.NVFP4WeightOnlyConfig())
        >>> type(model[0].weight.data).__name__
        'NVFP4Tensor'
    """

    use_dynamic_per_tensor_scale: bool = True


class NVFP4ObservedLinear(gs.nn.Emulated, nn.Linear):
    """``torch.nn.Linear`` that keeps the largest magnitude of its inputs in the buffer ``amax``.

    Example:
        >>> from gemmsim.compat import torchao
        >>> layer = torchao.NVFP4ObservedLinear(2, 1)
        >>> layer(torch.tensor([[3.0, -5.0]])).shape, layer.amax.item()
        (torch.Size([1, 1]), 5.0)
    """

    amax: Tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("amax", torch.zeros((), dtype=torch.float32))

    @classmethod
    def from_float(cls, module: nn.Linear) -> NVFP4ObservedLinear:
        """A layer with ``module``'s own parameters and hooks.

        Raises:
            ComputedWeightError (TypeError): where a parametrisation or a hook computes the weight or the bias.
        """
        made = linear_like(cls, module)
        made.weight = module.weight
        made.amax = torch.zeros((), dtype=torch.float32, device=module.weight.device)
        return made

    def forward(self, input: Tensor) -> Tensor:
        """``torch.nn.Linear``'s result."""
        self.amax = torch.maximum(self.amax, input.detach().abs().amax().to(torch.float32))
        return super().forward(input)
