"""Codes of single elements, packing of 4-bit codes, and the scales' tiled order."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

import gemmsim as gs

__all__ = [
    "_f32_to_floatx_unpacked",
    "_floatx_unpacked_to_f32",
    "ceil_div",
    "f32_to_f4_unpacked",
    "f32_to_f6_e2m3_unpacked",
    "f32_to_f6_e3m2_unpacked",
    "f4_unpacked_to_f32",
    "f6_e2m3_unpacked_to_f32",
    "f6_e3m2_unpacked_to_f32",
    "from_blocked",
    "hp_data_dims_to_swizzled_scale_dims_mx",
    "hp_data_dims_to_swizzled_scale_dims_nvfp4",
    "pack_uint4",
    "to_blocked",
    "unpack_uint4",
]


@lru_cache(maxsize=8)
def _numbers(name: str) -> list[float]:
    found = gs.formats.parse(name)
    return [float(found.decode(code)) for code in found.codes()]  # type: ignore[union-attr]


def _values(name: str) -> Tensor:
    """The value of each code, in ascending order of codes; no tensor is kept, which exporters could have made."""
    return torch.tensor(_numbers(name), dtype=torch.float32)


def _encode(x: Tensor, name: str) -> Tensor:
    if x.dtype != torch.float32:
        raise AssertionError(f"dtype {x.dtype}; allowed: torch.float32")
    half = _values(name)[: len(_values(name)) // 2].to(x.device)
    rounded = gs.quantize(x, name, overflow="clamp").nan_to_num(nan=float(half[-1]))
    codes = torch.searchsorted(half, rounded.abs().contiguous())
    return (codes + torch.signbit(x) * len(half)).to(torch.uint8)


def _decode(codes: Tensor, name: str) -> Tensor:
    return _values(name).to(codes.device)[codes.long()]


def _floatx(ebits: int, mbits: int) -> str:
    """The name of the format of which every code is a finite number."""
    if ebits < 1 or mbits < 0 or 1 + ebits + mbits > 8:
        raise AssertionError(f"ebits={ebits}, mbits={mbits}; allowed: 1 or more, 0 or more, 1 + ebits + mbits <= 8")
    bias = 2 ** (ebits - 1) - 1
    most = 2**ebits - 1 - bias
    if ebits == 1 and mbits == 0:
        raise AssertionError("ebits=1, mbits=0; allowed: formats with more than one magnitude beside zero")
    return str(gs.formats.FloatFormat(p=mbits + 1, emin=1 - bias, emax=most, specials=gs.formats.Specials.NONE))


def _f32_to_floatx_unpacked(x: Tensor, ebits: int, mbits: int) -> Tensor:
    """The codes of float32 numbers in a format of ``ebits`` and ``mbits`` without infinity and NaN, one in each byte.

    It rounds to nearest even, keeps subnormals and saturates. NaN becomes the largest value.

    Raises:
        AssertionError: for other dtypes, and more than eight bits.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao._f32_to_floatx_unpacked(torch.tensor([0.5, -1.0, 100.0]), ebits=2, mbits=3)
        tensor([ 4, 40, 31], dtype=torch.uint8)
    """
    return _encode(x, _floatx(ebits, mbits))


def _floatx_unpacked_to_f32(x: Tensor, ebits: int, mbits: int) -> Tensor:
    """The values of the codes that ``_f32_to_floatx_unpacked`` gives.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao._floatx_unpacked_to_f32(torch.tensor([4, 40, 31], dtype=torch.uint8), ebits=2, mbits=3)
        tensor([ 0.5000, -1.0000,  7.5000])
    """
    return _decode(x, _floatx(ebits, mbits))


def f32_to_f4_unpacked(x: Tensor) -> Tensor:
    """The codes of float32 numbers in e2m1, one in each byte: nearest even, saturating. NaN becomes the largest value.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao.f32_to_f4_unpacked(torch.tensor([0.5, -1.0, 100.0]))
        tensor([ 1, 10,  7], dtype=torch.uint8)
    """
    return _encode(x, "e2m1")


def f32_to_f6_e2m3_unpacked(x: Tensor) -> Tensor:
    """The codes of float32 numbers in e2m3; as ``f32_to_f4_unpacked``.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao.f32_to_f6_e2m3_unpacked(torch.tensor([0.5, -1.0, 100.0]))
        tensor([ 4, 40, 31], dtype=torch.uint8)
    """
    return _encode(x, "e2m3")


def f32_to_f6_e3m2_unpacked(x: Tensor) -> Tensor:
    """The codes of float32 numbers in e3m2; as ``f32_to_f4_unpacked``.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao.f32_to_f6_e3m2_unpacked(torch.tensor([0.5, -1.0, 100.0]))
        tensor([ 8, 44, 31], dtype=torch.uint8)
    """
    return _encode(x, "e3m2")


def f4_unpacked_to_f32(x: Tensor) -> Tensor:
    """The values of e2m1 codes, one in each byte.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao.f4_unpacked_to_f32(torch.arange(8, dtype=torch.uint8))
        tensor([0.0000, 0.5000, 1.0000, 1.5000, 2.0000, 3.0000, 4.0000, 6.0000])
    """
    return _decode(x, "e2m1")


def f6_e2m3_unpacked_to_f32(x: Tensor) -> Tensor:
    """The values of e2m3 codes, one in each byte.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao.f6_e2m3_unpacked_to_f32(torch.tensor([1, 8, 31], dtype=torch.uint8))
        tensor([0.1250, 1.0000, 7.5000])
    """
    return _decode(x, "e2m3")


def f6_e3m2_unpacked_to_f32(x: Tensor) -> Tensor:
    """The values of e3m2 codes, one in each byte.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao.f6_e3m2_unpacked_to_f32(torch.tensor([1, 8, 31], dtype=torch.uint8))
        tensor([ 0.0625,  0.5000, 28.0000])
    """
    return _decode(x, "e3m2")


def pack_uint4(uint8_data: Tensor) -> Tensor:
    """Two 4-bit codes in each byte along the last dimension, the first in bits 0 to 3.

    Raises:
        AssertionError: for an odd last dimension.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao.pack_uint4(torch.tensor([1, 2, 3, 4], dtype=torch.uint8))
        tensor([33, 67], dtype=torch.uint8)
    """
    if uint8_data.shape[-1] % 2:
        raise AssertionError(f"last dim of {tuple(uint8_data.shape)}; allowed: even sizes")
    return uint8_data[..., ::2] | uint8_data[..., 1::2] << 4


def unpack_uint4(uint8_data: Tensor) -> Tensor:
    """The codes that ``pack_uint4`` packed.

    Raises:
        AssertionError: for a tensor that is not contiguous.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao.unpack_uint4(torch.tensor([0x21, 0x43], dtype=torch.uint8))
        tensor([1, 2, 3, 4], dtype=torch.uint8)
    """
    if not uint8_data.is_contiguous():
        raise AssertionError("packed codes with gaps; allowed: contiguous tensors")
    return torch.stack([uint8_data & 15, uint8_data >> 4], -1).flatten(-2)


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao.ceil_div(33, 32)
        2
    """
    return (a + b - 1) // b


