"""Matrix products to compare with: float64 values and a proven bound of their distance from the exact product."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..arrays import takes_arrays
from ..checks import check_device, check_float
from ..errors import DTypeError, ShapeError, message
from .int8_fp8_operands import NARROW
from .matmul import check_operands, qmatmul
from .shapes import matmul_shape

__all__ = ["Truth", "truth"]

_FAST, _EXACT, _SIZES = ":two_sum(fp64)", ":exact(fp64)", ":fp64"
#: Unit roundoff of binary64, and its least positive number.
_U, _ETA = 2.0**-53, 2.0**-1074
#: More than what the roundings of a bound itself take from it: a dozen of them, in float64.
_SLACK = 1 + 2.0**-40


@dataclass(frozen=True, eq=False)
class Truth:
    """The result of ``truth``.

    Attributes:
        value: float64, in the shape of ``torch.matmul``.
        bound: float64, same shape; ``|value - exact| <= bound``. 0 where an infinite operand makes the value
            infinite, infinity where the product of finite operands lies beyond float64, NaN where value is NaN.
        exact: bool, same shape: true for the elements computed by ``:exact(fp64)``; the others come from
            ``:two_sum(fp64)``.
        size: float64, same shape: ``:fp64`` of |a| and |b|, the unit of backward errors.

    Example:
        >>> found = gs.truth(torch.tensor([[1e16, 1.0, -1e16]], dtype=torch.float64), torch.ones(3, 1))
        >>> found.value, found.exact, found.method
        (tensor([[1.]], dtype=torch.float64), tensor([[False]]), ':two_sum(fp64)')
    """

    value: Tensor = field(repr=False)
    bound: Tensor = field(repr=False)
    exact: Tensor = field(repr=False)
    size: Tensor = field(repr=False)

    @property
    def method(self) -> str:
        """``":two_sum(fp64)"`` or ``":exact(fp64)"``, or ``":two_sum(fp64), :exact(fp64)"`` if both were used."""
        used = [(_FAST, bool((~self.exact).any())), (_EXACT, bool(self.exact.any()))]
        return ", ".join(name for name, does in used if does) or _FAST

    def __repr__(self) -> str:
        bound = torch.as_tensor(self.bound)
        largest = float(bound.nan_to_num(nan=0.0, posinf=math.inf).max()) if bound.numel() else 0.0
        return f"<Truth {tuple(self.value.shape)} by {self.method}, largest bound {largest:g}>"


@takes_arrays
@torch.no_grad()
def truth(a: Tensor, b: Tensor, *, at_most: float | Tensor | None = None, within: float | None = None) -> Truth:
    """``a @ b`` in float64, with a rigorous bound of each element's distance from the exact product.

    Args:
        a, b: as ``torch.matmul`` takes them: float32, float64, float16, bfloat16, or float8, int8, uint8; also one of
            each, any strides.
        at_most: the largest acceptable bound, absolute, one number or a tensor that broadcasts to the product. Where
            the bound of ``:two_sum(fp64)`` is larger, ``:exact(fp64)`` computes the element: the exact product rounded
            once. Its bound is half a unit in the last place, the smallest possible one in float64 (it may still be
            above ``at_most``). None accepts what ``:two_sum(fp64)`` gives.
        within: the same relative to ``size``: bounds above ``within * size`` are too large.

    ``:exact(fp64)`` also computes every element whose ``:two_sum(fp64)`` is not finite, or has no finite bound. The
    values of an element do not depend on the other elements. Gradients are not followed.

    The bound, with x_k the products rounded to binary64, n of them, S = sum of |x_k|, u = 2^-53 and g =
    (n-1)u/(1-(n-1)u): ``half an ulp of value + g^2 S``. The first part is the final rounding. The second is Proposition
    4.5 of the source, which holds with underflow. An upper bound of S comes from ``:fp64`` of the magnitudes: ``S <=
    (fl(S) + n 2^-1074)(1 + 2nu)``. Products of operands that float32 holds are exact in binary64; others are not, and
    add ``u S/(1-u) + n 2^-1074``. The bound's own arithmetic is rounded up.

    NaN operands, 0 * inf, and infinities of both signs give NaN. K = 0 gives 0 with bound 0.

    Raises:
        DTypeError, DeviceError, ShapeError: for operands that ``gemmsim.qmatmul`` refuses, and an ``at_most`` that is
            not a number or does not broadcast. ValueError: for one that is negative or NaN. The same for ``within``.

    Source: Ogita, Rump, Oishi, "Accurate sum and dot product", SIAM J. Sci. Comput. 26 (2005), algorithm 4.4 (Sum2) and
    proposition 4.5; the accumulators ``gemmsim.arithmetic.TwoSum`` and ``Exact``.

    Example:
        >>> found = gs.truth(torch.full((1, 1000), 0.1), torch.full((1000, 1), 0.3))
        >>> found.value.item(), found.bound.item()
        (30.00000163912775, 1.7763568397709054e-15)
    """
    a, b = (t.to(torch.float32) if isinstance(t, Tensor) and t.dtype in NARROW else t for t in (a, b))
    check_operands("truth", a, b, None, None)
    left, right = a.unsqueeze(0) if a.dim() == 1 else a, b.unsqueeze(1) if b.dim() == 1 else b
    shape = matmul_shape("truth", left, right)
    enough, share = _enough(at_most, a, b, shape), _share(within)
    sizes = qmatmul(left.abs(), right.abs(), _SIZES, out_dtype=torch.float64)
    if share is not None:
        # where an operand is NaN or infinite the truth is none, whatever its method
        relative = (share * sizes).nan_to_num(nan=torch.inf, posinf=torch.inf)
        enough = relative if enough is None else torch.minimum(enough, relative)
    found = _found(left, right, sizes, enough)
    parts = []
    for part in (found.value, found.bound, found.exact, found.size):
        part = part.squeeze(-1) if b.dim() == 1 else part
        parts.append(part.squeeze(-2 if b.dim() > 1 else -1) if a.dim() == 1 else part)
    return Truth(*parts)


def _found(left: Tensor, right: Tensor, sizes: Tensor, enough: Tensor | None) -> Truth:
    value = qmatmul(left, right, _FAST, out_dtype=torch.float64)
    bound = _bound(left, right, value, sizes)
    exact = ~bound.isfinite() | ~value.isfinite()
    if enough is not None:
        exact |= bound > enough
    if bool(exact.any()):
        value, bound = _with_exact(left, right, value, bound, exact)
    return Truth(value, bound, exact, sizes)


def _bound(a: Tensor, b: Tensor, value: Tensor, sizes: Tensor) -> Tensor:
    """The bound of two_sum's results; infinite or NaN where there is none."""
    n = a.shape[-1]
    tiny = _least(value)
    total = (sizes + n * tiny) * (1 + 2 * n * _U) * _SLACK
    gamma = (n - 1) * _U / (1 - (n - 1) * _U) if n else 0.0
    share, floor = gamma * gamma, 0.0
    if not (_holds_float32(a) and _holds_float32(b)):
        share, floor = share + _U / (1 - _U) * 1.000001, n * tiny
    bound = (_half_ulp(value, tiny) + total * share + floor) * _SLACK + tiny
    return torch.where((sizes == 0) & (floor == 0), 0.0, bound)


