"""Matrix products of quantised integers in an emulated accumulator, with the scales taken off at the end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import GemmSpec
from gemmsim.ops import QAffineFormats, cublas_acceleration, last_run, qmatmul
from gemmsim.ops.arrays import takes_arrays
from gemmsim.ops.checks import check_tensor
from gemmsim.ops.dispatch import transforms_active
from gemmsim.ops.errors import DTypeError, ShapeError
from gemmsim.ops.lazy_dynamo import assume_constant_result

from .arguments import prepared, required
from .errors import AmaxError, message
from .gradients import clip_mask, fit
from .grids import grid_of, integer_name
from .operators import integers_op
from .torch_fallback import scales

__all__ = ["int_linear", "int_matmul", "integer_values", "product_formats"]

#: Products that fit so many bits are those of ``torch._int_mm``, whatever the order of their terms.
_INT32_MAX = 2**31 - 1


#: Formats by accumulator; compiled code reads them here, because it cannot read strings.
_FORMATS: dict[str, QAffineFormats] = {}


def product_formats(accumulator: str) -> QAffineFormats:
    """Forward products in ``accumulator``, operands as they are; gradients are PyTorch's own products."""
    _read(accumulator)
    return _FORMATS[accumulator]


@assume_constant_result
def _read(accumulator: str) -> None:
    if accumulator not in _FORMATS:
        spec = accumulator if ":" in accumulator else f": {accumulator}"
        _FORMATS[accumulator] = QAffineFormats(fprop=GemmSpec.parse(spec))


class _Values(torch.autograd.Function):
    """The integers; their derivative is the scale where |x| <= amax."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, amax: Tensor, grid: str) -> Tensor:
        return integers_op(x.to(torch.float32), amax, grid)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep inputs and amax."""
        x, amax, ctx.grid = inputs
        ctx.save_for_backward(x, amax)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """The gradient times the scale, where the inputs were not clipped."""
        x, amax = ctx.saved_tensors
        _, scale = scales(amax.to(torch.float32), grid_of(ctx.grid))
        return fit(grad * scale, clip_mask(x, amax)).to(x.dtype), None, None


@takes_arrays
def integer_values(
    x: Tensor, amax: Tensor | float, num_bits: int = 8, unsigned: bool = False, narrow_range: bool = True
) -> tuple[Tensor, Tensor]:
    """Return the integers of ``tensor_quant`` in float32 and their float32 scale, with the gradient of ``integers /
    scale``.

    The gradient of the integers is multiplied by the scale where |x| <= amax. Scaling back after a product therefore
    gives the straight-through gradient. Arguments and errors are those of ``tensor_quant``.

    Example:
        >>> x = torch.tensor([0.3, -1.0, 5.0], requires_grad=True)
        >>> integers, scale = gs.tensor_quant.integer_values(x, 2.0)
        >>> torch.autograd.grad((integers / scale).sum(), x)
        (tensor([1., 1., 0.]),)
    """
    name = integer_name("integer_values", num_bits, unsigned, narrow_range)
    required("integer_values", amax)
    x, scale_from, _ = prepared("integer_values", x, amax)
    assert scale_from is not None
    _, scale = scales(scale_from.to(torch.float32), grid_of(name))
    return _Values.apply(x, scale_from, name), scale


