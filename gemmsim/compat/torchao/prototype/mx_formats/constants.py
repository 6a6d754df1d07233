"""``torchao.prototype.mx_formats.constants``: element types, and figures of the formats."""

from __future__ import annotations

import torch

from ...kinds import DTYPE_FP6_E2M3 as DTYPE_FP6_E2M3
from ...kinds import DTYPE_FP6_E3M2 as DTYPE_FP6_E3M2
from ...kinds import SUPPORTED_ELEM_DTYPES as SUPPORTED_ELEM_DTYPES

#: Up to torchao 0.12.
DTYPE_FP4 = "fp4_e2m1"
DTYPE_TO_SHORT_STR = {
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
    DTYPE_FP6_E2M3: "f6e2m3",
    DTYPE_FP6_E3M2: "f6e3m2",
    torch.float4_e2m1fn_x2: "f4e2m1",
    DTYPE_FP4: "f4e2m1",
}

F8E4M3_MAX, F8E4M3_MAX_POW2 = 448.0, 8
F8E5M2_MAX, F8E5M2_MAX_POW2 = 57344.0, 15
F6_E2M3_MAX, F6_E2M3_MAX_POW2, F6_E2M3_MIN_NORMAL, F6_E2M3_MAX_INT, F6_E2M3_EXP_BIAS = 7.5, 2, 1.0, 31, 1
F6_E3M2_MAX, F6_E3M2_MAX_POW2, F6_E3M2_MIN_NORMAL, F6_E3M2_MAX_INT, F6_E3M2_EXP_BIAS = 28.0, 4, 0.25, 31, 3
F4_E2M1_MAX, F4_E2M1_MAX_POW2, F4_E2M1_MIN_NORMAL, F4_E2M1_MAX_INT, F4_E2M1_EXP_BIAS = 6.0, 2, 1.0, 7, 1
E8M0_EXPONENT_BIAS, E8M0_EXPONENT_NAN_VAL = 127, 255
F32_EXP_BIAS = BF16_EXP_BIAS = 127
F32_MIN_NORMAL = 2.0**-126
BLOCK_SIZE_DEFAULT = 32