def _with_exact(a: Tensor, b: Tensor, value: Tensor, bound: Tensor, exact: Tensor) -> tuple[Tensor, Tensor]:
    """Value and bound with the elements ``exact`` replaced; whole rows and columns without any are left out."""
    batch = tuple(range(exact.dim() - 2))
    rows = exact.any(-1).any(batch) if batch else exact.any(-1)
    columns = exact.any(-2).any(batch) if batch else exact.any(-2)
    ys, xs = rows.nonzero().squeeze(-1), columns.nonzero().squeeze(-1)
    left, right = a[..., ys, :], b[..., xs]
    found = qmatmul(left, right, _EXACT, out_dtype=torch.float64)
    tiny = _least(found)
    near = torch.where(found.isfinite(), _half_ulp(found, tiny), torch.inf)
    if _holds_float32(left) and _holds_float32(right):
        near = torch.where(found == 0, 0.0, near)  # a multiple of 2^-298
    infinite = ~left.isfinite().all(-1, keepdim=True) | ~right.isfinite().all(-2, keepdim=True)
    near = torch.where(infinite & found.isinf(), 0.0, near)
    near = torch.where(found.isnan(), torch.nan, near)
    chosen = exact[..., ys, :][..., xs]
    at = (..., ys.unsqueeze(-1), xs)
    value[at] = torch.where(chosen, found, value[at])
    bound[at] = torch.where(chosen, near, bound[at])
    return value, bound


