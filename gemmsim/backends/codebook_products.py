"""Products that backends' kernels cannot compute alone: with lists of values, tables or user-defined steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, Lookup, UnsupportedSpec
from gemmsim.formats import Cast
from gemmsim.lowering.abi_constants import Site
from gemmsim.lowering.refusal import Refusal

from . import python_fallback
from .acceleration import current, refused
from .backend import backend_of
from .code_tables import table_codes
from .codebook import is_codebook
from .convert import cast_into, cast_operand
from .dtypes import carrier_dtype
from .product import Product, Ran

__all__ = ["explain", "run"]


def run(product: Product, kernels: Callable[[Product], Ran]) -> Ran:
    """Compute ``product``. ``kernels`` computes a product of cast operands whose accumulator the kernels support."""
    spec, out = product.spec, product.out
    listed_a, listed_b, listed_out = (is_codebook(cast) for cast in (spec.cast_a, spec.cast_b, spec.out))
    inner = replace(
        spec,
        a=None if listed_a else spec.a,
        b=None if listed_b else spec.b,
        out=None if listed_out else spec.out,
    )
    if spec.accumulator.is_lookup:
        return _told(_looked_up(product), product, "no library has tables of products")
    a, b = _tensors(product)
    if not inner.needs_steps:  # only operands or the output are lists of values
        left = _narrow(a, spec.cast_a, product.seed, Site.OPERAND_A) if listed_a else a
        right = _narrow(b, spec.cast_b, product.seed, Site.OPERAND_B) if listed_b else b
        raw = torch.empty(out.shape, dtype=torch.float64, device=out.device) if listed_out else out
        named = replace(product.named, out=inner.out)
        ran = kernels(product.changed(a=left, b=right, spec=inner, out=raw, named=named))
        if listed_out:
            cast_into(raw, spec.out, out, product.seed, Site.OUTPUT)
        return ran
    left = cast_operand(a, spec.cast_a, torch.float64, product.seed, Site.OPERAND_A)
    right = cast_operand(b, spec.cast_b, torch.float64, product.seed, Site.OPERAND_B)
    if product.c is not None or product.select is not None:
        raise UnsupportedSpec(
            f"{str(product.named)!r} with an addend or a choice of accumulators; allowed: neither, where it is "
            "computed step by step.\n  Add c to the result."
        )
    ran = python_fallback.gemm(left, right, replace(spec, a=None, b=None), out, product.seed)
    return _told(ran, product, "no library knows such an accumulator")


def _told(ran: Ran, product: Product, reason: str) -> Ran:
    """Return ``ran`` with the reason why no library computed ``product``, if one was requested."""
    return ran if product.count or current() is None else ran.noted(Refusal(reason, refused()).note)


def _tensors(product: Product) -> tuple[Tensor, Tensor]:
    assert isinstance(product.a, Tensor) and isinstance(product.b, Tensor)
    return product.a, product.b


def _narrow(x: Tensor, cast: Cast | None, seed: int, site: int) -> Tensor:
    """Return the cast operand in the narrowest fast dtype: its own, float32 or float64."""
    assert cast is not None
    return cast_operand(x, cast, carrier_dtype(cast.format, x.dtype), seed, site)


def _looked_up(product: Product) -> Ran:
    """Compute a product whose factors are codes of a table, or count its overflows."""
    spec, out, (a, b) = product.spec, product.out, _tensors(product)
    assert isinstance(spec.accumulator, Lookup)
    products = spec.accumulator.products
    left = table_codes(_narrow(a, spec.cast_a, product.seed, Site.OPERAND_A), products.a)
    right = table_codes(_narrow(b, spec.cast_b, product.seed, Site.OPERAND_B), products.b)
    list_out = not product.count and spec.out is not None and is_codebook(spec.out)
    raw = torch.empty(out.shape, dtype=torch.float64, device=out.device) if list_out else out
    inner = replace(spec, a=None, b=None, out=None if list_out else spec.out)
    ran = backend_of(a).multiply(product.changed(a=left, b=right, spec=inner, out=raw))
    if list_out:
        cast_into(raw, spec.out, out, product.seed, Site.OUTPUT)
    return ran


def explain(spec: GemmSpec, kernels: Callable[[GemmSpec], Iterator[str]]) -> Iterator[str]:
    """Return the lines that say what computes ``spec``; ``kernels`` gives those of a spec that the kernels support."""
    if spec.accumulator.is_lookup:
        from . import cpu, cuda

        for name, more, refusal in (
            ("cpu", "", cpu.lookup_refuses(spec)),
            ("cuda", f", {cuda.ON_GPU}", cuda.lookup_refuses(spec)),
        ):
            yield f"{name}: {f'yes, by table lookup{more}' if refusal is None else f'no, {refusal}'}"
        return
    inner = replace(spec, a=None, b=None, out=None)
    if not inner.needs_steps:
        yield "operands or output are looked up in PyTorch; the product itself:"
        yield from kernels(inner)
        return
    refusal = python_fallback.refuses(inner)
    words = "yes, one PyTorch step per term, on the tensors' device"
    yield f"stepwise: {words if refusal is None else f'no, {refusal}'}"