def to_blocked(input_matrix: Tensor, use_triton_kernel: bool = False) -> Tensor:
    """``gemmsim.mx.to_blocked``. ``use_triton_kernel`` is accepted and does not change the order.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao.to_blocked(torch.arange(8, dtype=torch.uint8).view(2, 4)).shape  # padded to 128 rows
        torch.Size([512])
    """
    return gs.mx.to_blocked(input_matrix)


def from_blocked(blocked: Tensor, original_rows: int, original_cols: int) -> Tensor:
    """``gemmsim.mx.from_blocked`` for tiles in any shape.

    Example:
        >>> from gemmsim.compat import torchao
        >>> scales = torch.arange(8, dtype=torch.uint8).view(2, 4)
        >>> torchao.from_blocked(torchao.to_blocked(scales), 2, 4)
        tensor([[0, 1, 2, 3],
                [4, 5, 6, 7]], dtype=torch.uint8)
    """
    return gs.mx.from_blocked(blocked.flatten(), original_rows, original_cols)


def hp_data_dims_to_swizzled_scale_dims_mx(hp_M: int, hp_K: int) -> tuple[int, int]:
    """The shape of the MX scales of an (M, K) tensor in tiled order.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao.hp_data_dims_to_swizzled_scale_dims_mx(100, 256)
        (32, 32)
    """
    return 32 * ceil_div(hp_M, 128), 16 * ceil_div(hp_K, 128)


def hp_data_dims_to_swizzled_scale_dims_nvfp4(hp_M: int, hp_K: int) -> tuple[int, int]:
    """The shape of the NVFP4 scales of an (M, K) tensor in tiled order.

    Example:
        >>> from gemmsim.compat import torchao
        >>> torchao.hp_data_dims_to_swizzled_scale_dims_nvfp4(100, 256)
        (32, 64)
    """
    return 32 * ceil_div(hp_M, 128), 16 * ceil_div(hp_K, 64)
