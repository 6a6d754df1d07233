"""Converts operands to a native dtype, and native results from it, with the ``quantize`` of one backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

from gemmsim.formats import (
    BF16,
    E4M3,
    E5M2,
    FP16,
    FP32,
    FP64,
    Cast,
    FixedFormat,
    FloatFormat,
    Format,
    Overflow,
    RoundingMode,
)

from .codebook import is_codebook, round_to_codebook
from .stored_elements import stored

__all__ = ["FORMATS", "Conversions", "is_conversion"]

#: The format of every float dtype.
FORMATS: Final[dict[torch.dtype, FloatFormat]] = {
    torch.float32: FP32,
    torch.float64: FP64,
    torch.float16: FP16,
    torch.bfloat16: BF16,
    torch.float8_e4m3fn: E4M3,
    torch.float8_e5m2: E5M2,
}

#: Conversions that PyTorch makes in one rounding to nearest even. From float64 to 16 bits it converts through
#: float32 and so rounds twice.
_ROUNDED_ONCE = frozenset(
    {(torch.float32, dtype) for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)}
    | {(torch.float16, dtype) for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)}
    | {(torch.bfloat16, dtype) for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)}
    | {(torch.float64, dtype) for dtype in (torch.float32, torch.float64)}
)


def is_conversion(cast: Cast | None, dtype: torch.dtype) -> bool:
    """Whether ``cast`` is the ordinary conversion to ``dtype``: nearest even, with overflow as in IEEE 754."""
    if cast is None:
        return True
    plain = cast.rounding.mode is RoundingMode.RNE and cast.overflow is Overflow.INFINITY
    return plain and FORMATS.get(dtype) == cast.format


@dataclass
class Conversions:
    """Casts of whole tensors by ``quantize``, the function of that name of one backend."""

    quantize: Callable[[Tensor, Cast, Tensor, int, int, int], None]

    def quantize_into(self, x: Tensor, cast: Cast, out: Tensor, seed: int, site: int, start: int = 0) -> None:
        """Apply ``quantize`` of the backend, or PyTorch's search for casts to codebooks, which is the same on all
        devices.
        """
        if is_codebook(cast):
            round_to_codebook(x, cast, out, self.quantize)
        else:
            self.quantize(x, cast, out, seed, site, start)

    def copy_rounded(self, x: Tensor, out: Tensor) -> None:
        """Write ``x`` to ``out`` in ``out``'s dtype, each value rounded to it once, to nearest even.

        On the CPU ``quantize`` does this always, because a processor mode that flushes subnormal numbers does not
        affect it.
        """
        if x.dtype == out.dtype or (x.device.type == "cuda" and (x.dtype, out.dtype) in _ROUNDED_ONCE):
            out.copy_(x)
        else:
            self.cast_into(x, Cast(FP64), out, 0, 0)

    def cast_into(self, x: Tensor, cast: Cast | None, out: Tensor, seed: int, site: int, start: int = 0) -> None:
        """Write ``cast(x)`` to ``out``, then rounded to its dtype. ``None`` means only the conversion to the dtype.

        Integers are cast as the numbers that they are. The random bits are those of the elements from ``start`` on.
        """
        x = x if x.is_floating_point() else x.to(torch.float64)
        if cast is None:
            self.copy_rounded(x, out)
        elif out.dim() <= 16:
            self.quantize_into(x, cast, out, seed, site, start)
        else:
            flat = torch.empty(out.numel(), dtype=out.dtype, device=out.device)
            self.quantize_into(x.reshape(-1), cast, flat, seed, site, start)
            out.copy_(flat.view(out.shape))

    def cast_operand(self, x: Tensor, cast: Cast | None, dtype: torch.dtype, seed: int, site: int) -> Tensor:
        """Return ``cast(x)`` in ``dtype``, which must represent every value of the cast, or of ``x`` without a cast.

        Random bits belong to stored elements: a repeated (stride 0) batch dimension is rounded once.
        """
        if cast is None or cast.format == FORMATS.get(x.dtype):  # a cast to the format of the dtype changes nothing
            if x.dtype == dtype or x.device.type == "cuda":
                return x.to(dtype)
            cast = Cast(FORMATS[x.dtype])
        base = stored(x, x.dim() - 2)
        rounded = torch.empty(base.shape, dtype=_holder(cast.format, dtype), device=x.device)
        self.cast_into(base, cast, rounded, seed, site)
        return rounded.to(dtype).expand(x.shape)


@lru_cache(maxsize=1024)
def _holder(fmt: Format, dtype: torch.dtype) -> torch.dtype:
    """Return a dtype that represents ``fmt`` and to which casts can be written: ``dtype`` itself if possible."""
    if dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        return dtype
    if isinstance(fmt, FixedFormat):
        return torch.float32 if fmt.bits <= 24 else torch.float64
    wide = fmt.emax > 127 or fmt.quantum_exponent < -149
    return torch.float64 if wide else torch.float32
