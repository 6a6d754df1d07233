"""torchmx's conversions and ``MXTensor`` on gemmsim's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim.ops.lazy_dynamo import allow_in_graph

from ..own_fields import OwnFields, StraightThrough
from ..torchao.errors import ElementError, LayoutError, StorageError, message
from .dtypes import STR_TO_SUPPORTED_ELEM_DTYPE, SUPPORTED_ELEM_DTYPES, DType, float4_e2m1, int8

__all__ = [
    "FromMXConstrFunc",
    "MXTensor",
    "NoopFwToMXBw",
    "ToMXConstrFunc",
    "ViewError",
    "dequantize_mx",
    "quantize_mx",
]

aten = torch.ops.aten
_BASES = {
    "float8_e4m3": "mxfp8_e4m3",
    "float6_e3m2": "mxfp6_e3m2",
    "float6_e2m3": "mxfp6_e2m3",
    "float4_e2m1": "mxfp4",
    "int8": "mxint8",
}
_PRODUCTS = {
    aten.mm.default: 0,
    aten.matmul.default: 0,
    aten.bmm.default: 0,
    aten.linear.default: 0,
    aten.addmm.default: 1,
}
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten._reshape_alias.default)
#: Functions that people registered with ``MXTensor.implements``.
_IMPLEMENTED: dict[Any, Callable[..., Any]] = {}


def _format(elem_dtype_name: str, block_size: int) -> tuple[str, str]:
    """gemmsim's names of the format and of the order of packed codes."""
    if elem_dtype_name not in _BASES:
        asked = f"unsupported element type {elem_dtype_name!r}"
        raise ElementError(message(asked, ", ".join(_BASES), "Try 'float8_e4m3'."))
    four = elem_dtype_name == str(float4_e2m1)
    if four and block_size % 2:
        asked = f"block_size {block_size} with {elem_dtype_name}"
        raise LayoutError(message(asked, "even ones", "Try block_size=32."))
    return f"{_BASES[elem_dtype_name]}/b{block_size}/torchmx", "hi_first" if four else "bytes"


def _known(elem_dtype: object) -> DType:
    """``elem_dtype``; ``ElementError`` unless it is one of torchmx's."""
    if isinstance(elem_dtype, DType) and elem_dtype in SUPPORTED_ELEM_DTYPES:
        return elem_dtype
    asked = f"unsupported elem_dtype {elem_dtype!r}"
    named = elem_dtype if str(elem_dtype) in _BASES else "float8_e4m3"
    allowed = "dtypes.SUPPORTED_ELEM_DTYPES (" + ", ".join(map(str, SUPPORTED_ELEM_DTYPES)) + ")"
    raise ElementError(message(asked, allowed, f"Try dtypes.{named}."))


def _quantize(data_hp: Tensor, elem_dtype_name: str, block_size: int) -> tuple[Tensor, Tensor]:
    """(scales, codes) of ``data_hp`` along its last dimension, bit for bit torchmx 0.1.0's.

    Scales are bytes, one for each block; the last block is padded with zeros. Codes are bytes, int8 for int8, two in
    each byte for float4 (the first in bits 4 to 7). torchmx takes bfloat16; float32, float64 and float16 are accepted
    too.

    Raises:
        ElementError, LayoutError: for an unknown element type, and odd blocks of float4; both are ``AssertionError``.
    """
    name, packing = _format(elem_dtype_name, block_size)
    codes, scales, _ = gs.mx.encode(data_hp.detach(), name, packing=packing)
    return scales, codes.view(torch.int8) if elem_dtype_name == str(int8) else codes


def _dequantize(
    data_lp: Tensor,
    shared_exp_e8m0: Tensor,
    elem_dtype_name: str,
    block_size: int,
    target_dtype: torch.dtype,
    block_dim: int,
) -> Tensor:
    """Values of codes and scales along ``block_dim``, for float4 two for each byte. Scale 255 gives NaN.

    Raises:
        ElementError, LayoutError: for an unknown element type, and odd blocks of float4; both are ``AssertionError``.
    """
    name, packing = _format(elem_dtype_name, block_size)
    codes = data_lp.detach().view(torch.uint8)
    return gs.mx.decode((codes, shared_exp_e8m0), name, dim=block_dim, packing=packing, dtype=target_dtype)


