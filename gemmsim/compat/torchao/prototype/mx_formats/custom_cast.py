"""``torchao.prototype.mx_formats.custom_cast``, up to 0.10: the first of two 4-bit codes is in bits 4 to 7."""

from __future__ import annotations

from torch import Tensor

from ...casts import down_size as down_size
from ...casts import get_bits as get_bits
from ...casts import triton_to_mxfp8_dim1 as triton_to_mxfp8_dim1
from ...casts import triton_to_mxfp8_dim1_reference as triton_to_mxfp8_dim1_reference
from ...casts import up_size as up_size
from ...elements import f4_unpacked_to_f32 as f4_unpacked_to_f32
from ...elements import f6_e2m3_unpacked_to_f32 as f6_e2m3_unpacked_to_f32
from ...elements import f6_e3m2_unpacked_to_f32 as f6_e3m2_unpacked_to_f32
from ...elements import f32_to_f4_unpacked as f32_to_f4_unpacked
from ...elements import f32_to_f6_e2m3_unpacked as f32_to_f6_e2m3_unpacked
from ...elements import f32_to_f6_e3m2_unpacked as f32_to_f6_e3m2_unpacked
from ...elements import pack_uint4 as _pack
from ...elements import unpack_uint4 as _unpack


def pack_uint4(uint8_data: Tensor) -> Tensor:
    """Two 4-bit codes in each byte along the last dimension, the first in bits 4 to 7.

    Raises:
        AssertionError: for an odd last dimension.

    Example:
        >>> from gemmsim.compat.torchao.prototype.mx_formats import custom_cast
        >>> custom_cast.pack_uint4(torch.tensor([1, 2, 3, 4], dtype=torch.uint8))
        tensor([18, 52], dtype=torch.uint8)
    """
    return _exchanged(_pack(uint8_data))


def unpack_uint4(uint8_data: Tensor) -> Tensor:
    """The codes that ``pack_uint4`` packed.

    Raises:
        AssertionError: for a tensor that is not contiguous.

    Example:
        >>> from gemmsim.compat.torchao.prototype.mx_formats import custom_cast
        >>> custom_cast.unpack_uint4(torch.tensor([0x12, 0x34], dtype=torch.uint8))
        tensor([1, 2, 3, 4], dtype=torch.uint8)
    """
    return _unpack(uint8_data if not uint8_data.is_contiguous() else _exchanged(uint8_data))


def _exchanged(codes: Tensor) -> Tensor:
    """Both halves of each byte exchanged."""
    return codes << 4 | codes >> 4
