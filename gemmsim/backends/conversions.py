"""Operands into a native dtype, and native results out of it, by the ``quantize`` of one backend."""

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

#: Format of every float dtype.
FORMATS: Final[dict[torch.dtype, FloatFormat]] = {
    torch.float32: FP32,
    torch.float64: FP64,
    torch.float16: FP16,
    torch.bfloat16: BF16,
    torch.float8_e4m3fn: E4M3,
    torch.float8_e5m2: E5M2,
}

#: Conversions that PyTorch makes in one rounding to nearest even. From float64 to 16 bits it goes through
#: float32 and rounds twice.
_ROUNDED_ONCE = frozenset(
    {(torch.float32, dtype) for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)}
    | {(torch.float16, dtype) for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)}
    | {(torch.bfloat16, dtype) for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)}
    | {(torch.float64, dtype) for dtype in (torch.float32, torch.float64)}
)


def is_conversion(cast: Cast | None, dtype: torch.dtype) -> bool:
    """Whether ``cast`` is what an ordinary conversion to ``dtype`` does: nearest even, overflow as IEEE 754 has it."""
    if cast is None:
        return True
    plain = cast.rounding.mode is RoundingMode.RNE and cast.overflow is Overflow.INFINITY
    return plain and FORMATS.get(dtype) == cast.format


@dataclass
class Conversions:
    """Casts of whole tensors by ``quantize``, a backend's verb of that name."""

    quantize: Callable[[Tensor, Cast, Tensor, int, int, int], None]

    def quantize_into(self, x: Tensor, cast: Cast, out: Tensor, seed: int, site: int, start: int = 0) -> None:
        """``quantize`` of the backend, and casts to codebooks, which every device computes by PyTorch."""
        if is_codebook(cast):
            round_to_codebook(x, cast, out, self.quantize)
        else:
            self.quantize(x, cast, out, seed, site, start)

    def copy_rounded(self, x: Tensor, out: Tensor) -> None:
        """Write ``x`` to ``out`` in ``out``'s dtype, each value rounded to it once, to nearest even.

        On the CPU always by ``quantize``, which does not heed a processor that is set to flush subnormal numbers.
        """
        if x.dtype == out.dtype or (x.device.type == "cuda" and (x.dtype, out.dtype) in _ROUNDED_ONCE):
            out.copy_(x)
        else:
            self.cast_into(x, Cast(FP64), out, 0, 0)

    def cast_into(self, x: Tensor, cast: Cast | None, out: Tensor, seed: int, site: int, start: int = 0) -> None:
        """Write ``cast(x)`` to ``out``, then rounded to its dtype; ``None`` is the conversion to the dtype alone.

        Integers count as the numbers they are. Random bits are those of elements ``start`` and on.
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
        """``cast(x)`` in ``dtype``, which holds every value of the cast (of ``x`` where there is none).

        Random bits belong to stored elements: a repeated (stride 0) batch dimension is rounded once.
        """
        if cast is None or cast.format == FORMATS.get(x.dtype):  # what a format holds, no cast to it changes
            if x.dtype == dtype or x.device.type == "cuda":
                return x.to(dtype)
            cast = Cast(FORMATS[x.dtype])
        base = stored(x, x.dim() - 2)
        rounded = torch.empty(base.shape, dtype=_holder(cast.format, dtype), device=x.device)
        self.cast_into(base, cast, rounded, seed, site)
        return rounded.to(dtype).expand(x.shape)


@lru_cache(maxsize=1024)
def _holder(fmt: Format, dtype: torch.dtype) -> torch.dtype:
    """A dtype that casts are written in and that holds ``fmt``: ``dtype`` itself if it is one of them."""
    if dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        return dtype
    if isinstance(fmt, FixedFormat):
        return torch.float32 if fmt.bits <= 24 else torch.float64
    wide = fmt.emax > 127 or fmt.quantum_exponent < -149
    return torch.float64 if wide else torch.float32