@takes_arrays
@takes_spec("accumulator")
def int_matmul(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor | float = 1.0,
    scale_b: Tensor | float = 1.0,
    *,
    spec: str = "int(32)",
    out_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """``(a @ b) / (scale_a * scale_b)`` with the sum in ``spec``, for integers a (..., M, K) and b (..., K, N).

    Args:
        a, b: whole numbers, in integer or float tensors.
        scale_a, scale_b: one number, or one for each row of a (..., M, 1) and column of b (..., 1, N), but not along
            K.
        spec: "int(32)", "int(P, wrap)", "int(P, saturate)", any other accumulator, or a whole spec. The former
            keyword ``accumulator`` is deprecated.
        out_dtype: dtype of the result.

    The sum is exact as the accumulator defines it. It is divided by the (exact) product of the scales in float64 and
    rounded to ``out_dtype``. Under ``gemmsim.cublas_acceleration``, ``torch._int_mm`` computes int8 tensors in
    int(32) if no sum can leave 32 bits; the bits are the same. Gradients are PyTorch's own products.

    Raises:
        AmaxError: for scales that are 0, NaN or infinite (not checked in compiled code and under vmap).
        ShapeError: for scales along K, and as ``gemmsim.qmatmul``.
        SpecError: for an unknown accumulator, and for operands of an integer accumulator that are not whole.

    Example:
        >>> a, b = torch.full((1, 8), 100), torch.full((8, 1), 100)
        >>> gs.tensor_quant.int_matmul(a, b), gs.tensor_quant.int_matmul(a, b, spec="int(16, wrap)")
        (tensor([[80000.]]), tensor([[14464.]]))
    """
    check_tensor("int_matmul", "a", a)
    check_tensor("int_matmul", "b", b)
    scale = _scale_product(a, b, scale_a, scale_b)
    total = _int_mm(a, b, spec)
    if total is None:
        left, right = (_carried(t) for t in (a, b))
        total = qmatmul(left, right, product_formats(spec), out_dtype=torch.float64)
    return (total.to(torch.float64) / scale).to(out_dtype)


def _carried(t: Tensor) -> Tensor:
    """Integers in a float dtype that holds them; int64 beyond 2^53 in magnitude is the only one that does not fit."""
    if t.is_floating_point():
        return t
    if t.dtype in (torch.int8, torch.uint8, torch.int16, torch.bool):
        return t.to(torch.float32)
    if t.dtype is torch.int64 and not torch.compiler.is_compiling() and t.numel() and bool((t.abs() > 1 << 53).any()):
        asked = "int_matmul: int64 operands beyond 2^53"
        raise DTypeError(message(asked, "magnitudes up to 2^53, which float64 holds", "Split them."))
    return t.to(torch.float64)


def _scale_product(a: Tensor, b: Tensor, scale_a: Tensor | float, scale_b: Tensor | float) -> Tensor:
    found = []
    for name, scale, operand, inner in (("scale_a", scale_a, a, -1), ("scale_b", scale_b, b, -2)):
        t = torch.as_tensor(scale, dtype=torch.float32, device=operand.device)
        if t.dim() >= -inner and t.shape[inner] != 1 and operand.shape[inner] != 1:
            asked = f"int_matmul: {name} of shape {tuple(t.shape)} varies along the contraction"
            raise ShapeError(message(asked, "one scale for each row or column", "Quantise along another axis."))
        looked = not (torch.compiler.is_compiling() or transforms_active() or t.is_meta)  # where numbers can be read
        if looked and not bool((t.isfinite() & (t != 0)).all()):
            asked = f"int_matmul: {name} holds 0, NaN or infinity"
            raise AmaxError(
                message(asked, "finite scales other than 0", "Take them from integer_values or tensor_quant.")
            )
        found.append(t.to(torch.float64))
    return found[0] * found[1]


def _accelerated() -> bool:
    switch: Any = cublas_acceleration  # whose class has the property
    return bool(switch.enabled)


def _int_mm(a: Tensor, b: Tensor, accumulator: str) -> Tensor | None:
    """``torch._int_mm`` where it is asked for and has the accumulator's bits."""
    if not _accelerated() or accumulator.replace(" ", "") not in ("int(32)", ":int(32)", "int8:int(32)"):
        return None
    if a.dtype is not torch.int8 or b.dtype is not torch.int8 or a.dim() != 2 or b.dim() != 2:
        return None
    if a.shape[1] != b.shape[0] or a.shape[1] * 128 * 128 > _INT32_MAX or 0 in (*a.shape, *b.shape):
        return None
    from gemmsim.backends.cublas import takes_int_mm

    if not takes_int_mm(a, b):
        return None
    last_run.record("int_matmul", "torch", "int8 : int(32)", "torch._int_mm: no sum leaves 32 bits")
    return torch._int_mm(a.contiguous(), b.contiguous())


@takes_arrays
@takes_spec("accumulator")
def int_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    input_amax: Tensor | float,
    weight_amax: Tensor | float,
    num_bits: int | tuple[int, int] = 8,
    unsigned: bool | tuple[bool, bool] = False,
    narrow_range: bool | tuple[bool, bool] = True,
    spec: str = "int(32)",
) -> Tensor:
    """``linear(x, weight, bias)`` of the integers of x and weight, in ``x``'s dtype, with straight-through gradients.

    Args:
        x, weight, bias: shapes (..., K), (N, K), (N,).
        input_amax: one number, or one for each row (..., 1).
        weight_amax: one number, or one for each output (N, 1).
        num_bits, narrow_range: of both, or (of x, of weight).
        unsigned: of x, or (of x, of weight).
        spec: as ``int_matmul``. The former keyword ``accumulator`` is deprecated.

    The result is ``int_matmul`` of the integers with the product of the scales; the bias is added in float32
    afterwards. Errors are those of ``tensor_quant`` and ``int_matmul``.

    Example:
        >>> x, weight = torch.ones(1, 1000), torch.ones(1, 1000)
        >>> gs.tensor_quant.int_linear(x, weight, input_amax=1.0, weight_amax=1.0)  # 127 * 127 * 1000 fits into int(32)
        tensor([[1000.]])
        >>> gs.tensor_quant.int_linear(x, weight, input_amax=1.0, weight_amax=1.0, spec="int(16, saturate)")
        tensor([[2.0316]])
    """
    bits_x, bits_w = num_bits if isinstance(num_bits, tuple) else (num_bits, num_bits)
    narrow_x, narrow_w = narrow_range if isinstance(narrow_range, tuple) else (narrow_range, narrow_range)
    unsigned_x, unsigned_w = unsigned if isinstance(unsigned, tuple) else (unsigned, False)
    qx, sx = integer_values(x, input_amax, bits_x, unsigned_x, narrow_x)
    qw, sw = integer_values(weight, weight_amax, bits_w, unsigned_w, narrow_w)
    if _accelerated() and max(bits_x + int(unsigned_x), bits_w + int(unsigned_w)) <= 8 and not torch.is_grad_enabled():
        qx, qw = qx.to(torch.int8), qw.to(torch.int8)
    rows = qx.reshape(-1, qx.shape[-1])
    scale_x = sx.expand(*qx.shape[:-1], 1).reshape(-1, 1) if sx.numel() > 1 and sx.shape[-1] == 1 else sx
    out = int_matmul(rows, qw.mT, scale_x, sw.mT if sw.dim() == 2 else sw, spec=spec)
    if bias is not None:
        out = out + bias.to(out.dtype)
    return out.reshape(*x.shape[:-1], weight.shape[0]).to(x.dtype)
