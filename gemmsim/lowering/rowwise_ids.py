"""Names of row operations and of their functions, with their numbers in kernels."""

from __future__ import annotations

from typing import Final

__all__ = ["FUNCTIONS", "OPERATIONS"]

#: Numbered as gemmsim::rows::Function in rows/functions.h.
FUNCTIONS: Final = {
    name: number
    for number, name in enumerate(
        "add sub mul div sqrt exp log log_add tanh erf density sigmoid tanh_cubic pow max copy".split()
    )
}
#: Numbered as gemmsim::rows::TileOp and as the C library's row operations (cutlass_kernels/cpu/rows/rows.h).
OPERATIONS: Final = {
    name: number for number, name in enumerate("map sum softmax log_softmax softmax_grad norm norm_grad".split())
}
