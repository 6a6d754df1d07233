"""torchmx's implementations of PyTorch's operators on its tensors; ``MXTensor`` has them built in."""

from __future__ import annotations

from typing import Any

from .mx_tensor import MXTensor

__all__ = [
    "autocast_to_copy",
    "implements",
    "mx_addmm",
    "mx_bmm",
    "mx_cast_up_op",
    "mx_desugar_op",
    "mx_expand",
    "mx_linear",
    "mx_mm",
    "mx_t",
    "mx_transpose",
    "mx_view_op",
]


def _operator(aten_op: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
    """What ``aten_op`` gives for these arguments, of which one is an ``MXTensor``."""
    return MXTensor.__torch_dispatch__(aten_op, types, args, kwargs or {})


autocast_to_copy = mx_addmm = mx_bmm = mx_cast_up_op = mx_desugar_op = mx_expand = _operator
mx_linear = mx_mm = mx_t = mx_transpose = mx_view_op = _operator
#: ``implements([operators])`` decorates a function of (operator, types, args, kwargs): ``MXTensor.implements``.
implements = MXTensor.implements
