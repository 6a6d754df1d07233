"""Chooses what computes a product: the first of ``ROUTES`` that does not refuse it.

The bits are those of the spec for every route, except a library that ``cublas_acceleration`` or
``cutlass_acceleration`` requests. If that library refuses, the record of what ran instead gives the reason.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, Sequential
from gemmsim.arithmetic.block_operands import takes_scales
from gemmsim.lowering.refusal import Refusal

from .acceleration import Setting, asked, current, refused
from .backend import backend_of
from .batch_dims import batched
from .convert import cast_into
from .epilogue_passes import finish_into, followed
from .product import Product, Ran

__all__ = ["ROUTES", "Route", "gemm", "plain_spec", "reads_windows", "run"]


class Route(Protocol):
    """One way to compute products."""

    def refuses(self, product: Product) -> Refusal | None:
        """Return why the route does not compute ``product``, as far as that is known without work."""

    def run(self, product: Product) -> Ran | Refusal:
        """Write ``product``, which the route does not refuse, to its ``out``; or return why that was not possible."""


class _Lists:
    """Products with lists of values, tables or user-defined steps.

    Lists and tables are looked up around a product that kernels support. User-defined steps run one by one.
    """

    _KNOWN = Refusal("kernels know every step")

    def refuses(self, product: Product) -> Refusal | None:
        spec = product.spec
        if not spec.needs_steps or product.is_coded or (product.count and not spec.accumulator.is_lookup):
            return self._KNOWN
        return None

    def run(self, product: Product) -> Ran:
        from . import codebook_products

        return codebook_products.run(product, run)


class _Asked:
    """A library's product, where the user requests it and the spec names a type of the library."""

    _NOBODY = Refusal("nobody asked")

    def refuses(self, product: Product) -> Refusal | None:
        setting = current()
        if setting is None or product.count:
            return self._NOBODY
        decoded = _is_decoded(product)  # then the product of decoded values follows, which has a refusal of its own
        if not product.is_alone:
            extras = Refusal("native products take no addend and no choice of accumulators", refused())
            return self._NOBODY if decoded else extras
        refusal = _library_refuses(product, setting)
        return refusal if refusal is None or decoded else replace(refusal, of=refused())

    def run(self, product: Product) -> Ran | Refusal:
        setting = current()
        assert setting is not None
        if setting.library == "cutlass":
            from . import cutlass

            return cutlass.multiply(product)
        from . import cublas

        return cublas.multiply(product, setting)


def _library_refuses(product: Product, setting: Setting) -> Refusal | None:
    if setting.library == "cutlass":
        from . import cutlass

        return cutlass.refuses(product)
    from . import cublas

    return cublas.refuses(product, setting)


class _Decoded:
    """The product of the decoded values of operands in block formats, where the accumulator takes no scales."""

    _TAKEN = Refusal("operands are taken as they are")

    def refuses(self, product: Product) -> Refusal | None:
        return None if _is_decoded(product) else self._TAKEN

    def run(self, product: Product) -> Ran:
        from .encoding import values_of

        a, b = values_of(product.a), values_of(product.b)
        if current() is not None and not product.count and a.is_cuda:  # a library is several times as fast on bfloat16
            from . import cublas

            a, b = cublas.narrowed(a, b, product.spec)
        spec = plain_spec(product.spec)
        return run(product.changed(a=a, b=b, spec=spec, named=spec))


class _Proved:
    """A library's product, where it provably has the bits of the spec and the kernels for the spec are slow."""

    _FAST = Refusal("kernels are fast enough, or no proof is known")

    def refuses(self, product: Product) -> Refusal | None:
        from . import exact_blas

        alone = product.is_alone and not product.is_coded
        return None if alone and exact_blas.is_candidate(product.spec) else self._FAST

    def run(self, product: Product) -> Ran | Refusal:
        from . import exact_blas

        a, b, out, finish = product.a, product.b, product.out, product.finish
        assert isinstance(a, Tensor) and isinstance(b, Tensor)
        raw = out if finish is None else torch.empty_like(out, dtype=finish.work)
        ran = exact_blas.gemm(a, b, product.spec, raw, product.seed, product.named)
        if isinstance(ran, Ran) and finish is not None:
            finish_into(raw, finish, out, cast_into)
        return ran