quantize_mx = torch.library.custom_op("torchmx::quantize_mx", _quantize, mutates_args=())
dequantize_mx = torch.library.custom_op("torchmx::dequantize_mx", _dequantize, mutates_args=())
torch.library.register_fake("torchmx::quantize_mx", _quantize)
torch.library.register_fake("torchmx::dequantize_mx", _dequantize)
# An operator's own signature is (*args, **kwargs).
quantize_mx.__signature__ = inspect.signature(_quantize)  # type: ignore[attr-defined]
dequantize_mx.__signature__ = inspect.signature(_dequantize)  # type: ignore[attr-defined]


class ViewError(gs.ShapeError, AssertionError):
    """A view that splits or folds blocks: a ``gemmsim.ShapeError``, and the ``AssertionError`` that torchmx raises.

    Example:
        >>> from gemmsim.compat import torchmx
        >>> issubclass(torchmx.mx_tensor.ViewError, AssertionError)
        True
    """


class MXTensor(OwnFields):
    """``gemmsim.mx.MXTensor`` with torchmx's constructor and fields; products are PyTorch's of the decoded operands.

    Args:
        scale_e8m0_bits: uint8 codes of the scales, one for each block: flat, in the order of the blocks, as torchmx's
            documentation says; or with the dimensions of ``data_bits``, as its code has them and ``_scale_e8m0`` is.
        data_bits: uint8 or int8 codes; two in each byte for float4.
        elem_dtype: one of ``dtypes.SUPPORTED_ELEM_DTYPES``.
        block_size, block_dim: elements of a block, and the dimension along which blocks lie, by default the last.
        orig_dtype: the tensor's dtype.
        padding: the number of elements that the last block lacks.

    Fields: ``_scale_e8m0``, ``_data``, ``_elem_dtype``, ``_block_size``, ``_orig_dtype`` (assignable), ``_padding``
    and ``_block_dim`` (counted from 0). Views that split or fold blocks raise ``ViewError``, an ``AssertionError``.

    Raises:
        ElementError, StorageError, LayoutError: for element types, dtypes and shapes that do not fit each other; all
            are ``AssertionError``.

    Example:
        >>> from gemmsim.compat import torchmx
        >>> encoded = torchmx.MXTensor.to_mx(torch.tensor([[0.3, 1.0]]), torchmx.dtypes.float8_e4m3, 2)
        >>> encoded.to_dtype(torch.float32), encoded._scale_e8m0
        (tensor([[0.3125, 1.0000]]), tensor([[119]], dtype=torch.uint8))
    """

    _elem_dtype: DType
    _orig_dtype: torch.dtype
    _own_fields = ("_elem_dtype",)

    @staticmethod
    def __new__(
        cls: type[MXTensor],
        scale_e8m0_bits: Tensor,
        data_bits: Tensor,
        elem_dtype: DType,
        block_size: int,
        orig_dtype: torch.dtype,
        padding: int = 0,
        block_dim: int | None = None,
    ) -> MXTensor:
        """A tensor of these codes; nothing is copied."""
        name, packing = _format(_known(elem_dtype).name, block_size)
        for what, given, dtypes in (
            ("scale_e8m0_bits", scale_e8m0_bits, (torch.uint8,)),
            ("data_bits", data_bits, (torch.uint8, torch.int8)),
        ):
            if given.dtype not in dtypes:
                allowed = " and ".join(map(str, dtypes))
                raise StorageError(
                    message(f"MXTensor: {what} of {given.dtype}", allowed, "Give what quantize_mx does.")
                )
        where = data_bits.dim() - 1 if block_dim is None else block_dim % data_bits.dim()
        shape = list(data_bits.shape)
        if elem_dtype == float4_e2m1:
            shape[where] = 2 * shape[where] - padding % 2
        scales = _scales(scale_e8m0_bits, shape, where, block_size, padding)
        codes = data_bits.view(torch.uint8)
        plain = gs.mx.MXTensor(codes, scales, name, dim=where, size=shape[where], packing=packing, dtype=orig_dtype)
        return MXTensor._with_fields(plain, elem_dtype)

    @staticmethod
    def to_mx(data_hp: Tensor, elem_dtype: DType, block_size: int = 32) -> MXTensor:
        """``data_hp`` in MX along its last dimension; the gradient is the identity.

        Raises:
            ElementError, LayoutError: for an unknown element type, and odd blocks of float4.
        """
        result: MXTensor = ToMXConstrFunc.apply(data_hp, elem_dtype, block_size)
        return result

    def to_dtype(self, target_dtype: torch.dtype | None = None) -> Tensor:
        """The values in ``target_dtype``; the gradient is the identity.

        4-bit floats with a short last block have no gradient: the backward pass raises ``ValueError``.
        """
        values = self.dequantize(self._orig_dtype if target_dtype is None else target_dtype)
        if self._padding and self._elem_dtype == float4_e2m1 and values.requires_grad:
            refused: Tensor = _RefuseGrad.apply(values)
            return refused
        return values

    @classmethod
    def implements(cls, aten_ops: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: a function of (operator, types, args, kwargs) computes these operators on such tensors."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            for operator in aten_ops if isinstance(aten_ops, (list, tuple)) else [aten_ops]:
                _IMPLEMENTED[operator] = function
            return function

        return register

    @property
    def _scale_e8m0(self) -> Tensor:
        return self.scales

    @property
    def _data(self) -> Tensor:
        return self.codes.view(torch.int8) if self._elem_dtype == int8 else self.codes

    @property
    def _block_size(self) -> int:
        return self.format.block_size

    @property
    def _block_dim(self) -> int:
        return self.ndim + self.block_dim

    @property
    def _padding(self) -> int:
        return -self.shape[self.block_dim] % self.format.block_size

    @classmethod
    def _with_fields(cls, plain: gs.mx.MXTensor, *values: Any) -> MXTensor:
        """A tensor of the codes of ``plain`` with this element type, in ``plain``'s dtype."""
        made = super()._with_fields(plain, *values)
        made._orig_dtype = plain.dtype
        return made

    def rebuilt(self, codes: Tensor, scales: Tensor, **fields: Any) -> MXTensor:
        """As ``gemmsim.mx.MXTensor.rebuilt``, with this tensor's fields."""
        return super().rebuilt(codes, scales, **{"dtype": self._orig_dtype, **fields})

    def __tensor_flatten__(self) -> tuple[list[str], tuple[object, ...]]:
        names, meta = super().__tensor_flatten__()
        return names, (*meta, self._elem_dtype.name, self._orig_dtype)

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], meta: Any, outer_size: Any, outer_stride: Any) -> MXTensor:
        plain = gs.mx.MXTensor.__tensor_unflatten__(inner, meta[:-2], outer_size, outer_stride)
        made = MXTensor._with_fields(plain, STR_TO_SUPPORTED_ELEM_DTYPE[meta[-2]])
        made._orig_dtype = meta[-1]
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        names, meta = self.__tensor_flatten__()
        inner = {name: getattr(self, name) for name in names}
        return _rebuild, (inner, meta, self.shape, self.requires_grad, getattr(self, "_is_param", False))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """gemmsim's operator; operands of products are read in their ``_orig_dtype``."""
        if func in _IMPLEMENTED:
            return _IMPLEMENTED[func](func, types, args, kwargs or {})
        if func in _PRODUCTS:
            args = tuple(
                t.rebuilt(t.codes, t.scales) if isinstance(t, MXTensor) and t._orig_dtype != t.dtype else t
                for t in args
            )
        if func not in _VIEWS:
            return super().__torch_dispatch__(func, types, args, kwargs)
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        except gs.ShapeError as error:
            raise ViewError(str(error)) from None


