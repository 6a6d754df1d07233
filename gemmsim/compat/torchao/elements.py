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
    """Codes of float32 numbers in sign, ``ebits`` and ``mbits``, one to a byte, no code being infinite or NaN.

    Nearest even, subnormals kept, saturating; NaN becomes the largest value.

    Raises:
        AssertionError: for other dtypes, and more than eight bits.
    """
    return _encode(x, _floatx(ebits, mbits))


def _floatx_unpacked_to_f32(x: Tensor, ebits: int, mbits: int) -> Tensor:
    """Values of codes as ``_f32_to_floatx_unpacked`` gives them."""
    return _decode(x, _floatx(ebits, mbits))


def f32_to_f4_unpacked(x: Tensor) -> Tensor:
    """Codes of float32 numbers in e2m1, one to a byte: nearest even, saturating; NaN becomes the largest value."""
    return _encode(x, "e2m1")


def f32_to_f6_e2m3_unpacked(x: Tensor) -> Tensor:
    """Codes in e2m3; as ``f32_to_f4_unpacked``."""
    return _encode(x, "e2m3")


def f32_to_f6_e3m2_unpacked(x: Tensor) -> Tensor:
    """Codes in e3m2; as ``f32_to_f4_unpacked``."""
    return _encode(x, "e3m2")


def f4_unpacked_to_f32(x: Tensor) -> Tensor:
    """Values of e2m1 codes, one to a byte."""
    return _decode(x, "e2m1")


def f6_e2m3_unpacked_to_f32(x: Tensor) -> Tensor:
    """Values of e2m3 codes, one to a byte."""
    return _decode(x, "e2m3")


def f6_e3m2_unpacked_to_f32(x: Tensor) -> Tensor:
    """Values of e3m2 codes, one to a byte."""
    return _decode(x, "e3m2")


def pack_uint4(uint8_data: Tensor) -> Tensor:
    """Two 4-bit codes a byte along the last dimension, the first in bits 0 to 3.

    Raises:
        AssertionError: for an odd last dimension.
    """
    if uint8_data.shape[-1] % 2:
        raise AssertionError(f"last dim of {tuple(uint8_data.shape)}; allowed: even sizes")
    return uint8_data[..., ::2] | uint8_data[..., 1::2] << 4


def unpack_uint4(uint8_data: Tensor) -> Tensor:
    """The codes that ``pack_uint4`` packed.

    Raises:
        AssertionError: for a tensor that is not contiguous.
    """
    if not uint8_data.is_contiguous():
        raise AssertionError("packed codes with gaps; allowed: contiguous tensors")
    return torch.stack([uint8_data & 15, uint8_data >> 4], -1).flatten(-2)


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return (a + b - 1) // b


def to_blocked(input_matrix: Tensor, use_triton_kernel: bool = False) -> Tensor:
    """``gemmsim.mx.to_blocked``; ``use_triton_kernel`` is accepted, the order is the same."""
    return gs.mx.to_blocked(input_matrix)


def from_blocked(blocked: Tensor, original_rows: int, original_cols: int) -> Tensor:
    """``gemmsim.mx.from_blocked`` of the tiles in any shape."""
    return gs.mx.from_blocked(blocked.flatten(), original_rows, original_cols)


def hp_data_dims_to_swizzled_scale_dims_mx(hp_M: int, hp_K: int) -> tuple[int, int]:
    """Shape in which an (M, K) tensor's MX scales are kept in tiled order."""
    return 32 * ceil_div(hp_M, 128), 16 * ceil_div(hp_K, 128)


def hp_data_dims_to_swizzled_scale_dims_nvfp4(hp_M: int, hp_K: int) -> tuple[int, int]:
    """Shape in which an (M, K) tensor's NVFP4 scales are kept in tiled order."""
    return 32 * ceil_div(hp_M, 128), 16 * ceil_div(hp_K, 64)
