"""Chooses what computes a product: the first of ``ROUTES`` that does not refuse it.

The bits are those of the spec for every route, except a library that ``cublas_acceleration`` or
``cutlass_acceleration`` requests. If that library refuses, the record of what ran instead gives the reason.

What a spec alone says about its routes is found once and kept (``facts_of``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.arithmetic.block_operands import takes_scales
from gemmsim.formats import FP32, Cast
from gemmsim.lowering.abi_constants import MAX_BATCH_DIMS, Site
from gemmsim.lowering.instructions import named_instruction
from gemmsim.lowering.refusal import Refusal

from .acceleration import Setting, asked, current, refused
from .backend import backend_of
from .batch_dims import batched
from .convert import cast_into
from .decoded_product import plain_spec
from .dtypes import fits
from .epilogue import Finish
from .epilogue_passes import finish_into, followed
from .product import Product, Ran
from .scaled_specs import kernel_spec

__all__ = ["ROUTES", "Route", "RouteFacts", "explain", "facts_of", "gemm", "reads_windows", "run"]


class Route(ABC):
    """One way to compute products."""

    @abstractmethod
    def considers(self, spec: GemmSpec) -> bool:
        """Whether the route may compute products of ``spec`` while no library is requested."""

    @abstractmethod
    def refuses(self, product: Product) -> Refusal | None:
        """Return why the route does not compute ``product``, as far as that is known without work."""

    @abstractmethod
    def run(self, product: Product) -> Ran | Refusal:
        """Write ``product``, which the route does not refuse, to its ``out``; or return why that was not possible."""

    def explain(self, spec: GemmSpec) -> Iterator[str]:
        """Return lines for users that say whether the route computes ``spec`` and how; none if that depends on data."""
        return iter(())


class _Lists(Route):
    """Products with lists of values, tables or user-defined steps.

    Lists and tables are looked up around a product that kernels support. User-defined steps run one by one.
    """

    _KNOWN = Refusal("kernels support every step")

    def considers(self, spec: GemmSpec) -> bool:
        return spec.needs_steps

    def refuses(self, product: Product) -> Refusal | None:
        spec = product.spec
        if not spec.needs_steps or product.is_coded or (product.count and not spec.accumulator.is_lookup):
            return self._KNOWN
        return None

    def run(self, product: Product) -> Ran:
        from . import codebook_products

        return codebook_products.run(product, run)

    def explain(self, spec: GemmSpec) -> Iterator[str]:
        from . import codebook_products

        return codebook_products.explain(spec, explain)


class _Asked(Route):
    """A library's product, where the user requests it and the spec names a type of the library."""

    _NOT_ASKED = Refusal("not requested")

    def considers(self, spec: GemmSpec) -> bool:
        return False

    def refuses(self, product: Product) -> Refusal | None:
        setting = current()
        if setting is None or product.count:
            return self._NOT_ASKED
        decoded = _is_decoded(product)  # then the product of decoded values follows, which has a refusal of its own
        if not product.is_alone:
            extras = Refusal("native products do not take an addend or a choice of accumulators", refused())
            return self._NOT_ASKED if decoded else extras
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

    def explain(self, spec: GemmSpec) -> Iterator[str]:
        from . import cublas, cutlass

        yield cublas.explain(spec)
        mainloop = cutlass.explain(spec)
        if mainloop is not None:
            yield mainloop


def _library_refuses(product: Product, setting: Setting) -> Refusal | None:
    if setting.library == "cutlass":
        from . import cutlass

        return cutlass.refuses(product)
    from . import cublas

    return cublas.refuses(product, setting)


class _Decoded(Route):
    """The product of the decoded values of operands in block formats, where the accumulator takes no scales."""

    _TAKEN = Refusal("operands are taken as they are")

    def considers(self, spec: GemmSpec) -> bool:
        return spec.has_blocks and not takes_scales(spec.accumulator)

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


def _is_decoded(product: Product) -> bool:
    return product.is_coded and not takes_scales(product.spec.accumulator)


