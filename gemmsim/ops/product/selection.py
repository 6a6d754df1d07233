"""Which backend computes a product.

The ordinary backend of the operands' device, unless a native GEMM is asked for (``cublas_acceleration``) or provably
gives the same bits and is faster (``gemmsim.backends.native``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, Lookup, Sequential, UnsupportedSpec
from gemmsim.backends import cpu
from gemmsim.backends.backend import backend_of
from gemmsim.backends.codebook import is_codebook
from gemmsim.backends.finish import Finish, followed
from gemmsim.backends.product import Ran
from gemmsim.formats import Cast

from ..acceleration import Setting, asked, current
from ..casts import carrier_dtype
from ..code_tables import table_codes
from ..seeds import Site

__all__ = ["count_lookup_overflows", "gemm", "refused"]


def refused(run: Ran, reason: str) -> Ran:
    """The record of a product that this library's kernels computed though native products were asked for."""
    return run.noted(f"cublas_acceleration refused: {reason}")


def gemm(
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    out: Tensor,
    seed: int,
    c: Tensor | None = None,
    select: Tensor | None = None,
    named: GemmSpec | None = None,
    finish: Finish | None = None,
) -> Ran:
    """Write the product to ``out``; returns what ran. Arguments as for ``gemmsim.backends.cpu.gemm``.

    ``named``: where the operands have been cast already, the spec that names these casts, so that they are known to
    hold values of its formats. ``finish``: what follows the product.
    """
    if finish is not None:
        return _finished(a, b, spec, out, seed, c, select, named, finish)
    if spec.needs_steps:
        return _by_steps(a, b, spec, out, seed, c, select, named or spec)
    # A sequential register without random bits is as fast here as a native GEMM: there is nothing to look for.
    if asked() is None and type(spec.accumulator) is Sequential and not spec.is_stochastic:
        return (backend_of(a) if a.is_cuda else cpu).gemm(a, b, spec, out, seed, c, select)
    alone = c is None and select is None
    setting = current()
    reason: str | None = None
    if setting is not None:
        found = _native(a, b, spec, out, seed, named or spec, setting) if alone else _EXTRAS
        if isinstance(found, Ran):
            return found
        reason = found
    run = _proved(a, b, spec, out, seed, named or spec) if alone else None
    if run is None:
        run = backend_of(a).gemm(a, b, spec, out, seed, c, select)
    return run if reason is None else refused(run, reason)


def _by_steps(
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    out: Tensor,
    seed: int,
    c: Tensor | None,
    select: Tensor | None,
    named: GemmSpec,
) -> Ran:
    """A product in which something is a list of values or a user's own step, which no backend's kernels know."""
    from gemmsim.backends import stepwise
    from gemmsim.backends.convert import cast_into, cast_operand

    listed_a, listed_b, listed_out = (is_codebook(cast) for cast in (spec.cast_a, spec.cast_b, spec.out))
    inner = replace(
        spec,
        a=None if listed_a else spec.a,
        b=None if listed_b else spec.b,
        out=None if listed_out else spec.out,
    )
    if not inner.needs_steps:  # only operands or the output are lists
        left = _narrow(a, spec.cast_a, seed, Site.OPERAND_A) if listed_a else a
        right = _narrow(b, spec.cast_b, seed, Site.OPERAND_B) if listed_b else b
        raw = torch.empty(out.shape, dtype=torch.float64, device=out.device) if listed_out else out
        run = gemm(left, right, inner, raw, seed, c, select, replace(named, out=inner.out))
        if listed_out:
            cast_into(raw, spec.out, out, seed, Site.OUTPUT)
        return run
    if spec.accumulator.is_lookup:
        left, right = (
            _narrow(a, spec.cast_a, seed, Site.OPERAND_A),
            _narrow(b, spec.cast_b, seed, Site.OPERAND_B),
        )
        return _looked_up(left, right, replace(spec, a=None, b=None), out, seed)
    left = cast_operand(a, spec.cast_a, torch.float64, seed, Site.OPERAND_A)
    right = cast_operand(b, spec.cast_b, torch.float64, seed, Site.OPERAND_B)
    if c is not None or select is not None:
        raise UnsupportedSpec(
            f"{str(named)!r} with an addend or a choice of accumulators; allowed: neither, where it is computed step "
            "by step.\n  Add c to the result."
        )
    run = stepwise.gemm(left, right, replace(spec, a=None, b=None), out, seed)
    return run if current() is None else refused(run, "no library knows such an accumulator")


