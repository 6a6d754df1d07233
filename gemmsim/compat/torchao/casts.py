"""torchao's kernels by name: the casts that Triton and CUDA compute there, on every device here."""

from __future__ import annotations

import torch
from torch import Tensor

import gemmsim as gs

from .conversions import swizzle, to_dtype, to_mx
from .elements import ceil_div
from .kinds import ElemDType, KernelPreference, MXFP8Dim1CastKernelChoice, ScaleCalculationMode
from .nvfp4 import nvfp4_quantize
from .tensor import MXTensor

__all__ = [
    "_to_blocked_single",
    "_to_mxfp8_dim1_kernel_wrapper",
    "down_size",
    "get_bits",
    "mslk_quantize_nvfp4",
    "mxfp8_quantize_cuda",
    "tensor_size_fp4x2_to_hp",
    "tensor_size_hp_to_fp4x2",
    "triton_mx_block_rearrange",
    "triton_mxfp8_dequant_dim0",
    "triton_quantize_nvfp4",
    "triton_to_mxfp8_dim0",
    "triton_to_mxfp8_dim1",
    "triton_to_mxfp8_dim1_reference",
    "up_size",
]

E4M3 = torch.float8_e4m3fn
_MODES = (ScaleCalculationMode.FLOOR, ScaleCalculationMode.RCEIL)


def _demand(fits: bool, asked: str, allowed: str) -> None:
    if not fits:
        raise AssertionError(f"{asked}; allowed: {allowed}")


def _mode(scaling_mode: str) -> ScaleCalculationMode:
    names = [mode.value for mode in _MODES]
    _demand(scaling_mode in names, f"scaling_mode {scaling_mode!r}", "'floor' and 'rceil'")
    return ScaleCalculationMode(scaling_mode)


def get_bits(x: Tensor) -> str:
    """The bits of a tensor of one integer as text, the highest first.

    Example:
        >>> from gemmsim.compat.torchao.prototype.mx_formats import kernels
        >>> kernels.get_bits(torch.tensor(5, dtype=torch.uint8))
        '00000101'
    """
    width = x.element_size() * 8
    return format(int(x.item()) & (2**width - 1), f"0{width}b")