class _Instruction:
    """The device's own matrix instruction, where the spec names it."""

    _NONE = Refusal("the spec names no instruction of such a device")

    def refuses(self, product: Product) -> Refusal | None:
        return None if backend_of(product.out).names_instruction(product.spec) else self._NONE

    def run(self, product: Product) -> Ran | Refusal:
        return backend_of(product.out).instruction(product)


class _Kernel:
    """The kernels of the operands' device. They refuse by raising an error with the message for the user."""

    def refuses(self, product: Product) -> None:
        return None

    def run(self, product: Product) -> Ran:
        return backend_of(product.out).multiply(product)


#: The routes in the order in which they are tried.
ROUTES: tuple[Route, ...] = (_Lists(), _Asked(), _Decoded(), _Proved(), _Instruction(), _Kernel())


def gemm(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int) -> Ran:
    """``run`` for a product of two matrices without extras.

    If the kernel would compute it anyway, it is called directly without a record: for small products the overhead would
    take as long as the product.
    """
    # For a sequential register without random bits kernels are as fast as a native GEMM, so no proof is needed.
    if asked() is None and type(spec.accumulator) is Sequential and not spec.is_stochastic and not spec.needs_steps:
        return backend_of(a).gemm(a, b, spec, out, seed)
    return run(Product(a, b, spec, out, seed))


def run(product: Product) -> Ran:
    """Write ``product``, which must not be empty, to its ``out``; return the record of what ran.

    Batch dimensions of operands broadcast. ``c`` and ``select`` have the shape of the result.
    """
    if product.out.dim() > 2 and product.windows is None and not product.is_coded:
        product = batched(product)
    finish, spec = product.finish, product.spec
    if finish is not None and not _takes(product):
        return followed(lambda raw: run(product.changed(out=raw, finish=None)), finish, product.out, cast_into)
    backend = backend_of(product.out)
    if asked() is None and _is_the_kernels(spec) and not backend.names_instruction(spec):
        return backend.multiply(product)
    told: list[Refusal] = []
    for route in ROUTES:
        reason = route.refuses(product)
        found = route.run(product) if reason is None else reason
        if isinstance(found, Ran):
            for refusal in reversed(told):
                found = found.noted(refusal.note)
            return found
        if found.of:
            told.append(found)
    raise AssertionError("the kernels refuse by raising")


def _takes(product: Product) -> bool:
    """Whether a kernel applies the epilogue of ``product``."""
    finish, spec = product.finish, product.spec
    assert finish is not None
    return asked() is None and not spec.needs_steps and backend_of(product.out).finishes(spec, finish.cast)


@lru_cache(maxsize=4096)
def _is_the_kernels(spec: GemmSpec) -> bool:
    """Whether only the device's kernels and instructions compute ``spec``, unless a library is requested."""
    from . import exact_blas

    return not (spec.needs_steps or spec.has_blocks or exact_blas.is_candidate(spec))


def _is_decoded(product: Product) -> bool:
    return product.is_coded and not takes_scales(product.spec.accumulator)


def reads_windows(spec: GemmSpec) -> bool:
    """Whether products of ``spec`` use implicit im2col; others need an im2col matrix.

    With random bits, which must be drawn for each column, a possible proof is not worth an im2col matrix.
    """
    from . import exact_blas

    if asked() is not None or spec.has_blocks or spec.needs_steps:
        return False
    return spec.is_stochastic or not exact_blas.is_candidate(spec)


@lru_cache(maxsize=4096)
def plain_spec(spec: GemmSpec) -> GemmSpec:
    """Return ``spec`` for operands that already have the values of its block formats; ordinary casts stay."""
    return replace(spec, a=spec.cast_a, b=spec.cast_b)
