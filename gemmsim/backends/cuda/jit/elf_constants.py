"""Reads constants that machine code exports, ``extern "C" __device__ const`` objects, from its ELF file."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ..errors import CudaError

__all__ = ["exported"]

#: Layout of ELF64 (System V ABI): the fields for sections in the header; the struct formats of a section header and a
#: symbol; the section type of symbol tables.
_SECTIONS_AT, _SECTION_COUNTS_AT = 0x28, 0x3A
_SECTION, _SYMBOL = "<IIQQQQIIQQ", "<IBBHQQ"
_SYMBOL_TABLE = 2


def exported(cubin: bytes, name: str) -> bytes:
    """Return the bytes of the object ``name`` as the compiler initialised it.

    Raises:
        CudaError: if ``cubin`` is no ELF file or has no such object.
    """
    if cubin[:4] != b"\x7fELF":
        raise CudaError(f"machine code that is not an ELF file, from which {name} cannot be read")
    wanted = name.encode() + b"\0"
    try:
        sections = list(_sections(cubin))
        for section, start, size, link in sections:
            if section != _SYMBOL_TABLE:
                continue
            for at in range(start, start + size, struct.calcsize(_SYMBOL)):
                text, _, _, home, value, length = struct.unpack_from(_SYMBOL, cubin, at)
                if cubin.startswith(wanted, sections[link][1] + text):
                    begin = sections[home][1] + value
                    return cubin[begin : begin + length]
    except (struct.error, IndexError) as error:
        raise CudaError(f"incomplete machine code, from which {name} cannot be read: {error}") from error
    raise CudaError(f"machine code exports no {name}")


def _sections(cubin: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield type, offset, size and link of each section."""
    (table,) = struct.unpack_from("<Q", cubin, _SECTIONS_AT)
    step, count = struct.unpack_from("<HH", cubin, _SECTION_COUNTS_AT)
    for i in range(count):
        _, kind, _, _, start, size, link, _, _, _ = struct.unpack_from(_SECTION, cubin, table + i * step)
        yield kind, start, size, link