def down_size(size: tuple[int, ...]) -> tuple[int, ...]:
    """The size of 4-bit codes packed along the last dimension.

    Raises:
        AssertionError: for an odd last dimension.

    Example:
        >>> from gemmsim.compat.torchao.prototype.mx_formats import kernels
        >>> kernels.down_size((4, 32))
        (4, 16)
    """
    _demand(size[-1] % 2 == 0, f"last dim of {tuple(size)}", "even sizes")
    return (*size[:-1], size[-1] // 2)


def up_size(size: tuple[int, ...]) -> tuple[int, ...]:
    """The size of 4-bit codes unpacked along the last dimension.

    Example:
        >>> from gemmsim.compat.torchao.prototype.mx_formats import kernels
        >>> kernels.up_size((4, 16))
        (4, 32)
    """
    return (*size[:-1], size[-1] * 2)


def _packed_dim(orig_size: tuple[int, ...], is_contiguous: bool) -> int:
    """The dimension along which codes are packed: the last one, of transposed matrices the one before."""
    if is_contiguous:
        return len(orig_size) - 1
    _demand(len(orig_size) in (2, 3), f"{len(orig_size)} dimensions, transposed", "2 and 3")
    return len(orig_size) - 2


def tensor_size_hp_to_fp4x2(orig_size: tuple[int, ...], is_contiguous: bool) -> list[int]:
    """The size of packed 4-bit codes of a tensor of ``orig_size``, contiguous or with the last two dims exchanged.

    Example:
        >>> from gemmsim.compat.torchao.prototype.mx_formats import mx_tensor
        >>> mx_tensor.tensor_size_hp_to_fp4x2((4, 32), is_contiguous=True)
        [4, 16]
    """
    size = list(orig_size)
    size[_packed_dim(orig_size, is_contiguous)] //= 2
    return size


def tensor_size_fp4x2_to_hp(orig_size: tuple[int, ...], is_contiguous: bool) -> list[int]:
    """The size of the tensor whose packed 4-bit codes have ``orig_size``.

    Example:
        >>> from gemmsim.compat.torchao.prototype.mx_formats import mx_tensor
        >>> mx_tensor.tensor_size_fp4x2_to_hp((4, 16), is_contiguous=True)
        [4, 32]
    """
    size = list(orig_size)
    size[_packed_dim(orig_size, is_contiguous)] *= 2
    return size


def triton_to_mxfp8_dim0(x: Tensor, inner_block_size: int = 32, scaling_mode: str = "rceil") -> tuple[Tensor, Tensor]:
    """Encode ``x`` in mxfp8 e4m3 with blocks along its last dimension: ``to_mx`` with the result (data, scale).

    Raises:
        AssertionError: for tensors that are not contiguous, other sizes, blocks beyond 32 and other scale modes.

    Example:
        >>> from gemmsim.compat.torchao.prototype.mx_formats import kernels
        >>> data, scale = kernels.triton_to_mxfp8_dim0(torch.full((1, 32), 0.3))
        >>> data.float()[0, 0], scale.float()
        (tensor(320.), tensor([[0.0010]]))
    """
    _demand(inner_block_size <= 32, f"inner_block_size {inner_block_size}", "32 or less")
    scale, data = to_mx(x, E4M3, inner_block_size, _mode(scaling_mode))
    return data, scale


def triton_to_mxfp8_dim1(x: Tensor, inner_block_size: int = 32, scaling_mode: str = "rceil") -> tuple[Tensor, Tensor]:
    """Encode a matrix (M, N) in mxfp8 e4m3 with blocks along its first dimension; returns (data, scale).

    ``data`` is (M, N) in column-major order, ``scale`` is (N, M / block). Errors are those of ``triton_to_mxfp8_dim0``.

    Example:
        >>> from gemmsim.compat.torchao.prototype.mx_formats import kernels
        >>> data, scale = kernels.triton_to_mxfp8_dim1(torch.ones(32, 64))
        >>> data.shape, scale.shape
        (torch.Size([32, 64]), torch.Size([64, 1]))
    """
    _demand(x.ndim == 2 and x.is_contiguous(), f"x of {x.ndim} dimensions, strides {x.stride()}", "contiguous matrices")
    data, scale = triton_to_mxfp8_dim0(x.t().contiguous(), inner_block_size, scaling_mode)
    return data.t(), scale


def triton_to_mxfp8_dim1_reference(
    x_hp: Tensor, block_size: int = 32, scaling_mode: ScaleCalculationMode = ScaleCalculationMode.RCEIL
) -> tuple[Tensor, Tensor]:
    """``triton_to_mxfp8_dim1`` with any block size and scale mode.

    Example:
        >>> from gemmsim.compat.torchao.prototype.mx_formats import kernels
        >>> data, scale = kernels.triton_to_mxfp8_dim1_reference(torch.ones(32, 64), block_size=16)
        >>> data.shape, scale.shape
        (torch.Size([32, 64]), torch.Size([64, 2]))
    """
    scale, data = to_mx(x_hp.t().contiguous(), E4M3, block_size, scaling_mode)
    return data.t(), scale


def triton_mxfp8_dequant_dim0(
    e4m3_data: Tensor, e8m0_scales: Tensor, out_dtype: torch.dtype, scale_block_size: int = 32
) -> Tensor:
    """The values of the result of ``triton_to_mxfp8_dim0`` in bfloat16 or float32.

    Raises:
        AssertionError: for other dtypes and block sizes.

    Example:
        >>> from gemmsim.compat.torchao.prototype.mx_formats import kernels
        >>> data, scale = kernels.triton_to_mxfp8_dim0(torch.full((1, 32), 0.3))
        >>> kernels.triton_mxfp8_dequant_dim0(data, scale, torch.float32)[0, :2]
        tensor([0.3125, 0.3125])
    """
    _demand(scale_block_size == 32, f"scale_block_size {scale_block_size}", "32")
    _demand(out_dtype in (torch.bfloat16, torch.float32), f"out_dtype {out_dtype}", "bfloat16 and float32")
    return to_dtype(e4m3_data, e8m0_scales, E4M3, scale_block_size, out_dtype)


def mxfp8_quantize_cuda(
    x: Tensor, rowwise: bool = False, colwise: bool = True, scaling_mode: str = "rceil"
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Encode a matrix in mxfp8 e4m3: (data, data of columns, scales, scales of columns), each empty unless requested.

    ``rowwise``: blocks along the last dimension; ``colwise``: as ``triton_to_mxfp8_dim1``.

    Raises:
        AssertionError: for sizes that are not multiples of 32, and other scale modes.

    Example:
        >>> from gemmsim.compat.torchao.prototype.mx_formats import kernels
        >>> [part.shape for part in kernels.mxfp8_quantize_cuda(torch.ones(32, 64), rowwise=True, colwise=False)]
        [torch.Size([32, 64]), torch.Size([0]), torch.Size([32, 2]), torch.Size([0])]
    """
    fits = x.ndim == 2 and not any(size % 32 for size in x.shape)
    _demand(fits, f"x of shape {tuple(x.shape)}", "matrices whose sizes are multiples of 32")
    none = x.new_empty(0, dtype=E4M3), x.new_empty(0, dtype=torch.float8_e8m0fnu)
    mode = _mode(scaling_mode).value
    rows = triton_to_mxfp8_dim0(x.contiguous(), 32, mode) if rowwise else none
    columns = triton_to_mxfp8_dim1(x.contiguous(), 32, mode) if colwise else none
    return rows[0], columns[0], rows[1], columns[1]


def _to_mxfp8_dim1_kernel_wrapper(
    a: Tensor,
    block_size: int,
    elem_dtype: ElemDType,
    hp_dtype: torch.dtype,
    kernel_preference: KernelPreference,
    cast_kernel_choice: MXFP8Dim1CastKernelChoice,
    scale_calculation_mode: ScaleCalculationMode,
) -> MXTensor:
    """``a.t()`` as an ``MXTensor`` with blocks along its last dimension; kernel choices change no bits."""
    scale, data = to_mx(a.t().contiguous(), elem_dtype, block_size, scale_calculation_mode)
    return MXTensor(data, scale, elem_dtype, block_size, hp_dtype, kernel_preference)


def _to_blocked_single(scales: Tensor) -> Tensor:
    """A tile of 128 x 4 scales in tiled order, as 32 x 16.

    Raises:
        AssertionError: for another shape.
    """
    _demand(tuple(scales.shape) == (128, 4), f"scales of shape {tuple(scales.shape)}", "(128, 4)")
    return gs.mx.to_blocked(scales).view(32, 16)


def triton_mx_block_rearrange(scale_tensor: Tensor) -> Tensor:
    """The scales of a matrix in tiled order; its sizes are padded to multiples of 128 and 4.

    Raises:
        AssertionError: for elements of more than a byte.

    Example:
        >>> from gemmsim.compat.torchao.prototype.mx_formats import kernels
        >>> kernels.triton_mx_block_rearrange(torch.ones(4, 4, dtype=torch.uint8)).shape
        torch.Size([128, 4])
    """
    _demand(scale_tensor.element_size() == 1, f"scales of {scale_tensor.dtype}", "dtypes of one byte")
    rows, columns = scale_tensor.shape
    return gs.mx.to_blocked(scale_tensor).view(128 * ceil_div(rows, 128), 4 * ceil_div(columns, 4))


def triton_quantize_nvfp4(x: Tensor, per_tensor_scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The scales in tiled order and the packed codes of ``nvfp4_quantize``, with the same bits.

    Scales are (..., 128 * ceil(M / 128), 4 * ceil(K / 64)) for (M, K); further dimensions count as rows together.

    Example:
        >>> from gemmsim.compat.torchao.prototype.mx_formats import kernels
        >>> scale, data = kernels.triton_quantize_nvfp4(torch.full((128, 64), 3.0))
        >>> scale.shape, data.shape
        (torch.Size([128, 4]), torch.Size([128, 32]))
    """
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    scale, codes = nvfp4_quantize(rows, 16, per_tensor_scale)
    tiled = swizzle(scale).view(128 * ceil_div(rows.shape[0], 128), 4 * ceil_div(scale.shape[1], 4))
    lead = x.shape[:-2]
    return tiled.view(*lead, -1, tiled.shape[-1]), codes.view(*lead, -1, codes.shape[-1])


#: Of torchao 0.17 and later; the same result.
mslk_quantize_nvfp4 = triton_quantize_nvfp4