def _scales(given: Tensor, shape: list[int], where: int, block_size: int, padding: int) -> Tensor:
    """Scales of a tensor of this shape with its dimensions; flat ones are in the order of the blocks."""
    full = [*shape[:where], -(-shape[where] // block_size), *shape[where + 1 :]]
    flat = [torch.Size(full).numel()]
    if list(given.shape) not in (full, flat):
        asked = f"MXTensor: scale_e8m0_bits of shape {list(given.shape)} for elements of shape {shape}"
        do = f"One scale for {block_size} elements along dim {where}."
        raise LayoutError(message(asked, f"{full}, or flat, {flat}", do))
    if padding != -shape[where] % block_size:
        asked = f"MXTensor: padding={padding} for {shape[where]} elements in blocks of {block_size}"
        raise LayoutError(message(asked, str(-shape[where] % block_size), "Give what the last block lacks."))
    return given.reshape(full)


def _rebuild(inner: dict[str, Tensor], meta: Any, shape: Any, requires_grad: bool, parameter: bool) -> Tensor:
    """What ``__reduce_ex__`` took apart."""
    made = MXTensor.__tensor_unflatten__(inner, meta, shape, None)
    return torch.nn.Parameter(made, requires_grad) if parameter else made.requires_grad_(requires_grad)


torch.serialization.add_safe_globals([_rebuild, MXTensor])


class _RefuseGrad(torch.autograd.Function):
    """The values as they are; there is no gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor) -> Tensor:
        """``values``."""
        return values.view_as(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """``ValueError``."""
        raise _short_block()


def _short_block() -> ValueError:
    return ValueError(
        "the gradient of 4-bit floats whose last block is short; allowed: sizes that are multiples of block_size.\n"
        "  Fill the last dimension with zeros before encoding, or use another element type."
    )


@allow_in_graph
class ToMXConstrFunc(StraightThrough):
    """``apply(data_hp, elem_dtype, block_size, padding)`` is an ``MXTensor``, with the identity as gradient.

    Example:
        >>> from gemmsim.compat import torchmx
        >>> encoded = torchmx.mx_tensor.ToMXConstrFunc.apply(torch.tensor([[0.3, 1.0]]), torchmx.dtypes.int8, 2)
        >>> encoded.to_dtype(torch.float32)
        tensor([[0.2969, 1.0000]])
    """

    @staticmethod
    def forward(
        ctx: Any, data_hp: Tensor, elem_dtype: DType, block_size: int = 32, padding: int | None = None
    ) -> MXTensor:
        """``data_hp`` in MX along its last dimension; ``padding`` is what its last block lacks, None to compute it.

        Raises:
            ElementError, LayoutError: for an unknown element type, odd blocks of float4, and another padding.
        """
        name, packing = _format(_known(elem_dtype).name, block_size)
        lacking = -data_hp.shape[-1] % block_size
        if padding not in (None, lacking):
            asked = f"padding={padding} of {data_hp.shape[-1]} elements in blocks of {block_size}"
            raise LayoutError(message(asked, str(lacking), "Leave it out."))
        return MXTensor._with_fields(gs.mx.to_mx(data_hp.detach(), name, packing=packing), elem_dtype)


@allow_in_graph
class FromMXConstrFunc(torch.autograd.Function):
    """``apply(tensor_lp, target_dtype)`` gives the values, with the identity as gradient.

    Example:
        >>> from gemmsim.compat import torchmx
        >>> encoded = torchmx.MXTensor.to_mx(torch.tensor([[0.3, 1.0]]), torchmx.dtypes.float8_e4m3, 2)
        >>> torchmx.mx_tensor.FromMXConstrFunc.apply(encoded, torch.float32)
        tensor([[0.3125, 1.0000]])
    """

    @staticmethod
    def forward(ctx: Any, tensor_lp: MXTensor, target_dtype: torch.dtype) -> Tensor:
        """The values in ``target_dtype``, of ``tensor_lp``'s shape."""
        ctx.refused = tensor_lp._padding > 0 and tensor_lp._elem_dtype == float4_e2m1
        return tensor_lp.dequantize(target_dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient, as it is.

        Raises:
            ValueError: for 4-bit floats with a short last block.
        """
        if ctx.refused:
            raise _short_block()
        return grads[0], None


@allow_in_graph
class NoopFwToMXBw(torch.autograd.Function):
    """``apply(x, elem_dtype, block_size)`` is ``x``, and its gradient becomes an ``MXTensor``.

    Example:
        >>> from gemmsim.compat import torchmx
        >>> torchmx.mx_tensor.NoopFwToMXBw.apply(torch.tensor([[0.3, 1.0]]), torchmx.dtypes.float8_e4m3, 2)
        tensor([[0.3000, 1.0000]])
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, elem_dtype: DType, block_size: int = 32) -> Tensor:
        """``x``.

        Raises:
            ElementError: for an unknown element type.
        """
        ctx.kind = _known(elem_dtype), block_size
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient encoded along its last dimension."""
        return MXTensor.to_mx(grads[0], *ctx.kind), None, None
