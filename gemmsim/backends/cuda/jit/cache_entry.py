"""One compiled kernel as the bytes of one file: machine code, description, and a checksum over both.

The machine code comes first, so that cuobjdump and nvdisasm can read the file directly. The description and the
checksum follow it, so that a damaged or truncated file is recognised, whatever wrote it.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import asdict, dataclass

__all__ = ["EntryInfo", "pack_entry", "unpack_entry"]

_MAGIC = b"gemmsim\1"
_TAIL = struct.Struct("<II32s8s")  # bytes of code, bytes of description, SHA-256 of both, magic


@dataclass(frozen=True)
class EntryInfo:
    """The description of an entry, which ``gemmsim kernels list`` shows.

    ``digest`` is that of the headers and versions with which the entry was made.
    """

    family: str
    name: str
    arch: str
    seconds: float
    digest: str


def pack_entry(cubin: bytes, info: EntryInfo) -> bytes:
    """Return the bytes of an entry."""
    body = cubin + json.dumps(asdict(info)).encode()
    tail = _TAIL.pack(len(cubin), len(body) - len(cubin), hashlib.sha256(body).digest(), _MAGIC)
    return body + tail


def unpack_entry(data: bytes) -> tuple[bytes, EntryInfo] | None:
    """Return machine code and description; None unless every byte is as ``pack_entry`` wrote it."""
    if len(data) < _TAIL.size:
        return None
    code_size, info_size, digest, magic = _TAIL.unpack(data[-_TAIL.size :])
    body = data[: -_TAIL.size]
    if magic != _MAGIC or code_size + info_size != len(body) or hashlib.sha256(body).digest() != digest:
        return None
    try:
        return body[:code_size], EntryInfo(**json.loads(body[code_size:]))
    except (ValueError, TypeError):  # an entry of another version
        return None
