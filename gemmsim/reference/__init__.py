"""The exact reference: slow, written from the definitions, in Python's integers.

The fast code does not import it, and it does not import the fast code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports
from . import compensated, custom, exact_sum, fused, grids, hardware, integer, lookup, orders, scaled, sequential  # noqa: F401  # each enters its definitions
from .block import decode_block as decode_block
from .block import encode_block as encode_block
from .block import quantize_block as quantize_block
from .block_float import quantize_block_float as quantize_block_float
from .block_float import quantize_shared as quantize_shared
from .blocked import Blocked as Blocked
from .blocked import blocked as blocked
from .dot import Dot as Dot
from .dot import implements as implements
from .dot import total as total
from .events import EventCounts as EventCounts
from .events import count_events as count_events
from .functions import apply_function as apply_function
from .gemm import count_overflows as count_overflows
from .gemm import gemm as gemm
from .philox import Site as Site
from .philox import element_draw as element_draw
from .philox import element_draws as element_draws
from .philox import philox as philox
from .philox import step_draw as step_draw
from .philox import step_draws as step_draws
from .quantize import quantize as quantize
from .rounding import round_value as round_value
from .rows import Row as Row
from .rows import row_log_softmax as row_log_softmax
from .rows import row_norm as row_norm
from .rows import row_norm_grad as row_norm_grad
from .rows import row_softmax as row_softmax
from .rows import row_softmax_grad as row_softmax_grad
from .rows import row_sum as row_sum
from .scaled_block import quantize_tensor as quantize_tensor
from .scaled_block import round_finite_float as round_finite_float
from .scaled_cast import scaled_affine as scaled_affine
from .scaled_cast import scaled_block as scaled_block
from .scaled_cast import scaled_element as scaled_element
from .scaled_cast import scaled_integer as scaled_integer
from .tracing import Trace as Trace
from .tracing import TraceStep as TraceStep
from .tracing import trace as trace

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__, star_modules=False)
