"""torchmx's element types, as data."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = [
    "DType",
    "E8M0_EXPONENT_BIAS",
    "E8M0_EXPONENT_NAN_VAL",
    "STR_TO_SUPPORTED_ELEM_DTYPE",
    "SUPPORTED_ELEM_DTYPES",
    "SUPPORTED_FP_ELEM_DTYPES",
    "bfloat16",
    "e8m0",
    "float22_e8m13",
    "float32",
    "float4_e2m1",
    "float64",
    "float6_e2m3",
    "float6_e3m2",
    "float8_e4m3",
    "int8",
]

E8M0_EXPONENT_BIAS = 127
E8M0_EXPONENT_NAN_VAL = 255


@dataclass(frozen=True, repr=False)
class DType:
    """A number format; ``max_pow2`` is the exponent of the largest power of two. ``str`` and ``repr`` are its name.

    ``has_nan`` and ``has_inf`` are in torchmx's code but not in its documentation, so you may omit them.

    Example:
        >>> from gemmsim.compat.torchmx import dtypes
        >>> dtypes.float6_e3m2, dtypes.float6_e3m2.max
        (float6_e3m2, 28.0)
    """

    name: str
    max: float
    max_pow2: int
    exponent_bias: int
    exponent_bits: int
    mantissa_bits: int
    has_nan: bool = False
    has_inf: bool = False
    torch_dtype: torch.dtype | None = None

    def __repr__(self) -> str:
        return self.name


float8_e4m3 = DType("float8_e4m3", 448.0, 8, 7, 4, 3, True, False, torch.float8_e4m3fn)
float6_e3m2 = DType("float6_e3m2", 28.0, 4, 3, 3, 2, False, False)
float6_e2m3 = DType("float6_e2m3", 7.5, 2, 1, 2, 3, False, False)
float4_e2m1 = DType("float4_e2m1", 6.0, 2, 1, 2, 1, False, False)
int8 = DType("int8", 127.0, 6, 0, 0, 7, False, False, torch.int8)
e8m0 = DType("e8m0", 2.0**127, 127, 127, 8, 0, True, False)
float64 = DType("float64", torch.finfo(torch.float64).max, 1023, 1023, 11, 52, True, True, torch.float64)
float32 = DType("float32", torch.finfo(torch.float32).max, 127, 127, 8, 23, True, True, torch.float32)
bfloat16 = DType("bfloat16", torch.finfo(torch.bfloat16).max, 127, 127, 8, 7, True, True, torch.bfloat16)
float22_e8m13 = DType("float22_e8m13", (2 - 2.0**-13) * 2.0**127, 127, 127, 8, 13, True, True)

SUPPORTED_FP_ELEM_DTYPES = (float8_e4m3, float6_e3m2, float6_e2m3, float4_e2m1)
SUPPORTED_ELEM_DTYPES = (*SUPPORTED_FP_ELEM_DTYPES, int8)
STR_TO_SUPPORTED_ELEM_DTYPE = {found.name: found for found in SUPPORTED_ELEM_DTYPES}