def _narrow(x: Tensor, cast: Cast | None, seed: int, site: int) -> Tensor:
    """An operand, cast, in the narrowest dtype that is fast: of its own, float32 and float64."""
    from gemmsim.backends.convert import cast_operand

    assert cast is not None
    return cast_operand(x, cast, carrier_dtype(cast.format, x.dtype), seed, site)


def _looked_up(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int) -> Ran:
    """A product whose factors are codes of a table; ``a`` and ``b`` hold values of its formats."""
    assert isinstance(spec.accumulator, Lookup)
    products = spec.accumulator.products
    list_out = spec.out is not None and is_codebook(spec.out)
    raw = torch.empty(out.shape, dtype=torch.float64, device=out.device) if list_out else out
    inner = replace(spec, out=None) if list_out else spec
    left, right = table_codes(a, products.a), table_codes(b, products.b)
    run: Ran = backend_of(a).lookup_gemm(left, right, inner, raw, seed)
    if list_out:
        from gemmsim.backends.convert import cast_into

        cast_into(raw, spec.out, out, seed, Site.OUTPUT)
    return run if current() is None else refused(run, "no library has tables of products")


def count_lookup_overflows(a: Tensor, b: Tensor, spec: GemmSpec, counts: Tensor, seed: int) -> None:
    """Add the overflows of a product from a table to ``counts``."""
    assert isinstance(spec.accumulator, Lookup)
    products = spec.accumulator.products
    left = table_codes(_narrow(a, spec.cast_a, seed, Site.OPERAND_A), products.a)
    right = table_codes(_narrow(b, spec.cast_b, seed, Site.OPERAND_B), products.b)
    backend_of(a).count_lookup_overflows(left, right, replace(spec, a=None, b=None), counts, seed)


def _on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def _finished(
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    out: Tensor,
    seed: int,
    c: Tensor | None,
    select: Tensor | None,
    named: GemmSpec | None,
    finish: Finish,
) -> Ran:
    """``gemm`` and what follows, in one kernel where a GPU computes the product."""
    if _on_gpu(a) and asked() is None and not spec.needs_steps:
        from gemmsim.backends import native

        cuda: Any = backend_of(a)  # its kernels take last steps
        if cuda.finishes(spec, finish.cast):
            if c is None and select is None and native.is_candidate(spec):
                raw = torch.empty_like(out, dtype=finish.work)
                run = _proved(a, b, spec, raw, seed, named or spec)
                if run is not None:
                    finish.apply(raw, out)
                    return run
            return cuda.gemm(a, b, spec, out, seed, c, select, finish)
    return followed(lambda raw: gemm(a, b, spec, raw, seed, c, select, named), finish, out)


_EXTRAS = "native products take no addend and no choice of accumulators"


def _proved(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int, named: GemmSpec) -> Ran | None:
    """The record of a carrier-exact native product, or ``None`` if there is no proof or it does not pay."""
    from gemmsim.backends import native

    return native.gemm(a, b, spec, out, seed, named) if native.is_candidate(spec) else None


def _native(
    a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int, named: GemmSpec, setting: Setting
) -> Ran | str:
    """The record of a product of a native type, or the reason (a string) why there is none."""
    from gemmsim.backends import cublas

    found = cublas.native_type(named, a.dtype, b.dtype, setting.fast_mode)
    if not isinstance(found, cublas.NativeType):
        return found.reason
    reason = cublas.refusal(found, a, b, out)
    return cublas.gemm(a, b, spec, out, seed, found) if reason is None else reason
