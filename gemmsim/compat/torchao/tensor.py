"""torchao's ``MXTensor``: its constructor, fields, conversions and errors on gemmsim's tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim.ops.lazy_dynamo import allow_in_graph

from ..own_fields import OwnFields, StraightThrough
from .conversions import check_input, packing_of, storage_dtype, swizzle, unswizzle
from .errors import LayoutError, StorageError, message
from .kinds import (
    ElemDType,
    KernelPreference,
    MXFP8Dim0CastKernelChoice,
    QuantizeTensorToMXKwargs,
    ScaleCalculationMode,
    format_name,
)

__all__ = ["FromMXConstrFunc", "MXTensor", "NoopFwToMXBw", "ToMXConstrFunc"]

aten = torch.ops.aten
_TYPED = (torch.float8_e4m3fn, torch.float8_e5m2)
_PRODUCTS = (aten.mm.default, aten.matmul.default, aten.bmm.default, aten._grouped_mm.default)


class MXTensor(OwnFields):
    """``gemmsim.mx.MXTensor`` with torchao's constructor, fields and products.

    Products are PyTorch's own, of the operands decoded to ``orig_dtype`` (torchao's EMULATED). Fields: ``qdata``,
    ``scale``, ``elem_dtype``, ``block_size``, ``orig_dtype``, ``kernel_preference``, ``act_quant_kwargs``,
    ``is_swizzled_scales``; those of 0.6.1: ``_data``, ``_scale_e8m0``, ``_elem_dtype``, ``_block_size``,
    ``_orig_dtype``.

    ``scale`` is float8_e8m0fnu with the dimensions of the codes, or flat, in the order of the blocks.

    Raises:
        ElementError, StorageError, LayoutError: for element types, dtypes and shapes that do not fit each other; all
            are ``AssertionError``.

    Example:
        >>> from gemmsim.compat import torchao
        >>> encoded = torchao.MXTensor.to_mx(torch.tensor([[0.3, 1.0]]), torch.float8_e4m3fn, 2)
        >>> encoded.dequantize(torch.float32), encoded.scale.float()
        (tensor([[0.3125, 1.0000]]), tensor([[0.0039]]))
    """

    elem_dtype: ElemDType
    kernel_preference: KernelPreference | None
    act_quant_kwargs: QuantizeTensorToMXKwargs | None
    is_swizzled_scales: bool
    _own_fields = ("elem_dtype", "kernel_preference", "act_quant_kwargs", "is_swizzled_scales")

    @staticmethod
    def __new__(
        cls: type[MXTensor],
        qdata: Tensor,
        scale: Tensor,
        elem_dtype: ElemDType,
        block_size: int,
        orig_dtype: torch.dtype,
        kernel_preference: KernelPreference | None = None,
        act_quant_kwargs: QuantizeTensorToMXKwargs | None = None,
        is_swizzled_scales: bool = False,
    ) -> MXTensor:
        """A tensor of these codes, blocks along the last dimension; nothing is copied but swizzled scales."""
        name = format_name(elem_dtype, block_size, ScaleCalculationMode.FLOOR)
        if scale.dtype != torch.float8_e8m0fnu:
            do = "Use .view(torch.float8_e8m0fnu)."
            raise StorageError(message(f"scale.dtype is {scale.dtype}", "torch.float8_e8m0fnu", do))
        if qdata.dtype not in (storage_dtype(elem_dtype), torch.float4_e2m1fn_x2):
            asked = f"qdata.dtype is {qdata.dtype} for elem_dtype {elem_dtype}; they must match"
            raise StorageError(message(asked, str(storage_dtype(elem_dtype)), "Give what to_mx does."))
        codes, packing = qdata.view(torch.uint8), packing_of(elem_dtype)
        size = codes.shape[-1] * (1 if packing == "bytes" else 2)
        blocks = -(-size // block_size)
        scale = unswizzle(scale, codes.shape[-2], blocks) if is_swizzled_scales else scale
        full = (*codes.shape[:-1], blocks)
        if scale.shape not in (full, (torch.Size(full).numel(),)):
            asked = f"scale of shape {tuple(scale.shape)} for elements of shape {(*codes.shape[:-1], size)}"
            raise LayoutError(message(asked, f"{full}, or flat", f"One scale for {block_size} elements."))
        scale = scale.reshape(full)
        plain = gs.mx.MXTensor(codes, scale.view(torch.uint8), name, packing=packing, dtype=orig_dtype)
        return MXTensor._with_fields(plain, elem_dtype, kernel_preference, act_quant_kwargs, is_swizzled_scales)

    @staticmethod
    def to_mx(
        data_hp: Tensor,
        elem_dtype: ElemDType,
        block_size: int = 32,
        scaling_mode: ScaleCalculationMode = ScaleCalculationMode.FLOOR,
        kernel_preference: KernelPreference = KernelPreference.EMULATED,
        act_quant_kwargs: QuantizeTensorToMXKwargs | None = None,
        is_swizzled_scales: bool = False,
        mxfp8_dim0_cast_kernel_choice: MXFP8Dim0CastKernelChoice = MXFP8Dim0CastKernelChoice.TORCH,
        *,
        compat: str = "torchao",
    ) -> MXTensor:
        """``data_hp`` in MX along its last dimension; the gradient is the identity.

        Raises:
            As ``to_mx``.
        """
        name = format_name(elem_dtype, block_size, scaling_mode, compat)
        check_input(data_hp, block_size)
        extra = (elem_dtype, kernel_preference, act_quant_kwargs, is_swizzled_scales)
        result: MXTensor = _ToMX.apply(data_hp, name, packing_of(elem_dtype, compat), extra)
        return result

    @staticmethod
    def from_qdata_and_scales(
        qdata: Tensor,
        scales: Tensor,
        orig_dtype: torch.dtype,
        *,
        block_size: int = 32,
        kernel_preference: KernelPreference | None = None,
        act_quant_kwargs: QuantizeTensorToMXKwargs | None = None,
        is_swizzled_scales: bool = False,
    ) -> MXTensor:
        """A tensor of codes; their dtype is the element type.

        Raises:
            StorageError: for bytes, and scales that are not float8_e8m0fnu; it is an ``AssertionError``.
        """
        if qdata.dtype == torch.uint8:
            do = "Use MXTensor(...) for packed bytes."
            raise StorageError(message("qdata of torch.uint8", "typed MX qdata", do))
        return MXTensor(
            qdata,
            scales,
            qdata.dtype,
            block_size,
            orig_dtype,
            kernel_preference,
            act_quant_kwargs,
            is_swizzled_scales,
        )

    # Fields

    @property
    def qdata(self) -> Tensor:
        """The codes in torchao's dtype."""
        return self.codes.view(storage_dtype(self.elem_dtype)) if self.elem_dtype in _TYPED else self.codes

    @property
    def scale(self) -> Tensor:
        """The scales as float8_e8m0fnu, in tiled order if ``is_swizzled_scales``."""
        scales = self.scales.view(torch.float8_e8m0fnu)
        if not self.is_swizzled_scales:
            return scales
        return swizzle(scales) if self.block_dim == -1 else swizzle(scales.mT).mT

    @property
    def block_size(self) -> int:
        """Elements that share a scale."""
        return self.format.block_size

    @property
    def orig_dtype(self) -> torch.dtype:
        """``dtype``."""
        return self.dtype

    _data = qdata
    _scale_e8m0 = scale
    _block_size = block_size
    _orig_dtype = orig_dtype

    @property
    def _elem_dtype(self) -> ElemDType:
        return self.elem_dtype

    def dequantize(self, output_dtype: torch.dtype | None = None) -> Tensor:
        """The values in ``output_dtype``, by default ``orig_dtype``; the gradient is the identity."""
        return super().dequantize(output_dtype)

    # What keeps the fields

    def __tensor_flatten__(self) -> tuple[list[str], tuple[object, ...]]:
        names, meta = super().__tensor_flatten__()
        kwargs = None if self.act_quant_kwargs is None else tuple(vars(self.act_quant_kwargs).values())
        return names, (*meta, self.elem_dtype, self.kernel_preference, kwargs, self.is_swizzled_scales)

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], meta: Any, outer_size: Any, outer_stride: Any) -> MXTensor:
        plain = gs.mx.MXTensor.__tensor_unflatten__(inner, meta[:-4], outer_size, outer_stride)
        elem_dtype, preference, kwargs, swizzled = meta[-4:]
        again = None if kwargs is None else QuantizeTensorToMXKwargs(*kwargs)
        return MXTensor._with_fields(plain, elem_dtype, preference, again, swizzled)

    def __reduce_ex__(self, protocol: Any) -> Any:
        names, meta = self.__tensor_flatten__()
        parameter = getattr(self, "_is_param", False)
        return _rebuild, ([getattr(self, name) for name in names], meta, self.shape, self.requires_grad, parameter)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """torchao's checks of slices and products, then gemmsim's operator."""
        if func is aten.slice.Tensor:
            _check_slice(*args)
        elif func in _PRODUCTS:
            args = (*_operands(args[0], args[1]), *args[2:])
        elif func is aten.addmm.default:
            args = (args[0], *_operands(args[1], args[2]))
        elif func is aten.linear.default:
            args = (*_operands(args[0], args[1]), *args[2:])
        return super().__torch_dispatch__(func, types, args, kwargs)


