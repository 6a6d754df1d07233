"""``MXTensor``: a tensor kept in a block format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gemmsim._keywords import says_keywords
from gemmsim.formats import BlockFormat
from gemmsim.ops.arrays import takes_arrays
from gemmsim.ops.checks import check_float, check_out_dtype
from gemmsim.ops.errors import DTypeError, ShapeError, message
from gemmsim.ops.forward_mode import applied

from .arguments import (
    BlockLike,
    block_key,
    block_of,
    check_codes,
    check_dim,
    check_packing,
    code_shape,
    compatible,
    scale_shape,
)
from .convert import Encoded
from .errors import no_memory
from .layout import outer_strides, room

__all__ = ["MXTensor", "dequantize_mx", "quantize_mx", "to_mx"]


class MXTensor(Tensor):
    """Element codes and scale codes as one tensor that has the shape and dtype of the tensor that was encoded.

    Args:
        codes, scales: uint8 tensors as ``gemmsim.mx.encode`` returns them.
        fmt: the block format, or its name.
        dim: the dimension along which blocks lie and codes are packed.
        size: number of elements along ``dim``; by default as many as the codes have room for.
        packing, tensor_scale: as in ``encode``.
        dtype: float32, float64, float16 or bfloat16; ``dequantize`` returns it, and products promote from it.
        act_format: block format to which a plain left operand of a product is encoded (dynamic activations).

    Attributes: ``codes``, ``scales``, ``tensor_scale`` (a 0-D float32 tensor, or None), ``format``, ``block_dim``
    (negative), ``packing``, ``act_format``.

    Operations on shapes move codes and scales; those that would divide a block raise. ``mm``, ``matmul``, ``bmm``,
    ``addmm`` and ``linear`` are ``gemmsim.mx.matmul``: exact products with sums in float32. ``sum`` adds the values.
    Every other operator raises ``MXOperatorError``, because gemmsim never decodes a tensor implicitly. NaN blocks are
    NaN in all of these.

    Raises:
        FormatError: for an unknown format.
        DTypeError, ShapeError: for codes, scales, sizes or a dtype that do not fit together.

    Example:
        >>> t = gs.mx.to_mx(torch.ones(2, 64), "mxfp4")
        >>> t.shape, t.codes.shape, t.scales.shape
        (torch.Size([2, 64]), torch.Size([2, 32]), torch.Size([2, 2]))
        >>> t[:, 32:] @ t[:, 32:].mT
        tensor([[32., 32.],
                [32., 32.]])
    """

    codes: Tensor
    scales: Tensor
    tensor_scale: Tensor | None
    format: BlockFormat
    block_dim: int
    packing: str
    act_format: BlockFormat | None

    #: Of the products of PyTorch's operators; a subclass may have another, None is a native PyTorch product.
    accumulator: str | None = "fp32"

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(
        cls: type[MXTensor],
        codes: Tensor,
        scales: Tensor,
        fmt: BlockLike,
        *,
        dim: int = -1,
        size: int | None = None,
        packing: str | None = None,
        tensor_scale: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
        act_format: BlockLike | None = None,
    ) -> MXTensor:
        """An ``MXTensor`` of these codes; nothing is copied."""
        meaning = block_of(fmt)
        check_codes("MXTensor", "codes", codes)
        where = check_dim("MXTensor", codes.dim(), dim)
        how = check_packing("MXTensor", meaning, packing)
        count = room(codes.shape[where], how) if size is None else size
        shape = [*codes.shape[:where], count, *codes.shape[where + 1 :]]
        check_codes("MXTensor", "codes", codes, code_shape(shape, where, how))
        check_codes("MXTensor", "scales", scales, scale_shape(shape, where, meaning.block_size))
        check_out_dtype("MXTensor", dtype)
        if (tensor_scale is not None) != meaning.tensor_scale:
            asked = f"MXTensor: {meaning} {'without' if tensor_scale is None else 'with'} tensor_scale"
            raise ShapeError(message(asked, "tensor_scale for formats '.../tensor'", "Pass what encode returned."))
        self = Tensor._make_wrapper_subclass(
            cls, shape, strides=outer_strides(codes, shape), dtype=dtype, device=codes.device
        )
        self.codes, self.scales, self.tensor_scale = codes, scales, tensor_scale
        self.format, self.block_dim, self.packing = meaning, where - len(shape), how
        self.act_format = None if act_format is None else block_of(act_format)
        return self

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """The operator on codes and scales; ``MXOperatorError`` for those that have no meaning there."""
        from .dispatch import dispatch

        return dispatch(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        """Shape, dtype and format; values are not decoded."""
        activations = f", act_format='{self.act_format}'" if self.act_format else ""
        grad = ", requires_grad=True" if self.requires_grad else ""
        return (
            f"{type(self).__name__}(shape={tuple(self.shape)}, dtype={self.dtype}, format='{self.format}', "
            f"block_dim={self.block_dim}, packing='{self.packing}'{activations}{grad})"
        )

    # What torch.compile, copy and pickle take apart

    def __tensor_flatten__(self) -> tuple[list[str], tuple[object, ...]]:
        """Names of the tensors inside, and what else makes this one."""
        names = ["codes", "scales", *([] if self.tensor_scale is None else ["tensor_scale"])]
        activations = None if self.act_format is None else str(self.act_format)
        return names, (str(self.format), self.block_dim, self.packing, self.dtype, activations)

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], meta: Any, outer_size: Any, outer_stride: Any) -> MXTensor:
        """The tensor that ``__tensor_flatten__`` took apart."""
        fmt, dim, packing, dtype, activations = meta
        return MXTensor(
            inner["codes"],
            inner["scales"],
            fmt,
            dim=dim,
            size=outer_size[dim],
            packing=packing,
            tensor_scale=inner.get("tensor_scale"),
            dtype=dtype,
            act_format=activations,
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Plain tensors and strings, which ``torch.load(weights_only=True)`` accepts."""
        _, meta = self.__tensor_flatten__()
        kind = "parameter" if getattr(self, "_is_param", False) else "tensor"
        return _rebuild, (self._inside(), meta, self.shape[self.block_dim], self.requires_grad, kind)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy with memory of its own."""
        if id(self) not in memo:
            copy = self.detach().clone().requires_grad_(self.requires_grad)
            if getattr(self, "_is_param", False):
                copy = torch.nn.Parameter(copy, self.requires_grad)
            memo[id(self)] = copy
        return memo[id(self)]

    # What would read the numbers in memory that a tensor of codes has not

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """``MXOperatorError``: there are codes and scales to hand over, and no numbers."""
        raise no_memory(self, "__dlpack__")

    def apply_(self, *args: Any) -> Any:
        """Not supported, because an ``MXTensor`` has no numbers in memory to overwrite.

        Raises:
            MXOperatorError: always.

        Example:
            >>> gs.mx.to_mx(torch.ones(32), "mxfp4").apply_(abs)
            Traceback (most recent call last):
                ...
            gemmsim.mx.errors.MXOperatorError: apply_ of MXTensor(shape=(32,), dtype=torch.float32, ...
        """
        raise no_memory(self, "apply_")

    # Memory of several processes

    def share_memory_(self) -> MXTensor:
        """Move codes, scales and the tensor's scale to shared memory, in place; return the tensor.

        Example:
            >>> gs.mx.to_mx(torch.ones(32), "mxfp4").share_memory_().is_shared()
            True
        """
        for part in self._inside():
            part.share_memory_()
        return self

    def is_shared(self) -> bool:
        """Return whether codes, scales and the tensor's scale are in shared memory.

        Example:
            >>> gs.mx.to_mx(torch.ones(32), "mxfp4").is_shared()
            False
        """
        return all(part.is_shared() for part in self._inside())

    def _inside(self) -> list[Tensor]:
        return [getattr(self, name) for name in self.__tensor_flatten__()[0]]

    # Conversions

    def with_parts(self, change: Callable[[Tensor], Tensor], **fields: Any) -> MXTensor:
        """Return a tensor with ``change`` applied to codes and scales; ``fields`` replace arguments of the
        constructor.

        Example:
            >>> t = gs.mx.to_mx(torch.ones(2, 32), "mxfp8_e4m3")
            >>> t.with_parts(lambda part: part[:1]).shape
            torch.Size([1, 32])
        """
        return self.rebuilt(change(self.codes), change(self.scales), **fields)

    def rebuilt(self, codes: Tensor, scales: Tensor, **fields: Any) -> MXTensor:
        """Return a tensor with these codes and scales and the other properties of this one, except for ``fields``.

        Example:
            >>> t = gs.mx.to_mx(torch.ones(32), "mxfp8_e4m3")
            >>> t.rebuilt(t.codes, t.scales + 1).dequantize().max()  # twice the scale
            tensor(2.)
        """
        same: dict[str, Any] = {
            "dim": self.block_dim,
            "size": self.shape[self.block_dim],
            "packing": self.packing,
            "tensor_scale": self.tensor_scale,
            "dtype": self.dtype,
            "act_format": self.act_format,
        }
        return MXTensor(codes, scales, self.format, **{**same, **fields})

    @property
    def encoded(self) -> Encoded:
        """Return codes and scales in the form that ``gemmsim.mx.decode`` takes.

        Example:
            >>> gs.mx.to_mx(torch.ones(4), "mxfp8_e4m3").encoded.scales
            tensor([119], dtype=torch.uint8)
        """
        return Encoded(self.codes, self.scales, self.tensor_scale)

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """Return the values as a plain tensor of ``dtype``, by default the dtype before encoding; the gradient is the
        identity.

        Rounding, NaN and overflow are those of ``gemmsim.mx.decode``.

        Raises:
            DTypeError: if ``dtype`` is not float32, float64, float16 or bfloat16.

        Example:
            >>> gs.mx.to_mx(torch.tensor([1.0, 2.9]), "mxfp4").dequantize(torch.float16)
            tensor([1., 3.], dtype=torch.float16)
        """
        from .autograd import FromMX

        check_out_dtype("MXTensor.dequantize", self.dtype if dtype is None else dtype)
        result: Tensor = applied("MXTensor.to", FromMX, self, self.dtype if dtype is None else dtype)
        return result

    def to_dtype(self, dtype: torch.dtype | None = None) -> Tensor:
        """Return ``dequantize(dtype)``.

        Example:
            >>> gs.mx.to_mx(torch.tensor([1.0, 2.9]), "mxfp4").to_dtype(torch.bfloat16)
            tensor([1., 3.], dtype=torch.bfloat16)
        """
        return self.dequantize(dtype)

    def requantize(self, dim: int, fmt: BlockLike | None = None) -> MXTensor:
        """Return ``gemmsim.mx.requantize(self, dim, fmt)``.

        Example:
            >>> gs.mx.to_mx(torch.ones(32, 64), "mxfp4").requantize(0).scales.shape
            torch.Size([1, 64])
        """
        from .autograd import requantize

        return requantize(self, dim, fmt)


def _rebuild(tensors: list[Tensor], meta: Any, size: int, requires_grad: bool, kind: str) -> Tensor:
    """What ``__reduce_ex__`` took apart."""
    fmt, dim, packing, dtype, activations = meta
    second = tensors[2] if len(tensors) > 2 else None
    made = MXTensor(
        tensors[0],
        tensors[1],
        fmt,
        dim=dim,
        size=size,
        packing=packing,
        tensor_scale=second,
        dtype=dtype,
        act_format=activations,
    )
    return torch.nn.Parameter(made, requires_grad) if kind == "parameter" else made.requires_grad_(requires_grad)


torch.serialization.add_safe_globals([_rebuild, MXTensor])


@takes_arrays
@says_keywords("fmt")
def to_mx(
    x: Tensor,
    fmt: BlockLike,
    dim: int = -1,
    *,
    packing: str | None = None,
    tensor_scale: Tensor | float | None = None,
    act_format: BlockLike | None = None,
    compat: str | None = None,
) -> MXTensor:
    """Encode ``x`` in the block format ``fmt`` with blocks along ``dim``; the ``MXTensor`` has the shape and dtype of
    ``x``.

    Arguments and special values are those of ``gemmsim.mx.encode``; ``act_format`` is that of ``MXTensor``.
    ``compat`` replaces the conversion mode of ``fmt``: "torchao", "torchao-0.18", "torchao-0.6.1", "torchmx" or
    "microxcaling". The order of packed codes is then also that system's, unless you give ``packing``. The gradient
    with respect to ``x`` is the gradient of the result (straight-through). A numpy array in place of ``x`` also gives
    an ``MXTensor``.

    Raises:
        DTypeError: for an ``MXTensor`` (use ``requantize``) and for other dtypes.
        FormatError, DeviceError, ShapeError: as ``encode``.

    Example:
        >>> weight = torch.ones(2, 32)
        >>> gs.mx.to_mx(weight, "mxfp8_e4m3")
        MXTensor(shape=(2, 32), dtype=torch.float32, format='mxfp8_e4m3', block_dim=-1, packing='bytes')
        >>> gs.mx.to_mx(weight, "mxfp4", compat="torchmx").packing
        'hi_first'
    """
    from .autograd import ToMX

    check_encodable("mx.to_mx", x)
    if compat is not None:
        fmt, order = compatible(fmt, compat)
        packing = order if packing is None else packing
    names = block_key(fmt), None if act_format is None else block_key(act_format)
    result: MXTensor = applied("to_mx", ToMX, x, names[0], dim, packing, tensor_scale, names[1])
    return result


def check_encodable(owner: str, x: Tensor) -> None:
    """``DTypeError`` unless ``x`` is a plain tensor of a supported dtype."""
    if isinstance(x, MXTensor):
        asked = f"{owner}: x is an MXTensor of {x.format}"
        raise DTypeError(message(asked, "plain tensors", "Use gemmsim.mx.requantize(x, dim, fmt)."))
    check_float(owner, "x", x)


@takes_arrays
@says_keywords("fmt")
def quantize_mx(x: Tensor, fmt: BlockLike, dim: int = -1, *, packing: str | None = None) -> Encoded:
    """Return codes, scales and the scale of the whole tensor: ``gemmsim.mx.encode`` of ``x.detach()``.

    Raises:
        FormatError, DTypeError, DeviceError, ShapeError: as ``gemmsim.mx.encode``.

    Example:
        >>> codes, scales, tensor_scale = gs.mx.quantize_mx(torch.ones(2, 32, requires_grad=True), "nvfp4/tensor")
        >>> codes.shape, scales.shape, tensor_scale.shape
        (torch.Size([2, 16]), torch.Size([2, 2]), torch.Size([]))
    """
    from .convert import encode

    check_encodable("mx.quantize_mx", x)
    return encode(x.detach(), fmt, dim=dim, packing=packing)


@takes_arrays
@says_keywords("fmt")
def dequantize_mx(
    codes: Tensor,
    scales: Tensor,
    fmt: BlockLike,
    dim: int = -1,
    *,
    size: int | None = None,
    packing: str | None = None,
    dtype: torch.dtype = torch.float32,
    tensor_scale: Tensor | float | None = None,
) -> Tensor:
    """Return the values of ``codes`` with ``scales`` in ``dtype``: ``gemmsim.mx.decode``, with its arguments.

    Example:
        >>> codes, scales, _ = gs.mx.quantize_mx(torch.tensor([1.0, 2.9]), "mxfp8_e4m3")
        >>> gs.mx.dequantize_mx(codes, scales, "mxfp8_e4m3")
        tensor([1., 3.])
    """
    from .convert import decode

    return decode((codes, scales), fmt, dim=dim, size=size, packing=packing, dtype=dtype, tensor_scale=tensor_scale)
