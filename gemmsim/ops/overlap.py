"""Whether an ``out`` tensor may be written: overlap of strided views."""

from __future__ import annotations

from torch import Tensor

from .errors import OverlapError, ShapeError, message

__all__ = ["check_out"]


def check_out(owner: str, x: Tensor, out: Tensor) -> None:
    """Checks that the elements of ``out`` are distinct, match ``x`` in shape, and share none or all of its memory.

    ``out`` may be ``x``, or a view of the same elements in the same order with the same dtype: each element is read
    before it is written. Views whose address ranges meet while their layouts differ count as overlapping.

    Raises:
        ShapeError: for another shape.
        OverlapError: for every other ``out`` than these.
    """
    if out.shape != x.shape:
        asked = f"{owner}: out has shape {tuple(out.shape)}, x has shape {tuple(x.shape)}"
        raise ShapeError(message(asked, "equal shapes", "Give out = torch.empty_like(x)."))
    if out.is_neg():
        raise OverlapError(message(f"{owner}: out is a lazily negated view", "an ordinary tensor", "Use a copy."))
    if _repeats_elements(out):
        asked = f"{owner}: elements of out share memory (shape {tuple(out.shape)}, strides {out.stride()})"
        raise OverlapError(message(asked, "an out with distinct elements", "Leave out away."))
    if _overlap(x, out):
        asked = f"{owner}: out and x overlap in memory without being the same view"
        raise OverlapError(message(asked, "out=x, or separate memory", "Quantize into a new tensor, then copy_."))


def _dims(t: Tensor) -> list[tuple[int, int]]:
    """(stride, size) of the dimensions that matter, widest stride first."""
    return sorted(((abs(s), n) for s, n in zip(t.stride(), t.shape, strict=True) if n > 1), reverse=True)


def _repeats_elements(t: Tensor) -> bool:
    """Whether two indices may mean one address: some stride is within reach of the narrower dimensions."""
    if t.numel() == 0:
        return False
    reach = 0
    for stride, size in reversed(_dims(t)):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _byte_range(t: Tensor) -> tuple[int, int]:
    last = sum(s * (n - 1) for s, n in _dims(t))
    return t.data_ptr(), t.data_ptr() + (last + 1) * t.element_size()


def _overlap(x: Tensor, out: Tensor) -> bool:
    if x is out or x.numel() == 0 or x.device != out.device or x.device.type == "meta":
        return False
    (x_first, x_end), (out_first, out_end) = _byte_range(x), _byte_range(out)
    if x_end <= out_first or out_end <= x_first:
        return False
    if x.dtype != out.dtype or _dims(x) != _dims(out) or x.stride() != out.stride():
        return True
    return x_first != out_first and _same_strides_meet(abs(x_first - out_first), x.element_size(), _dims(out))


def _same_strides_meet(byte_shift: int, element_size: int, dims: list[tuple[int, int]]) -> bool:
    """Whether two views with the strides and sizes ``dims``, ``byte_shift`` apart, have an address in common.

    That is: whether the shift is a sum of stride * difference with |difference| < size. The strides are nested (no
    stride within reach of the narrower ones), so at most two differences per dimension can lead there.
    """
    if byte_shift % element_size:
        return True

    def reachable(shift: int, level: int) -> bool:
        if level == len(dims):
            return shift == 0
        stride, size = dims[level]
        steps = {shift // stride, -(-shift // stride)}
        return any(abs(d) < size and reachable(shift - d * stride, level + 1) for d in steps)

    return reachable(byte_shift // element_size, 0)
