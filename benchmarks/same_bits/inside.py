"""What cannot be asked for by public names: the plan packed for the C library, and the text of generated kernels.

These functions are the only ones of the dump that know where things lie in the package. A change that moves such code
may adapt them in the same commit; then compare with a dump made just before it.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu, cuda
from gemmsim.backends.cpu.block_float import described
from gemmsim.backends.cpu.block_records import block_record
from gemmsim.backends.cpu.spec_cache import prepare
from gemmsim.formats import BlockFormat, Cast, TensorFormat

__all__ = [
    "available_isas",
    "block_plan",
    "family_texts",
    "kernels_of_blocks",
    "kernels_of_casts",
    "kernels_of_products",
    "kernels_of_rows",
    "packed_plan",
    "refusals",
    "tensor_plan",
]

Text = tuple[str, str]


def available_isas() -> list[str]:
    """Instruction sets that this machine has."""
    found = []
    for name in cpu.ISAS:
        try:
            cpu.set_isa(name)
        except cpu.LibraryError:
            continue
        found.append(name)
    cpu.set_isa(found[0])
    return found


def _masked(record: ctypes.Structure) -> bytes:
    """The bytes of a record, its pointers zero."""
    copy = type(record).from_buffer_copy(record)
    _clear_pointers(copy)
    return bytes(copy)


def _clear_pointers(record: Any) -> None:
    for name, kind, *_ in getattr(type(record), "_fields_", ()):
        if kind is ctypes.c_void_p:
            setattr(record, name, None)
        elif issubclass(kind, ctypes.Structure):
            _clear_pointers(getattr(record, name))
        elif issubclass(kind, ctypes.Array) and issubclass(kind._type_, ctypes.Structure):
            for element in getattr(record, name):
                _clear_pointers(element)


def packed_plan(spec: GemmSpec) -> bytes:
    """The spec's part of a call of the C library, and the records of a palette's members."""
    known = prepare(spec)
    members = b"" if known.members is None else b"".join(_masked(one) for one in known.members)
    part = known.part[:-8] + bytes(8)  # the address of the members
    return part + members + f"{known.init} {known.shuffles} {known.has_blocks}".encode()


def block_plan(fmt: BlockFormat) -> bytes:
    """The record of a block format and its tables, for both precisions of the logarithm."""
    found = b""
    for precision in (8, 24):
        record, tables = block_record(fmt, precision)
        found += _masked(record) + b"".join(map(bytes, tables))  # type: ignore[call-overload]
    return found


def tensor_plan(fmt: TensorFormat) -> bytes:
    """The record of a format of tensors."""
    return _masked(described(fmt))


def refusals(spec: GemmSpec) -> str:
    """Why backends do not compute ``spec``."""
    return f"{cpu.refuses(spec)} | {cuda.refuses(spec)}"


def family_texts() -> Iterator[Text]:
    """Name and text of every kernel that is compiled ahead of time."""
    for source in cuda.family_sources():
        yield f"{source.family}/{source.name}", _described(source)


def _described(source: Any) -> str:
    return f"{source.threads} {source.shared_bytes} {source.work} {source.hot}\n{source.text}"


@contextmanager
def _launches() -> Iterator[list[Text]]:
    """Kernels that would be launched inside, nothing run."""
    found: list[Text] = []

    def launch(source: Any, device: object, blocks: object, args: object) -> None:
        found.append((f"{source.family}/{source.name}", f"{blocks}\n{_described(source)}"))

    name = "gemmsim.backends.cuda"
    modules = [m for key, m in sys.modules.items() if key.startswith(name) and callable(getattr(m, "launch", None))]
    patches = [mock.patch.object(module, "launch", launch) for module in modules]
    for patch in patches:
        patch.start()
    try:
        yield found
    finally:
        for patch in patches:
            patch.stop()


def _captured(call: Callable[[], object]) -> list[Text]:
    with _launches() as found:
        try:
            call()
        except Exception as error:  # what is refused, and how, belongs to the dump
            found.append(("refused", f"{type(error).__name__}: {error}"))
    return found


def kernels_of_products(spec: GemmSpec, a: Tensor, b: Tensor, select: Tensor | None, c: Tensor | None) -> list[Text]:
    """Kernels of a product on a GPU."""
    gemm = importlib.import_module("gemmsim.backends.cuda.simt.gemm").gemm
    out = torch.empty(a.shape[0], b.shape[1])
    return _captured(lambda: gemm(a, b, spec, out, 5, c, select))


def kernels_of_casts(cast: Cast | TensorFormat, x: Tensor, dtype: torch.dtype) -> list[Text]:
    """Kernels of a cast of ``x`` to a tensor of ``dtype``."""
    quantize = cuda.quantize if isinstance(cast, Cast) else cuda.quantize_tensor
    return _captured(lambda: quantize(x, cast, torch.empty(x.shape, dtype=dtype), 5))  # type: ignore[arg-type]


def kernels_of_blocks(fmt: BlockFormat, x: Tensor) -> list[Text]:
    """The kernel that rounds ``x`` to a block format, and the one that encodes it."""
    found = _captured(lambda: cuda.quantize_blocks(x, fmt, torch.empty_like(x), -1))
    codes = torch.empty(x.shape, dtype=torch.uint8)
    scales = torch.empty(*x.shape[:-1], -(-x.shape[-1] // fmt.block_size), dtype=torch.uint8)
    return found + _captured(lambda: cuda.encode_blocks(x, fmt, codes, scales, -1, "bytes"))


def kernels_of_rows(op: str, casts: list[Cast | None], x: Tensor) -> list[Text]:
    """The kernel of a softmax or a sum of the rows of ``x``."""
    shape = {"rows": x.shape[0], "cols": x.shape[1]}
    out = torch.empty(x.shape[0] if op == "sum" else x.shape)
    return _captured(lambda: cuda.run_rows(op, [x], [out], casts, **shape))