def _rebuild(tensors: list[Tensor], meta: Any, shape: Any, requires_grad: bool, parameter: bool) -> Tensor:
    """What ``__reduce_ex__`` took apart."""
    made = MXTensor.__tensor_unflatten__({"codes": tensors[0], "scales": tensors[1]}, meta, shape, None)
    return torch.nn.Parameter(made, requires_grad) if parameter else made.requires_grad_(requires_grad)


def _operands(a: Any, b: Any) -> tuple[Any, Any]:
    """Both operands in MX; a plain left one is encoded as the right one says."""
    if not isinstance(b, MXTensor):
        raise AssertionError(f"the right operand is a {type(b).__name__}; allowed: MXTensor")
    if not isinstance(a, MXTensor):
        how = b.act_quant_kwargs
        if how is None:
            raise AssertionError("weight-only quant not yet supported: plain left operand without act_quant_kwargs")
        choices = (how.elem_dtype, how.block_size, how.scaling_mode, how.kernel_preference)
        a = MXTensor.to_mx(a.contiguous(), *choices, is_swizzled_scales=how.is_swizzled_scales)
    preferences = a.kernel_preference, b.kernel_preference
    if None not in preferences and preferences[0] != preferences[1]:
        raise AssertionError(f"kernel_preference {preferences[0]} and {preferences[1]}; allowed: equal ones")
    return a, b