class _Proved(Route):
    """A library's product, where it provably has the bits of the spec and the kernels for the spec are slow."""

    _FAST = Refusal("kernels are fast enough, or no proof is known")

    def considers(self, spec: GemmSpec) -> bool:
        from . import exact_blas

        return exact_blas.is_candidate(spec)

    def refuses(self, product: Product) -> Refusal | None:
        alone = product.is_alone and not product.is_coded
        return None if alone and self in facts_of(product.spec).routes else self._FAST

    def run(self, product: Product) -> Ran | Refusal:
        from . import exact_blas

        a, b, out, finish = product.a, product.b, product.out, product.finish
        assert isinstance(a, Tensor) and isinstance(b, Tensor)
        raw = out if finish is None else torch.empty_like(out, dtype=finish.work)
        ran = exact_blas.gemm(a, b, product.spec, raw, product.seed, product.named)
        if isinstance(ran, Ran) and finish is not None:
            finish_into(raw, finish, out, cast_into)
        return ran


class _Instruction(Route):
    """The device's own matrix instruction, where the spec names it."""

    _NONE = Refusal("the spec names no instruction of such a device")

    def considers(self, spec: GemmSpec) -> bool:
        return named_instruction(spec.accumulator) is not None

    def refuses(self, product: Product) -> Refusal | None:
        return None if backend_of(product.out).names_instruction(product.spec) else self._NONE

    def run(self, product: Product) -> Ran | Refusal:
        return backend_of(product.out).instruction(product)

    def explain(self, spec: GemmSpec) -> Iterator[str]:
        from . import cuda

        if cuda.refuses(spec) is None:
            words = [text for text in (cuda.tensor_core_words(spec), cuda.block_core_words(spec)) if text is not None]
            if words:
                yield f"tensor cores: {'. '.join(words)}"


class _Kernel(Route):
    """The kernels of the operands' device. They refuse by raising an error with the message for the user."""

    def considers(self, spec: GemmSpec) -> bool:
        return True

    def refuses(self, product: Product) -> None:
        return None

    def run(self, product: Product) -> Ran:
        return backend_of(product.out).multiply(product)

    def explain(self, spec: GemmSpec) -> Iterator[str]:
        from . import cpu, cuda

        refusal = cpu.refuses(spec)
        words = f"yes, {cpu.isa()}; last_backend() after a call names the kernel and the steps that it skipped"
        yield f"cpu: {words if refusal is None else f'no, {refusal}'}"
        refusal = cuda.refuses(spec)
        yield f"cuda: {f'yes, {cuda.ON_GPU}' if refusal is None else f'no, {refusal}'}"
        how = cuda.block_words(spec)
        if refusal is None and how is not None:
            yield f"blocks on cuda: {how}"


#: The routes in the order in which they are tried.
ROUTES: tuple[Route, ...] = (_Lists(), _Asked(), _Decoded(), _Proved(), _Instruction(), _Kernel())


class RouteFacts(NamedTuple):
    """What a spec alone says about how its products are computed while no library is requested.

    Attributes:
        routes: those of ``ROUTES`` that consider the spec, in their order. The kernels are the last one.
        by_kernels: whether they are the only one.
        reads_windows: whether products use implicit im2col; others need an im2col matrix. With random bits, which must
            be drawn for each column, a possible proof is not worth such a matrix.
        once: the spec with one rounding of its output, if the spec has two in a row; else None. Then ``last`` is the
            second one, unless the first changes no result.
    """

    routes: tuple[Route, ...]
    by_kernels: bool
    reads_windows: bool
    once: GemmSpec | None = None
    last: Cast | None = None


@lru_cache(maxsize=4096)
def facts_of(spec: GemmSpec) -> RouteFacts:
    """Return the facts of ``spec``, which are found once."""
    once, last = _once(spec)
    routes = tuple(route for route in ROUTES if route.considers(spec))
    proved = any(isinstance(route, _Proved) for route in routes)
    windows = not spec.has_blocks and not spec.needs_steps and (spec.is_stochastic or not proved)
    return RouteFacts(routes, len(routes) == 1 and once is None, windows and last is None, once, last)


