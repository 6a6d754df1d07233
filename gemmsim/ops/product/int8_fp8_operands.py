"""int8, uint8 and float8 tensors as operands, where the operand's format is theirs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim.formats import Cast, FormatError, parse_cast, parse_scalar

from ..checks import check_float
from ..errors import DTypeError, GradError, message
from ..lazy_dynamo import assume_constant_result
from . import eager
from .affine_formats import QAffineFormats

__all__ = ["NARROW", "as_numbers", "is_narrow"]

#: Dtypes that are formats, and the names of these.
NARROW: dict[torch.dtype, str] = {
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
    torch.float8_e4m3fnuz: "e4m3fnuz",
    torch.float8_e5m2fnuz: "e5m2fnuz",
    torch.float8_e8m0fnu: "e8m0",
}


def is_narrow(a: Any, b: Any = None) -> bool:
    """Whether one of them is a tensor of such a dtype."""
    return getattr(a, "dtype", None) in NARROW or getattr(b, "dtype", None) in NARROW


def as_numbers(
    owner: str, a: Any, b: Any, formats: QAffineFormats, out_dtype: torch.dtype | None, names: str = "a b"
) -> tuple[Tensor, Tensor, torch.dtype]:
    """Both operands with the narrow ones in bfloat16, which holds all their values, and the dtype of the result.

    The result's dtype is as if a narrow operand were float32, unless ``out_dtype`` is given.

    Raises:
        DTypeError: for a narrow operand whose format in ``formats`` is another one, and for other dtypes.
        GradError: for a float8 operand that requires a gradient, which could not hold it.
    """
    given = dict(zip(names.split(), (a, b), strict=True))
    found: list[Tensor] = []
    dtypes: list[torch.dtype] = []
    for side, (name, t) in enumerate(given.items()):
        if not is_narrow(t):
            check_float(owner, name, t)
            found.append(t)
            dtypes.append(t.dtype)
            continue
        if t.layout is not torch.strided:
            do = f"Use {name}.to_dense()."
            raise DTypeError(message(f"{owner}: {name} has layout {t.layout}", "torch.strided", do))
        plan = formats.plan
        quant, scale = (plan.input_quant, plan.scale_input) if side == 0 else (plan.weight_quant, plan.scale_weight)
        step = quant if quant is None or isinstance(quant, str) else "a function"
        wanted = _mismatch(plan.fprop.spec, step, scale is not None, side, NARROW[t.dtype])
        if wanted is not None:
            asked = f"{owner}: {name} has dtype {t.dtype}, and the spec takes {name} {wanted}"
            do = f"Convert it first, {name}.to(torch.float32), or write {NARROW[t.dtype]} as the operand's format."
            raise DTypeError(message(asked, f"dtypes that are the operand's format: {NARROW[t.dtype]} for this", do))
        if t.requires_grad and torch.is_grad_enabled():
            asked = f"{owner}: gradient of {name}, a {t.dtype} tensor"
            raise GradError(message(asked, "gradients of float32, float64, float16 and bfloat16", "Detach it."))
        found.append(t.to(torch.bfloat16))
        dtypes.append(torch.float32)
    return found[0], found[1], torch.promote_types(*dtypes) if out_dtype is None else out_dtype


@assume_constant_result
def _mismatch(text: str | None, quant: str | None, scaled: bool, side: int, name: str) -> str | None:
    """What the operand is made to instead of the format ``name``; None where it is that format.

    Operands taken as given are float8 as well as float32; bytes are numbers only where integers are asked for.
    ``text``: the product's spec. ``quant``: the operand's quantiser. ``scaled``: whether it is scaled before.
    """
    if scaled:
        return "scaled by its largest element"
    if quant is not None:
        return None if _is_format(quant, name) else "as its quantiser makes it"
    if text is None:
        return "as PyTorch's own product does"
    spec = eager.spec_of(text)
    step = spec.a if side == 0 else spec.b
    if step is None:
        integers = name in ("int8", "uint8")
        return "as given, without a format" if integers and not spec.accumulator.integer_operands else None
    return None if isinstance(step, Cast) and step.format == parse_scalar(name) else f"in {step}"


def _is_format(step: str, name: str) -> bool:
    """Whether a quantiser is a cast to that very format."""
    try:
        return parse_cast(step).format == parse_scalar(name)
    except FormatError:
        return False
