"""Which backend computes a product.

The ordinary backend of the operands' device, unless a native GEMM is asked for (``cublas_acceleration``) or provably
gives the same bits and is faster (``gemmsim.backends.native``).
"""

from __future__ import annotations

from torch import Tensor

from gemmsim.arithmetic import GemmSpec, Sequential
from gemmsim.backends import cpu

from .acceleration import Setting, asked, current

__all__ = ["Refused", "gemm"]


class Refused:
    """Record of a product that ran on the ordinary backend though native products were asked for, with the reason."""

    __slots__ = ("_run", "reason")

    def __init__(self, run: object, reason: str) -> None:
        self._run, self.reason = run, reason

    @property
    def backend(self) -> str:
        """That of the run."""
        return getattr(self._run, "backend", "cpu")

    def __str__(self) -> str:
        return f"{self._run}; cublas_acceleration refused: {self.reason}"


def gemm(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int, *extra: Tensor | None) -> object:
    """Write the product to ``out``; returns what ran. Arguments as for ``gemmsim.backends.cpu.gemm``.

    ``extra``: what goes with the call beside the operands (addend, palette's choice); native products take none of it.
    """
    # A sequential register without random bits is as fast here as a native GEMM: there is nothing to look for.
    if asked() is None and type(spec.accumulator) is Sequential and not spec.is_stochastic:
        return cpu.gemm(a, b, spec, out, seed, *extra)
    setting = current()
    if setting is None:
        return _proved(a, b, spec, out, seed, extra) or cpu.gemm(a, b, spec, out, seed, *extra)
    reason = _native(a, b, spec, out, seed, extra, setting)
    if not isinstance(reason, str):
        return reason
    run = _proved(a, b, spec, out, seed, extra) or cpu.gemm(a, b, spec, out, seed, *extra)
    return Refused(run, reason)


def _proved(
    a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int, extra: tuple[Tensor | None, ...]
) -> object | None:
    """The record of a carrier-exact native product, if one pays."""
    if any(t is not None for t in extra):
        return None
    from gemmsim.backends import native

    return native.gemm(a, b, spec, out, seed) if native.is_candidate(spec) else None


def _native(
    a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int, extra: tuple[Tensor | None, ...], setting: Setting
) -> object:
    """The record of a product of a native type, or the reason (a string) why there is none."""
    from gemmsim.backends import cublas

    if any(t is not None for t in extra):
        return "native products take no addend and no choice of accumulators"
    found = cublas.native_type(spec, a.dtype, b.dtype, setting.fast_mode)
    if not isinstance(found, cublas.NativeType):
        return found.reason
    reason = cublas.refusal(found, a, b, out)
    return cublas.gemm(a, b, spec, out, seed, found) if reason is None else reason
