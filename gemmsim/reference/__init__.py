"""The exact reference: slow and by definition, in Python's integers. No fast code imports it, and it imports none."""

from . import compensated, custom, exact_sum, fused, grids, hardware, integer, lookup, orders, scaled, sequential  # noqa: F401  # each enters its definitions
from .block import decode_block, encode_block, quantize_block
from .block_float import quantize_block_float, quantize_shared
from .blocked import Blocked, blocked
from .dot import Dot, implements, total
from .events import EventCounts, count_events
from .functions import apply_function
from .gemm import count_overflows, gemm
from .philox import Site, element_draw, element_draws, philox, step_draw, step_draws
from .quantize import quantize
from .rounding import round_value
from .rows import Row, row_log_softmax, row_norm, row_norm_grad, row_softmax, row_softmax_grad, row_sum
from .scaled_block import quantize_tensor, round_finite_float
from .scaled_cast import scaled_affine, scaled_block, scaled_element, scaled_integer
from .tracing import Trace, TraceStep, trace

__all__ = [
    "Blocked",
    "Dot",
    "EventCounts",
    "Row",
    "Site",
    "Trace",
    "TraceStep",
    "apply_function",
    "blocked",
    "count_events",
    "count_overflows",
    "decode_block",
    "element_draw",
    "element_draws",
    "encode_block",
    "gemm",
    "implements",
    "philox",
    "quantize",
    "quantize_block",
    "quantize_block_float",
    "quantize_shared",
    "quantize_tensor",
    "round_finite_float",
    "round_value",
    "row_log_softmax",
    "row_norm",
    "row_norm_grad",
    "row_softmax",
    "row_softmax_grad",
    "row_sum",
    "scaled_affine",
    "scaled_block",
    "scaled_element",
    "scaled_integer",
    "step_draw",
    "step_draws",
    "total",
    "trace",
]
