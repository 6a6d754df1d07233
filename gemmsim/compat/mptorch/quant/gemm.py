"""mptorch's raw matrix products.

Sums start at +0 and go over k = 0, 1, ... in order. Each step is rounded once, from its exact value;
``arithmetic="fp32"`` rounds it to float32 first, as mptorch's kernels do. ``accumulate`` selects another order
("chunk(8)" is that of mptorch's CUDA kernels), and ``seed`` fixes the random bits. Shapes are those of ``torch.mm`` and
``torch.matmul``, errors ``ShapeError``. The gradients are those of ``gemmsim.qmatmul`` with the same spec.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

import gemmsim as gs
from gemmsim.arithmetic import Accumulator, GemmSpec
from gemmsim.ops.lazy_dynamo import assume_constant_result

from ..number import FixedPoint, FloatingPoint, Number, SuperNormalFloat
from .formats import QAffineFormats, accumulator_of

__all__ = ["float_bmm", "float_mm", "fxp_bmm", "fxp_mm", "mp_bmm", "mp_mm", "superfp_bmm", "superfp_mm"]


def float_mm(
    a: Tensor, b: Tensor, man_add: int = 23, exp_add: int = 8, man_mul: int = 23, exp_mul: int = 8,
    rounding: str = "nearest", fma: bool = True, subnormals: bool = True, saturate: bool = True,
    compensated: bool | None = False, rbits_add: int = 0, rbits_mul: int = 0, *,
    accumulate: str | Accumulator = "sequential", arithmetic: str = "exact", seed: int | None = None,
) -> Tensor:  # fmt: skip
    """``a @ b`` of two matrices: sums in ``FloatingPoint(exp_add, man_add)``, products in (exp_mul, man_mul) or fused.

    Widths of the significand come before those of the exponent. Inside ``cublas_acceleration`` cuBLAS computes the
    product where ``match_mac_format_with_cublas_types`` finds types and nothing is compensated.

    Example:
        >>> from gemmsim.compat.mptorch.quant import float_mm
        >>> float_mm(torch.ones(1, 9), torch.ones(9, 1), man_add=2, exp_add=5)  # 8 + 1 rounds to 8
        tensor([[8.]])
    """
    widths = (man_add, exp_add, man_mul, exp_mul)
    options = (rounding, fma, subnormals, saturate, compensated, rbits_add, rbits_mul)
    return gs.qmm(a, b, _float_spec(widths, options, accumulate, arithmetic), seed=seed)


def float_bmm(
    a: Tensor, b: Tensor, man_add: int = 23, exp_add: int = 8, man_mul: int = 23, exp_mul: int = 8,
    rounding: str = "nearest", fma: bool = True, subnormals: bool = True, saturate: bool = True,
    compensated: bool | None = False, rbits_add: int = 0, rbits_mul: int = 0, *,
    accumulate: str | Accumulator = "sequential", arithmetic: str = "exact", seed: int | None = None,
) -> Tensor:  # fmt: skip
    """``float_mm`` of batches.

    Example:
        >>> from gemmsim.compat.mptorch.quant import float_bmm
        >>> float_bmm(torch.ones(2, 1, 9), torch.ones(9, 1), man_add=2, exp_add=5).flatten()
        tensor([8., 8.])
    """
    widths = (man_add, exp_add, man_mul, exp_mul)
    options = (rounding, fma, subnormals, saturate, compensated, rbits_add, rbits_mul)
    return gs.qmatmul(a, b, _float_spec(widths, options, accumulate, arithmetic), seed=seed)


def fxp_mm(
    a: Tensor, b: Tensor, wl_add: int = 16, fl_add: int = 8, wl_mul: int = 16, fl_mul: int = 8, symmetric: bool = False,
    rounding: str = "nearest", fma: bool = True, *, accumulate: str | Accumulator = "sequential",
    arithmetic: str = "exact", seed: int | None = None,
) -> Tensor:  # fmt: skip
    """``a @ b`` of two matrices in fixed point, which always clamps.

    Example:
        >>> from gemmsim.compat.mptorch.quant import fxp_mm
        >>> fxp_mm(torch.full((1, 9), 0.3), torch.ones(9, 1), wl_add=8, fl_add=2)  # each sum is a multiple of 1/4
        tensor([[2.2500]])
    """
    spec = _fixed_spec((wl_add, fl_add), (wl_mul, fl_mul), symmetric, fma, rounding, accumulate, arithmetic)
    return gs.qmm(a, b, spec, seed=seed)


def fxp_bmm(
    a: Tensor, b: Tensor, wl_add: int = 16, fl_add: int = 8, wl_mul: int = 16, fl_mul: int = 8, symmetric: bool = False,
    rounding: str = "nearest", fma: bool = True, *, accumulate: str | Accumulator = "sequential",
    arithmetic: str = "exact", seed: int | None = None,
) -> Tensor:  # fmt: skip
    """``fxp_mm`` of batches.

    Example:
        >>> from gemmsim.compat.mptorch.quant import fxp_bmm
        >>> fxp_bmm(torch.full((2, 1, 9), 0.3), torch.ones(9, 1), wl_add=8, fl_add=2).flatten()
        tensor([2.2500, 2.2500])
    """
    spec = _fixed_spec((wl_add, fl_add), (wl_mul, fl_mul), symmetric, fma, rounding, accumulate, arithmetic)
    return gs.qmatmul(a, b, spec, seed=seed)


def superfp_mm(
    a: Tensor, b: Tensor, man_add: int = 7, exp_add: int = 8, binades_add: Any = 1, man_mul: int = 7, exp_mul: int = 8,
    binades_mul: Any = 1, rounding: str = "nearest", fma: bool = True, saturate: bool = False, *,
    accumulate: str | Accumulator = "sequential", arithmetic: str = "exact", seed: int | None = None,
) -> Tensor:  # fmt: skip
    """``a @ b`` of two matrices in supernormal floats. ``superfp_bmm`` has another order and another default.

    Example:
        >>> from gemmsim.compat.mptorch.quant import superfp_mm
        >>> superfp_mm(torch.ones(1, 9), torch.ones(9, 1), man_add=2, exp_add=5)
        tensor([[8.]])
    """
    add, mul = (exp_add, man_add, binades_add), (exp_mul, man_mul, binades_mul)
    return gs.qmm(a, b, _super_spec(add, mul, saturate, fma, rounding, accumulate, arithmetic), seed=seed)


def superfp_bmm(
    a: Tensor, b: Tensor, man_add: int = 7, exp_add: int = 8, man_mul: int = 7, exp_mul: int = 8, binades_add: Any = 1,
    binades_mul: Any = 1, rounding: str = "nearest", fma: bool = True, saturate: bool = True, *,
    accumulate: str | Accumulator = "sequential", arithmetic: str = "exact", seed: int | None = None,
) -> Tensor:  # fmt: skip
    """``superfp_mm`` of batches. The binades come after both pairs of widths, and it saturates by default.

    Example:
        >>> from gemmsim.compat.mptorch.quant import superfp_bmm
        >>> superfp_bmm(torch.ones(2, 1, 9), torch.ones(9, 1), man_add=2, exp_add=5).flatten()
        tensor([8., 8.])
    """
    add, mul = (exp_add, man_add, binades_add), (exp_mul, man_mul, binades_mul)
    return gs.qmatmul(a, b, _super_spec(add, mul, saturate, fma, rounding, accumulate, arithmetic), seed=seed)


def mp_mm(
    a: Tensor, b: Tensor, formats: QAffineFormats, use_forward: bool = True, *, seed: int | None = None
) -> Tensor:
    """``a @ b`` of two matrices as the forward (or backward) product of ``formats``; fused float32 if it has none.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> formats = quant.QAffineFormats(fwd_mac=FloatingPoint(5, 2))
        >>> [quant.mp_mm(torch.ones(1, 9), torch.ones(9, 1), formats, forward).item() for forward in (True, False)]
        [8.0, 9.0]
    """
    return gs.qmm(a, b, _spec_of(formats, use_forward), seed=_seed_of(formats, seed))


def mp_bmm(
    a: Tensor, b: Tensor, formats: QAffineFormats, use_forward: bool = True, *, seed: int | None = None
) -> Tensor:
    """``mp_mm`` of batches.

    Example:
        >>> from gemmsim.compat.mptorch import FloatingPoint, quant
        >>> formats = quant.QAffineFormats(fwd_mac=FloatingPoint(5, 2))
        >>> quant.mp_bmm(torch.ones(2, 1, 9), torch.ones(9, 1), formats).flatten()
        tensor([8., 8.])
    """
    return gs.qmatmul(a, b, _spec_of(formats, use_forward), seed=_seed_of(formats, seed))


def _spec_of(formats: QAffineFormats, use_forward: bool) -> GemmSpec | str:
    return (formats.fprop if use_forward else formats.dgrad) or ":fp32"


def _seed_of(formats: QAffineFormats, seed: int | None) -> int | None:
    return formats.seed if seed is None else seed


def _spec(add: Number, mul: Number | None, rounding: str, accumulate: str | Accumulator, arithmetic: str) -> GemmSpec:
    product = None if mul is None else mul.target(rounding)
    return GemmSpec(accumulator=accumulator_of(add.target(rounding), product, accumulate), arithmetic=arithmetic)


# By name, and constants of compiled code, which cannot make formats.
@assume_constant_result
def _fixed_spec(
    add: tuple[int, int], mul: tuple[int, int], symmetric: bool, fma: bool, rounding: str,
    accumulate: str | Accumulator, arithmetic: str,
) -> str:  # fmt: skip
    sums, products = (FixedPoint(*widths, symmetric=symmetric) for widths in (add, mul))
    return str(_spec(sums, None if fma else products, rounding, accumulate, arithmetic))


@assume_constant_result
def _super_spec(
    add: tuple[int, int, Any], mul: tuple[int, int, Any], saturate: bool, fma: bool, rounding: str,
    accumulate: str | Accumulator, arithmetic: str,
) -> str:  # fmt: skip
    products = None if fma else SuperNormalFloat(*mul, saturate)
    return str(_spec(SuperNormalFloat(*add, saturate), products, rounding, accumulate, arithmetic))


@assume_constant_result
def _float_spec(
    widths: tuple[int, int, int, int], options: tuple[Any, ...], accumulate: str | Accumulator, arithmetic: str
) -> str:
    rounding, fma, subnormals, saturate, compensated, rbits_add, rbits_mul = options
    man_add, exp_add, man_mul, exp_mul = widths
    add = FloatingPoint(exp_add, man_add, subnormals, saturate).target(rounding, rbits_add)
    mul = None if fma else FloatingPoint(exp_mul, man_mul, subnormals, saturate).target(rounding, rbits_mul)
    return str(GemmSpec(accumulator=accumulator_of(add, mul, accumulate, compensated), arithmetic=arithmetic))
