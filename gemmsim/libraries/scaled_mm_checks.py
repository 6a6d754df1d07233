"""What ``torch._scaled_mm`` and cuBLASLt look at before they multiply: shapes, dtypes, factors, layouts."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gemmsim.arithmetic import UnsupportedSpec
from gemmsim.formats.errors import message, shown
from gemmsim.ops import DeviceError, DTypeError

from .errors import LibraryError

__all__ = ["RejectedCall", "ScaledCall", "check", "check_layouts", "is_columns", "is_rows", "scaling_of"]

_E4M3, _E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
_FLOAT8 = (_E4M3, _E5M2)
_OUTPUTS = (torch.float32, torch.bfloat16, torch.float16, *_FLOAT8)
#: cuBLASLt takes sizes and leading dimensions of float8 operands that are multiples of this.
_MULTIPLE = 16
_SEPARATE = "Give assume='separate' for separate steps in float32, which were not compared with a GPU"


class RejectedCall(LibraryError, RuntimeError):
    """A call that PyTorch or cuBLASLt rejects: a RuntimeError as there, and a ValueError as bad values are here."""


class ScaledCall(NamedTuple):
    """The arguments of ``torch._scaled_mm``, ``dtype`` being that of the result."""

    input: Tensor
    mat2: Tensor
    scale_a: Tensor
    scale_b: Tensor
    bias: Tensor | None
    scale_result: Tensor | None
    dtype: torch.dtype
    fast: bool

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors of the call."""
        given = (self.input, self.mat2, self.scale_a, self.scale_b, self.bias, self.scale_result)
        return tuple(one for one in given if one is not None)

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N, K."""
        return self.input.shape[0], self.mat2.shape[1], self.input.shape[1]


def _rejected(asked: str, allowed: str, do: str) -> RejectedCall:
    return RejectedCall(message(f"scaled_mm: {asked}", allowed, do))


def _sizes(*tensors: Tensor) -> str:
    return " and ".join(str(tuple(t.shape)) for t in tensors)


def check(call: ScaledCall, out: Any, out_dtype: torch.dtype | None) -> None:
    """PyTorch's checks, in its order, which come before anything is returned early.

    Raises:
        DTypeError: for arguments that are no tensors; DeviceError: for tensors on different devices.
        RejectedCall: for what PyTorch rejects.
    """
    _check_kinds(call, out)
    a, b = call.input, call.mat2
    for name, matrix in (("input", a), ("mat2", b)):
        if matrix.dim() != 2:
            raise _rejected(f"{name} of shape {tuple(matrix.shape)}", "matrices", "Reshape it: x.reshape(-1, K).")
    if a.shape[1] != b.shape[0]:
        raise _rejected(f"shapes {_sizes(a, b)}", "(M, K) and (K, N)", "Give the weight (N, K) as weight.t().")
    for name, matrix in (("input", a), ("mat2", b)):
        if matrix.dtype not in _FLOAT8:
            do = "Convert it: (x * scale).clamp(-448, 448).to(torch.float8_e4m3fn)."
            raise _rejected(f"{name} of {matrix.dtype}", "float8_e4m3fn, float8_e5m2", do)
    scaling_of(call)
    _check_result_scale(call)
    _check_sizes(call)
    if out is not None and out_dtype is not None and out.dtype != out_dtype:
        raise _rejected(f"out_dtype={out_dtype} and out of {out.dtype}", "one dtype", "Leave out_dtype out.")
    if a.dtype == b.dtype == _E5M2:
        raise _rejected("e5m2 times e5m2", "an operand in e4m3, or both", "Convert one operand to float8_e4m3fn.")
    _check_bias(call)
    devices = {t.device for t in (*call.tensors, *(() if out is None else (out,)))}
    if len(devices) > 1:
        asked = f"scaled_mm: tensors on {', '.join(sorted(map(str, devices)))}"
        raise DeviceError(message(asked, "one device", "Move them: scale.to(input.device)."))


def _check_kinds(call: ScaledCall, out: Any) -> None:
    named = (*zip(call._fields[:6], call[:6], strict=True), ("out", out))
    for name, value in named:
        optional = name in ("bias", "scale_result", "out")
        if not isinstance(value, Tensor) and not (optional and value is None):
            do = "Create factors with torch.tensor(1.0)."
            raise DTypeError(message(f"scaled_mm: {name}={shown(value)}", "a tensor", do))
    if not isinstance(call.dtype, torch.dtype):
        raise DTypeError(message(f"scaled_mm: out_dtype={shown(call.dtype)}", "a torch dtype", "Try torch.bfloat16."))
    if type(call.fast) is not bool:
        asked = f"scaled_mm: use_fast_accum={shown(call.fast)}"
        raise DTypeError(message(asked, "True or False", "Leave it out for False."))


def scaling_of(call: ScaledCall) -> str:
    """How the operands are scaled: "whole", "rows" (of input, columns of mat2) or "blocks".

    Raises:
        RejectedCall: for factors that are none of these.
    """
    a, b, scale_a, scale_b = call[:4]
    if scale_a.dtype == scale_b.dtype == torch.float32:
        if scale_a.numel() == 1 == scale_b.numel():
            return "whole"
        shapes = tuple(scale_a.shape), tuple(scale_b.shape)
        if shapes == ((a.shape[0], 1), (1, b.shape[1])) and scale_a.is_contiguous() and scale_b.t().is_contiguous():
            return "rows"
        blocks = [_block_kinds(a, scale_a), _block_kinds(b.t(), scale_b.t() if scale_b.dim() == 2 else scale_b)]
        if all(blocks):
            return "blocks"
    if scale_a.dtype == scale_b.dtype == torch.float8_e8m0fnu:
        return "blocks"
    asked = f"factors of shapes {_sizes(scale_a, scale_b)} and dtypes {scale_a.dtype}, {scale_b.dtype}"
    allowed = f"two factors of one element in float32, or contiguous ({a.shape[0]}, 1) and (1, {b.shape[1]})"
    raise _rejected(asked, allowed, "Try scale.float().")


def _block_kinds(t: Tensor, scale: Tensor) -> bool:
    """Whether ``scale`` has a factor for each 1 x 128 or 128 x 128 block of ``t``."""
    if scale.dim() != 2 or scale.shape[1] != -(-t.shape[1] // 128):
        return False
    return scale.shape[0] in (t.shape[0], -(-t.shape[0] // 128))


def _check_result_scale(call: ScaledCall) -> None:
    last = call.scale_result
    if last is not None and (last.numel() != 1 or last.dtype != torch.float32):
        asked = f"scale_result of shape {tuple(last.shape)}, {last.dtype}"
        raise _rejected(asked, "one element in float32", "Try torch.tensor(1.0).")


def _check_sizes(call: ScaledCall) -> None:
    _, columns, terms = call.shape
    if call.bias is not None and call.bias.numel() != columns:
        raise _rejected(f"a bias of {call.bias.numel()} elements", f"{columns}, one per column", "Reshape it.")
    for name, size in (("K", terms), ("N", columns)):
        if size % _MULTIPLE:
            do = "Pad the operands with zeros."
            raise _rejected(f"{name} = {size}", f"multiples of {_MULTIPLE} for K and N", do)


def _check_bias(call: ScaledCall) -> None:
    """What PyTorch says about a bias, which cuBLASLt adds to 16-bit results only."""
    bias, dtype = call.bias, call.dtype
    if bias is None:
        return
    if dtype == torch.float32:
        raise _rejected("a bias with a result in float32", "results of 16 or 8 bits", "Add it to the result.")
    needed = torch.float16 if dtype == torch.float16 else torch.bfloat16
    allowed = (needed,) if dtype in (torch.float16, torch.bfloat16) else (torch.bfloat16, torch.float16)
    if bias.dtype not in allowed:
        words = " or ".join(str(one) for one in allowed)
        raise _rejected(f"a bias in {bias.dtype} with a result in {dtype}", words, f"Try bias.to({needed}).")


def check_layouts(call: ScaledCall, assume: str | None) -> None:
    """What cuBLASLt rejects, and what nobody has measured.

    Raises:
        RejectedCall: for layouts, leading dimensions and dtypes that cuBLASLt does not take.
        UnsupportedSpec: for a bias, and factors of rows or blocks, unless ``assume`` is "separate" (blocks: always).
    """
    a, b = call.input, call.mat2
    if not (a.is_contiguous() or is_rows(a) or not is_columns(a)):  # PyTorch copies what is neither, row by row
        raise _rejected(f"input with strides {a.stride()}", "contiguous rows", "Try input.contiguous().")
    if not (b.t().is_contiguous() or is_columns(b)):
        do = "Give weight.t() of a contiguous weight (N, K)."
        raise _rejected(f"mat2 with strides {b.stride()}", "contiguous columns", do)
    for name, leading in (("input", _leading(a)), ("mat2", _leading(b.t()))):
        if leading % _MULTIPLE:
            asked = f"{name} with {leading} elements from one row or column to the next"
            raise _rejected(asked, f"multiples of {_MULTIPLE}", "Try a contiguous copy.")
    if call.dtype not in _OUTPUTS or (call.dtype == _E5M2 and a.dtype == b.dtype):
        allowed = "float32, bfloat16, float16, float8_e4m3fn; float8_e5m2 where one operand is in it"
        raise _rejected(f"{a.dtype} times {b.dtype} to {call.dtype}", allowed, "Give another out_dtype.")
    _refuse_unmeasured(call, assume)


def _refuse_unmeasured(call: ScaledCall, assume: str | None) -> None:
    kind = scaling_of(call)
    if kind == "blocks":
        do = "Use gemmsim.mx, or promote(..., 128) of gemmsim.acc for factors of 128 terms."
        raise UnsupportedSpec(message("scaled_mm with a factor for each block", "one for an operand, or rows", do))
    if assume is None and (kind == "rows" or call.bias is not None):
        asked = "scaled_mm with " + ("a factor for each row and column" if kind == "rows" else "a bias")
        allowed = "one factor for an operand and no bias, as measured"
        raise UnsupportedSpec(message(asked, allowed, f"{_SEPARATE}."))


def is_rows(t: Tensor) -> bool:
    """Whether a matrix lies row after row, perhaps with gaps."""
    return t.stride(1) == 1 and t.stride(0) >= max(1, t.shape[1])


def is_columns(t: Tensor) -> bool:
    """Whether a matrix lies column after column, perhaps with gaps."""
    return t.stride(0) == 1 and t.stride(1) >= max(1, t.shape[0])


def _leading(t: Tensor) -> int:
    """Elements from one row to the next, of a copy where the matrix is one."""
    return t.shape[1] if t.is_contiguous() or not is_rows(t) else t.stride(0)
