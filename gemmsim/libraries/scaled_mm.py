"""``scaled_mm``: PyTorch's product of scaled float8 matrices as cuBLASLt computes it on a GPU, wherever it runs."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.formats.errors import message, shown
from gemmsim.ops import GradError, qmatmul, subnormals
from gemmsim.ops.product.scaled_epilogue import finished, with_library_nans

from .errors import library_error
from .library import Library
from .scaled_mm_checks import RejectedCall, ScaledCall, check, check_layouts, is_columns, is_rows

__all__ = ["RejectedCall", "scaled_mm"]

#: The releases of PyTorch that ignore ``scale_result``, from the first to the one before which it was mended.
_IGNORES_RESULT_SCALE = ((2, 10), (2, 14))


def scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    *,
    out: Tensor | None = None,
    library: Library | None = None,
    split: Any = None,
    torch_version: str = "2.9",
    assume: str | None = None,
) -> Tensor:
    """``torch._scaled_mm`` with the bits of a GPU's cuBLASLt, on the device of the operands.

    Args:
        input: (M, K), float8_e4m3fn or float8_e5m2, row-major. mat2: (K, N), column-major, as ``weight.t()`` is. K and
            N are multiples of 16, and not both operands in e5m2.
        scale_a, scale_b: factors of the operands, float32 with one element. Factors (M, 1) of rows and (1, N) of
            columns need ``assume``.
        bias: (N,), bfloat16 or float16; needs ``assume``.
        scale_result: factor of a float8 result, float32 with one element; ignored for other results.
        out_dtype: float32, bfloat16, float16, float8_e4m3fn, or float8_e5m2 where one operand is in it; default: the
            dtype of ``input``.
        use_fast_accum: whether the sum is one chain of instructions. Otherwise every 128 terms are a separate chain,
            and these chains are added in float32.
        out: receives and is the result; it is resized if its shape differs (with PyTorch's warning). If it is
            column-major, M and N change places in the library's choice. An ``out`` that is neither row-major nor
            column-major is returned unchanged, with a warning, as in PyTorch.
        library: the library that multiplies, of ``gemmsim.libraries``; default: cuBLASLt 12.8 on an H100 PCIe with the
            workspace of 1 MiB that ``torch._scaled_mm`` gives it.
        split: 1, or (slices, "contiguous" | "serial" | "pairwise"): how that library divides K. None: as its table
            says.
        torch_version: the release whose rules hold. 2.10 to 2.13 ignore ``scale_result``.
        assume: "separate" computes a bias, and factors of rows, as separate steps in float32 after the sum: first the
            columns' factor, then the rows', then the bias. This was never compared with a GPU.

    The sum is that of ``library.plan(...).spec``. Then alpha = scale_a * scale_b in float32; the sum times alpha is
    rounded to float32 and then to the result's dtype. float8 results are multiplied by ``scale_result`` in float32 and
    saturate, infinities too. Exact zeros are +0; results of underflow keep their sign. K = 0 gives +0, M = 0 or N = 0
    an empty result. NaN is 0x7FFFFFFF, 0x7FFF or 0x7F. An infinite sum, and operands that are infinite or NaN, give
    what IEEE 754 says. There is no gradient. Subnormal numbers are kept; ``torch.set_flush_denormal`` has no influence.

    Raises:
        UnknownPlan: where it was never measured how the library divides K: without ``split``, and without a table that
            has the call.
        RejectedCall: (a RuntimeError and ValueError) for calls that PyTorch or cuBLASLt rejects.
        UnsupportedSpec: for a bias or factors of rows without ``assume``, and for factors of blocks.
        LibraryError: for a ``split``, ``library``, ``torch_version`` or ``assume`` that means nothing.
        DTypeError, DeviceError: for arguments that are not tensors, and tensors on different devices.
        GradError: in a backward pass through the result, and for ``out`` with operands that require a gradient.

    Source: measured on an RTX 4060 and an H100 PCIe with cuBLASLt 12.8.3 (docs/reference/libraries.md).

    Example:
        >>> x = torch.full((1, 256), 0.75).to(torch.float8_e4m3fn)
        >>> one = torch.tensor(1.0)
        >>> gs.scaled_mm(x, x.expand(16, 256).contiguous().t(), one, one, out_dtype=torch.float32, split=1)[0, :2]
        tensor([144., 144.])
    """
    dtype = _dtype(input, out_dtype, out)
    call = ScaledCall(input, mat2, scale_a, scale_b, bias, scale_result, dtype, use_fast_accum)
    ignores_scale = _check_options(library, torch_version, assume)
    check(call, out, out_dtype)
    wants = [t for t in call.tensors if t.requires_grad] if torch.is_grad_enabled() else []
    if out is not None and (wants or (torch.is_grad_enabled() and out.requires_grad)):
        raise GradError(message("scaled_mm with out= and a gradient", "tensors without one", "Use torch.no_grad()."))
    if ignores_scale:
        call = call._replace(scale_result=None)
    with torch.no_grad():
        run = subnormals.kept if subnormals.are_flushed() else _call
        result: Tensor = run(_result, call, out, library or _default(), split, assume)
    return _WithoutGradient.apply(result, *wants) if wants else result


class _WithoutGradient(torch.autograd.Function):
    """A result of tensors that require a gradient, of which there is none."""

    @staticmethod
    def forward(ctx: Any, result: Tensor, *given: Tensor) -> Tensor:
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        asked = "the derivative of scaled_mm, which PyTorch does not have either"
        raise GradError(message(asked, "tensors without a gradient", "Use gemmsim.qmatmul with the plan's spec."))


def _call(function: Any, *given: Any) -> Any:
    return function(*given)


def _dtype(input: Any, out_dtype: Any, out: Any) -> Any:
    """The result's dtype: as asked, that of ``out``, or of ``input``; ``check`` looks at what is none."""
    if out_dtype is not None:
        return out_dtype
    return out.dtype if isinstance(out, Tensor) else getattr(input, "dtype", None)


def _check_options(library: Any, torch_version: Any, assume: Any) -> bool:
    """Whether this release of PyTorch ignores ``scale_result``.

    Raises:
        LibraryError: for options that mean nothing.
    """
    if library is not None and not isinstance(library, Library):
        do = "Try gemmsim.libraries.cublaslt('h100-pcie', version='12.8', workspace=1 << 20)."
        raise library_error(f"scaled_mm: library={shown(library)}", "an object of gemmsim.libraries", do)
    if assume not in (None, "separate"):
        do = "Leave it out: unmeasured products are then errors."
        raise library_error(f"scaled_mm: assume={shown(assume)}", "'separate', or None", do)
    found = re.match(r"(\d+)\.(\d+)(\.|\+|$)", torch_version) if isinstance(torch_version, str) else None
    if found is None:
        allowed = "a release of PyTorch as text, such as '2.9' or '2.9.1'"
        raise library_error(f"scaled_mm: torch_version={shown(torch_version)}", allowed, "torch.__version__ is one.")
    first, last = _IGNORES_RESULT_SCALE
    return first <= (int(found[1]), int(found[2])) < last


@lru_cache(maxsize=1)
def _default() -> Library:
    """What ``torch._scaled_mm`` of PyTorch 2.7 calls on an H100 PCIe."""
    from .cublas import cublaslt

    return cublaslt("h100-pcie", version="12.8", workspace=1 << 20)


def _result(call: ScaledCall, out: Tensor | None, library: Library, split: Any, assume: str | None) -> Tensor:
    """The result of a call that PyTorch does not reject, in ``out`` where there is one."""
    M, N, K = call.shape
    if out is not None and out.shape != (M, N):
        if out.numel():
            text = f"scaled_mm: out of shape {tuple(out.shape)} was resized to {(M, N)}, as in PyTorch"
            warnings.warn(text, UserWarning, stacklevel=4)
        out.resize_(M, N)
    if 0 in (M, N, K):
        found = torch.zeros((M, N), dtype=call.dtype, device=call.input.device) if out is None else out
        return found.zero_() if K == 0 else found
    check_layouts(call, assume)
    in_columns = out is not None and not out.is_contiguous() and not is_rows(out) and is_columns(out)
    computed = with_library_nans(_computed(call, library, split, in_columns))
    if out is None:
        return computed
    if not (in_columns or out.is_contiguous() or is_rows(out)):
        text = (
            f"scaled_mm: out with strides {out.stride()} lies neither row after row nor column after column: PyTorch "
            "computes a copy, does not copy it back, and returns out unchanged, and so does this"
        )
        warnings.warn(text, UserWarning, stacklevel=4)
        return out
    return out.copy_(computed)


def _computed(call: ScaledCall, library: Library, split: Any, in_columns: bool) -> Tensor:
    """The scaled product. ``in_columns``: the library was asked for the transposed one, row after row."""
    M, N, K = call.shape
    a, b = call.input, call.mat2
    if in_columns:
        M, N, a, b = N, M, b.t(), a.t()
    plan = library.plan(M, N, K, a.dtype, b.dtype, call.dtype, fast_accumulation=call.fast, split=split)
    sums = qmatmul(a.float(), b.float(), _register(plan.text), out_dtype=torch.float32)
    scale_a, scale_b = call.scale_a, call.scale_b
    return finished(sums.t() if in_columns else sums, scale_a, scale_b, call.bias, call.scale_result, call.dtype)


@lru_cache(maxsize=1024)
def _register(text: str) -> GemmSpec:
    """The spec of a plan without the casts of its result, which come after the factors here."""
    return replace(GemmSpec.parse(text), out=None)