def _check_slice(t: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> None:
    """torchao's errors for slices that cut blocks, or tiles of swizzled scales."""
    if not isinstance(t, MXTensor):
        return
    if step != 1:
        raise ValueError(f"aten.slice with step={step}; allowed: step=1")
    place = dim if dim < 0 else dim - t.ndim
    size = t.shape[place]
    first, last, _ = slice(start, end).indices(size)
    if t.is_swizzled_scales:
        by = 64 if place == t.block_dim else 128
        if place >= -2 and (first % by or (last % by and last != size)):
            raise RuntimeError(f"{first}:{last} of swizzled scales; allowed: multiples of {by}")
    elif place == t.block_dim and (first % t.block_size or (last % t.block_size and last != size)):
        raise AssertionError(f"{first}:{last} along the blocks; allowed: multiples of block_size {t.block_size}")


@allow_in_graph
class _ToMX(StraightThrough):
    """The conversion; its gradient is the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, name: str, packing: str, extra: tuple[Any, ...]) -> MXTensor:
        """``x`` encoded."""
        return MXTensor._with_fields(gs.mx.to_mx(x.detach(), name, packing=packing), *extra)


@allow_in_graph
class ToMXConstrFunc(StraightThrough):
    """``apply(data_hp, elem_dtype, block_size)`` is an ``MXTensor`` with the identity as gradient (torchao 0.6.1).

    Example:
        >>> from gemmsim.compat import torchao
        >>> encoded = torchao.ToMXConstrFunc.apply(torch.tensor([[0.3, 1.0]]), torch.float8_e4m3fn, 2)
        >>> encoded.dequantize(torch.float32)
        tensor([[0.3125, 1.0000]])
    """

    @staticmethod
    def forward(ctx: Any, data_hp: Tensor, elem_dtype: ElemDType, block_size: int = 32) -> MXTensor:
        """``MXTensor.to_mx(data_hp, elem_dtype, block_size)``, errors included (``ElementError``, ...)."""
        return MXTensor.to_mx(data_hp.detach(), elem_dtype, block_size)


@allow_in_graph
class FromMXConstrFunc(StraightThrough):
    """``apply(tensor_lp, target_dtype)`` gives the values, with the identity as gradient, as in torchao 0.6.1.

    Example:
        >>> from gemmsim.compat import torchao
        >>> encoded = torchao.MXTensor.to_mx(torch.tensor([[0.3, 1.0]]), torch.float8_e4m3fn, 2)
        >>> torchao.FromMXConstrFunc.apply(encoded, torch.float32)
        tensor([[0.3125, 1.0000]])
    """

    @staticmethod
    def forward(ctx: Any, tensor_lp: MXTensor, target_dtype: torch.dtype) -> Tensor:
        """The values in ``target_dtype``."""
        return tensor_lp.dequantize(target_dtype)


@allow_in_graph
class NoopFwToMXBw(torch.autograd.Function):
    """``apply(x, elem_dtype, block_size)`` is ``x``, and its gradient becomes an ``MXTensor``, as in torchao 0.6.1.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao.NoopFwToMXBw.apply(torch.tensor([[0.3, 1.0]]), torch.float8_e4m3fn, 2)
        tensor([[0.3000, 1.0000]])
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, elem_dtype: ElemDType, block_size: int = 32) -> Tensor:
        """``x``."""
        ctx.kind = elem_dtype, block_size
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient encoded along its last dimension."""
        return MXTensor.to_mx(grads[0].contiguous(), *ctx.kind), None, None


torch.serialization.add_safe_globals([_rebuild, MXTensor, KernelPreference, ScaleCalculationMode])
