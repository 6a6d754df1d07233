"""How far what is approximate may be off, from the unit roundoff: float32 sums of unknown order, difference quotients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

UNITS = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}

#: Relative: how far means of errors may be apart that float64 products give in two orders. They are off by K 2^-53 of their
#: size; K is below 2^9 and a size below 2^12 errors where this stands.
FLOAT64 = 2.0 ** (9 + 12 - 53)


def gamma(roundings: int, dtype: torch.dtype = torch.float32) -> float:
    """Relative bound of so many roundings in a row (Higham, Accuracy and Stability of Numerical Algorithms, 3.1)."""
    u = roundings * UNITS[dtype]
    return u / (1 - u)


def largest(*tensors: Tensor) -> float:
    """The largest finite magnitude; 0 of none."""
    return max((float(t.detach().double().abs().nan_to_num(0, 0).max()) for t in tensors if t.numel()), default=0.0)


def assert_near(
    got: Tensor, want: Tensor, roundings: int, *, size: Tensor | float | None = None, dtype: torch.dtype | None = None
) -> None:
    """Two computations of one value, each with so many ``roundings`` to ``dtype`` (``want``'s) of numbers up to ``size``.

    ``size``: the largest magnitude of ``want`` where nothing on the way is larger. NaNs and infinities are the same.
    """
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, want.shape, got.dtype, want.dtype)
    bound = 2 * gamma(roundings, dtype or want.dtype) * (largest(want) if size is None else size)
    found, wanted = got.detach().double(), want.detach().double()
    near = ((found - wanted).abs() <= bound) | (found == wanted) | (found.isnan() & wanted.isnan())
    assert bool(near.all()), f"off by {float((found - wanted).abs()[~near].max()):.3g}, allowed: {bound}"


def orders_differ(a: Tensor, b: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """How far two float32 sums of the same products may be apart, whatever their orders: 2 K u / (1 - K u) sum|a b|, with
    one more rounding for the float32 difference (Higham, 4.2)."""
    return 2 * gamma(a.shape[-1] + 1, dtype) * (a.detach().double().abs() @ b.detach().double().abs())


def assert_product(got: Tensor, a: Tensor, b: Tensor, bias: Tensor | None = None) -> None:
    """``got`` is ``a @ b``, and ``bias`` added, summed in some order in its dtype."""
    added = torch.zeros(()) if bias is None else bias.detach()
    size = a.detach().double().abs() @ b.detach().double().abs() + added.double().abs()
    exact = a.detach().double() @ b.detach().double() + added.double()
    assert bool(((got.detach().double() - exact).abs() <= gamma(a.shape[-1] + 1, got.dtype) * size).all())


def assert_gradients(call: Callable[..., Tensor], leaves: Sequence[Tensor], fast_mode: bool = False) -> None:
    """Derivatives are those of float64 difference quotients.

    A step of h = 2^-17, near the cube root of u = 2^-53, is off by h^2 f'''/6 < 2^-36 f''' and u |f| / h = 2^-36 |f|;
    |f| and |f'''| are below 2^10 in what is checked.
    """
    assert torch.autograd.gradcheck(
        call, tuple(leaves), eps=2.0**-17, atol=2.0**-26, rtol=2.0**-26, fast_mode=fast_mode
    )


def magnitudes(module: nn.Module, *inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The result of the same layers on magnitudes: of their products, sums of ``|x w|``; and the gradients of its squares."""
    absolute = copy.deepcopy(module)
    for parameter in absolute.parameters():
        parameter.data.abs_()
        parameter.grad = None
    out = absolute(*(x.detach().abs() for x in inputs))
    out.square().sum().backward()
    return out.detach(), [p.grad for p in absolute.parameters()]
