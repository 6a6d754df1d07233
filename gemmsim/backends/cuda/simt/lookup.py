"""Products on NVIDIA GPUs whose terms come from a table of products of codes: kernels of family ``gemm``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec, Lookup, ProductTable
from gemmsim.lowering.abi_constants import Site
from gemmsim.lowering.refusal import Refusal

from ...device_tables import Table, Tables
from ...product import Ran
from ...product_tables import values_of
from ..casts.cast import quantize
from ..errors import CudaError, message
from ..jit.launch import launch
from ..jit.source import KernelSource
from ..ran import ran
from .gemm import (
    blocks_of,
    check_counts,
    check_devices,
    check_product,
    fill_orders,
    is_beforehand,
    kernel_for,
    operands_of,
    refuses,
)
from .gemm_args import gemm_args
from .gemm_operands import Operands, program_of
from .gemm_source import gemm_source, table_dtype
from .table_facts import NOT_SHORT, NOT_WHOLE, TableFacts, table_facts
from .tile_candidates import tiles_of

__all__ = ["count_lookup_overflows", "lookup_gemm", "lookup_refuses", "sources"]

_tables = Tables(64)


def _products_of(spec: GemmSpec) -> tuple[ProductTable, GemmSpec]:
    """Return the table, and the spec of everything after the products."""
    one = spec.accumulator
    assert isinstance(one, Lookup)
    return one.products, GemmSpec(accumulator=one.inner, out=spec.out)


def lookup_refuses(spec: GemmSpec) -> Refusal | None:
    """Return why ``lookup_gemm`` does not compute ``spec``, or ``None``."""
    return refuses(_products_of(spec)[1])


def lookup_gemm(a: Tensor, b: Tensor, spec: GemmSpec, out: Tensor, seed: int = 0, row: int = 0) -> Ran:
    """Write to ``out`` (\\*B, M, N) the product of codes ``a`` (\\*B, M, K) and ``b`` (\\*B, K, N), int16, any strides.

    This is ``gemmsim.backends.cpu.lookup_gemm`` with the same bits. All tensors must be on one GPU; the kernel runs on
    torch's current stream there. Codes must be those of the table's formats, or 2**bits for a NaN that has none: no
    kernel checks them. Nothing waits for the GPU, so an ``int(...)`` register with a NaN term gives NaN instead of an
    error.

    Raises:
        UnsupportedSpec: if ``lookup_refuses(spec)`` gives a reason.
        ValueError: for more than 2^31 - 1 terms or 16 batch dimensions.
        CudaError: if a kernel cannot be compiled or launched, and in a captured graph whose table is not on the device.
    """
    products, plain = _products_of(spec)
    seed = seed if spec.fixed_seed is None else spec.fixed_seed
    check_product(plain, a.shape[-1], None, None)
    check_devices(a, b, out)
    if out.numel() == 0:
        return ran()
    if plain.out is None or not is_beforehand(plain.out):
        return _launched(a, b, plain, products, out, seed, row=row)
    raw = torch.empty(out.shape, dtype=torch.float64, device=out.device)
    run = _launched(a, b, replace(plain, out=None), products, raw, seed, row=row)
    quantize(raw, plain.out, out, seed, Site.OUTPUT)
    return run


def count_lookup_overflows(a: Tensor, b: Tensor, spec: GemmSpec, counts: Tensor, seed: int = 0) -> Ran:
    """Add to ``counts`` (\\*B, M, N), int64, how often each element's register left its range.

    The other arguments are as for ``lookup_gemm``. The function adds -1 for elements of an ``int(...)`` register with a
    NaN term. The output cast has no influence.

    Raises:
        UnsupportedSpec: if ``lookup_refuses(spec)`` gives a reason, or ``spec`` has no such register.
        ValueError, CudaError: as ``lookup_gemm``.
    """
    products, plain = _products_of(spec)
    check_counts(plain)
    check_product(plain, a.shape[-1], None, None)
    check_devices(a, b, counts)
    if counts.numel() == 0 or a.shape[-1] == 0:
        return ran()
    seed = seed if spec.fixed_seed is None else spec.fixed_seed
    return _launched(a, b, replace(plain, out=None), products, counts, seed, count=True)


def _launched(
    a: Tensor,
    b: Tensor,
    spec: GemmSpec,
    products: ProductTable,
    out: Tensor,
    seed: int,
    count: bool = False,
    row: int = 0,
) -> Ran:
    member = spec.accumulator
    operands = replace(operands_of(a, b, out, member, None, None, (True, True)), table=table_facts(products))
    if count:
        operands = replace(operands, out=torch.float64, count=True)  # int64 has eight bytes per element, too
    kernel = kernel_for(spec, member, operands, out, a.shape[-1])
    entries = _entries(products, table_dtype(spec, program_of(member), operands), out.device)
    args = gemm_args(a, b, out, seed, row=row)
    args.c = entries.tensors[0].data_ptr()  # gemmsim::GemmArgs::products
    keep = fill_orders(args, member, out.device)
    launch(kernel.source, out.device, (blocks_of(args, kernel), 1, 1), args)
    del keep  # the caching allocator reuses memory of this stream only for later work of the same stream
    return ran(kernel.source)


def _entries(products: ProductTable, dtype: torch.dtype, device: torch.device) -> Table:
    """Return the table's entries as kernels read them, on ``device``; they are stored for later calls."""

    def make(where: torch.device) -> tuple[Tensor, ...]:
        if where.type != "cpu":
            asked = f"the table {products} for the first time while a CUDA graph is captured"
            raise CudaError(message(asked, "tables already on the device", "Run the product once before capturing."))
        values = values_of(products)
        if dtype.is_floating_point:
            return (values.to(dtype),)
        nan = NOT_SHORT if dtype == torch.int16 else NOT_WHOLE
        return (torch.where(values.isnan(), float(nan), values).to(dtype),)

    return _tables.get((products, dtype), device, make)


#: The products that CI compiles: accumulators of products of int8 from a table in global memory, and of e4m3 and e2m1
#: from a table in shared memory.
_INT8, _SMALL = TableFacts(257, 257, 16, 0, 16, True), TableFacts(257, 17, 8, -12, 12, False)
_LISTED = (
    *((_INT8, text) for text in ("int(32)", "int(20, saturate)", "fp32", "e5m10/sr16", "chunked(16, bf16)")),
    *((_SMALL, text) for text in ("e6m9/rtz", "kahan(bf16)", "exact(fp32)", "fixed(16, 8)", "fp64", "binned(fp32)")),
)


def sources() -> Iterator[KernelSource]:
    """Yield a kernel for each kind of innermost sum, with tables in global and in shared memory."""
    for facts, text in _LISTED:
        spec = GemmSpec.of(f":{text}")
        operands = Operands(torch.int16, torch.int16, torch.float32, None, False, True, True, 1, 1, table=facts)
        yield gemm_source(spec, spec.accumulator, operands, tiles_of(spec, spec.accumulator, operands)[0]).source