def _half_ulp(value: Tensor, tiny: float) -> Tensor:
    """Half the distance to the next number away from zero, at least ``tiny``; infinite where value is not finite."""
    size = value.abs()
    above = torch.nextafter(size, torch.full_like(size, math.inf))
    # beyond the largest number the distance is the one below it
    gap = torch.where(above.isinf(), size - torch.nextafter(size, torch.zeros_like(size)), above - size)
    return torch.where(value.isfinite(), (gap / 2).clamp(min=tiny), torch.inf)


def _least(like: Tensor) -> float:
    """At least what one operation loses to underflow: more where the caller has PyTorch take subnormals for zero."""
    return 2.0**-1020 if _flushing(like) else _ETA


def _flushing(like: Tensor) -> bool:
    """Whether PyTorch takes subnormal numbers for zero; the kernels of products do not."""
    return bool(torch.full((), _ETA, dtype=torch.float64, device=like.device) * 1.0 == 0)


def _holds_float32(t: Tensor) -> bool:
    """Whether every element is a float32, an infinity or NaN, so that products are exact in binary64."""
    if t.dtype is not torch.float64:
        return True
    if _flushing(t):
        return False
    single = t.to(torch.float32).to(torch.float64)
    return bool(((single == t) | t.isnan()).all())


def _share(within: float | None) -> float | None:
    """``within``, checked: as ``truth`` says."""
    if within is None:
        return None
    if isinstance(within, bool) or not isinstance(within, (int, float)):
        raise DTypeError(
            message(f"truth: within={within!r}", "a number of 0 or more", "Give a fraction, such as 2**-34.")
        )
    if not within >= 0:
        raise ShapeError(
            message(f"truth: within={within}", "a number of 0 or more", "Give a fraction, such as 2**-34.")
        )
    return float(within)


def _enough(at_most: float | Tensor | None, a: Tensor, b: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """``at_most`` in float64 in the shape of the product of matrices.

    Raises:
        DTypeError, ShapeError, ValueError: as ``truth``.
    """
    if at_most is None:
        return None
    if isinstance(at_most, bool) or not isinstance(at_most, (int, float, Tensor)):
        asked = f"truth: at_most={at_most!r}"
        raise DTypeError(message(asked, "a number of 0 or more, or a tensor of them", "Give an absolute error."))
    if not isinstance(at_most, Tensor):
        at_most = torch.tensor(float(at_most), dtype=torch.float64, device=a.device)
    check_float("truth", "at_most", at_most)
    check_device("truth", a, at_most, names="a at_most")
    if not bool((at_most >= 0).all()):
        asked = "truth: at_most has a negative number or a NaN"
        raise ShapeError(
            message(asked, "numbers of 0 or more", "Give absolute errors, for instance size.abs() * 1e-3.")
        )
    limit = at_most.to(torch.float64)
    if a.dim() == 1 and b.dim() > 1 and limit.dim() > 0:
        limit = limit.unsqueeze(-2)
    elif b.dim() == 1 and limit.dim() > 0:
        limit = limit.unsqueeze(-1)
    try:
        return limit.expand(shape)
    except RuntimeError:
        asked = f"truth: at_most has shape {tuple(at_most.shape)}, the product {shape} (vectors as matrices)"
        do = "Reshape at_most, or give one number for all."
        raise ShapeError(message(asked, "an at_most that broadcasts to the product", do)) from None