def _once(spec: GemmSpec) -> tuple[GemmSpec | None, Cast | None]:
    """Return the ``once`` and ``last`` of ``RouteFacts``."""
    if spec.out is None or spec.out.via is None:
        return None, None
    first, last = spec.out.steps
    if first == Cast(FP32) and fits(spec.accumulator.add_cast.format, torch.float32):
        return replace(spec, out=last, product=None), None
    return replace(spec, out=first, product=None), last


def gemm(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int, finish: Finish | None = None) -> Ran:
    """``run`` for a product of matrices, or of equal batches of them, without further extras.

    If the kernels would compute it anyway, they are called directly without a record: for small products the overhead
    would take as long as the product.
    """
    if asked() is None and facts_of(spec).by_kernels and (out.dim() == 2 or _is_plain_batch(spec, out)):
        backend = backend_of(a)
        if finish is None:
            return backend.gemm(a, b, spec, out, seed)
        if not backend.finishes(spec, finish.cast):
            return followed(lambda raw: backend.gemm(a, b, spec, raw, seed), finish, out, cast_into)
    return run(Product(a, b, spec, out, seed, finish=finish))


def _is_plain_batch(spec: GemmSpec, out: Tensor) -> bool:
    """Whether backends take the batches of such a product as they are: ``batched`` has nothing to change."""
    return not spec.is_stochastic and out.dim() <= MAX_BATCH_DIMS + 2


def run(product: Product) -> Ran:
    """Write ``product``, which must not be empty, to its ``out``; return the record of what ran.

    Batch dimensions of operands broadcast. ``c`` and ``select`` have the shape of the result.
    """
    if product.out.dim() > 2 and product.windows is None and not product.is_coded:
        product = batched(product)
    facts = facts_of(product.spec)
    if facts.once is not None:
        return _run_once(product, facts.once, facts.last)
    finish = product.finish
    if finish is not None and not _takes(product):
        return followed(lambda raw: run(product.changed(out=raw, finish=None)), finish, product.out, cast_into)
    told: list[Refusal] = []
    for route in facts.routes if asked() is None else ROUTES:
        reason = route.refuses(product)
        found = route.run(product) if reason is None else reason
        if isinstance(found, Ran):
            for refusal in reversed(told):
                found = found.noted(refusal.note)
            return found
        if found.of:
            told.append(found)
    raise AssertionError("the kernels raise an error to refuse")


def _run_once(product: Product, once: GemmSpec, last: Cast | None) -> Ran:
    """``run`` for a spec whose output is rounded twice in a row, by ``once`` and then by ``last``."""
    named = once if product.named is product.spec else product.named
    if last is None:
        return run(product.changed(spec=once, named=named))
    out, finish = product.out, product.finish
    raw = torch.empty(out.shape, dtype=torch.float64, device=out.device)
    ran = run(product.changed(spec=once, named=named, out=raw, finish=None))
    if finish is None:
        cast_into(raw, last, out, product.seed, Site.OUTPUT)
        return ran
    cast_into(raw, last, raw, product.seed, Site.OUTPUT)
    finish_into(raw.to(finish.work), finish, out, cast_into)
    return ran


def _takes(product: Product) -> bool:
    """Whether a kernel applies the epilogue of ``product``."""
    finish, spec = product.finish, product.spec
    assert finish is not None
    return asked() is None and not spec.needs_steps and backend_of(product.out).finishes(spec, finish.cast)


def reads_windows(spec: GemmSpec) -> bool:
    """Whether products of ``spec`` use implicit im2col now; others need an im2col matrix."""
    return asked() is None and facts_of(spec).reads_windows


def explain(spec: GemmSpec) -> Iterator[str]:
    """Return lines for users that say what computes products of ``spec``, and what does not.

    The kernels come first, then the routes that may compute a product in their place. Where lists, tables or
    user-defined steps are in the way of all others, only their route is asked.
    """
    if (kernel := kernel_spec(spec)) != spec:
        yield f"kernels     compute {kernel}; PyTorch operators around it apply scales, blocks and transforms"
        spec = kernel
    lists, *others = ROUTES
    for route in (lists,) if spec.needs_steps else reversed(others):
        yield from route.explain(spec)
