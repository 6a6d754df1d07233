"""Writes a safetensors file tensor by tensor, without keeping written data in memory.

The header precedes the data, so the writer reserves room for it and fills it with blanks, which the format allows. When
the room is used up, the data are copied behind a larger one. Until the file is closed, it has another name next to its
final path. It can be read at any time, as of the last header written. A tensor ``__unwritten__`` of bytes, which ends
where the file ends, covers the data added since.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from gemmsim.ops.errors import message

__all__ = ["DTYPES", "CaptureError", "GrowingFile"]

#: Dtypes that the format has a name for.
DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.int64: "I64", torch.int32: "I32",
    torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
_REST = "__unwritten__"
#: Number of tensors between two headers, and number of bytes that a header covers in advance.
_EVERY, _AHEAD = 128, 1 << 28
_BLOCK = 1 << 20


class CaptureError(OSError):
    """Raised if operands cannot be written, or if there are none to write.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, gs.capture(to=f"{folder}/operands.safetensors"):
        ...     _ = torch.ones(2) + torch.ones(2)
        Traceback (most recent call last):
            ...
        gemmsim.emulation.observe.safetensors_writer.CaptureError: capture: patterns ('*',), kinds ('*',), ...
    """


class GrowingFile:
    """A file that appears at ``path`` when it is closed.

    ``partial``: the path at which it grows. ``count``, ``size``: numbers of tensors and bytes written.

    Raises:
        CaptureError: if it cannot be written, by all methods: no room on the disk, no folder, no permission.
    """

    def __init__(self, path: str | Path, metadata: Mapping[str, str], room: int = 1 << 20) -> None:
        self.path = Path(path)
        self.partial = self.path.with_name(self.path.name + ".part")
        self.count = self.size = 0
        self._metadata = dict(metadata)
        self._about: dict[str, Mapping[str, object]] = {}
        self._start = _first_entry(self._metadata)
        self._entries = bytearray()
        self._known = 0  # bytes of entries in the file's header
        self._room = room
        self._since = 0
        with self._telling():
            self._file = self.partial.open("w+b")
            self._write_all()

    def add(self, name: str, tensor: Tensor) -> None:
        """Appends a tensor; its name must be new.

        Raises:
            CaptureError: if it cannot be written.
        """
        values = tensor.detach().cpu().contiguous()
        size = values.numel() * values.element_size()
        with self._telling():
            if self.size + size > self._covered:
                self._write_header(size)
            self._file.seek(8 + self._room + self.size)
            if size:
                self._file.write(values.view(-1).view(torch.uint8).numpy().data)
            fields = {
                "dtype": DTYPES[values.dtype],
                "shape": [*values.shape],
                "data_offsets": [self.size, self.size + size],
            }
            self._entries += f",{json.dumps(name)}:{json.dumps(fields, separators=(',', ':'))}".encode()
            self.size += size
            self.count += 1
            self._since += 1
            if self._since >= _EVERY:
                self._write_header()

    def describe(self, name: str, facts: Mapping[str, object]) -> None:
        """Plain facts of a product, which stand in the metadata of the closed file: ``products``, JSON by name."""
        self._about[name] = facts

    def close(self) -> None:
        """Completes the file and gives it its name.

        Raises:
            CaptureError: if it cannot be written.
        """
        if self._about:
            self._start = _first_entry({**self._metadata, "products": json.dumps(self._about)})
        with self._telling():
            if len(self._start) + len(self._entries) + 1 > self._room:
                self._widen()
            self._file.seek(8)
            self._file.write((self._start + self._entries + b"}").ljust(self._room))
            self._file.truncate(8 + self._room + self.size)
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self.partial, self.path)

    def abandon(self) -> None:
        """Closes the file under its other name; its content remains readable."""
        try:
            self._write_header()
        except OSError:  # the file remains as of its last header
            pass
        self._file.close()

    def _write_all(self) -> None:
        self._file.seek(0)
        self._file.write(self._room.to_bytes(8, "little") + b" " * self._room)
        self._known = 0
        self._write_header()

    def _write_header(self, coming: int = 0) -> None:
        """Writes the entries so far, and covers room for coming data.

        New parts are written before the parts that make them visible.
        """
        covered = self.size + max(_AHEAD, coming)
        rest = self._rest(covered)
        if len(self._start) + len(rest) + len(self._entries) + 1 > self._room:
            self._widen()
            return
        self._file.flush()
        self._file.truncate(8 + self._room + covered)
        at = 8 + len(self._start)
        self._file.seek(at + len(rest) + self._known)
        self._file.write(bytes(self._entries[self._known :]) + b"}")
        self._file.seek(8)
        self._file.write(self._start + rest)
        self._file.flush()
        self._covered, self._known, self._since = covered, len(self._entries), 0

    def _rest(self, covered: int) -> bytes:
        """The entry of the data that are not described yet. Its length is constant."""
        size = covered - self.size
        return (
            f',"{_REST}":{{"dtype":"U8","shape":[{size:16}],"data_offsets":[{self.size:16},{covered:16}]}}'
        ).encode()

    def _widen(self) -> None:
        """Copies the data to another file with four times the room, which then replaces this one."""
        old, wider = self._file, self.partial.with_name(self.partial.name + ".wider")
        old.flush()
        begin, self._room = 8 + self._room, 4 * self._room
        while len(self._start) + len(self._rest(0)) + len(self._entries) + 1 > self._room:
            self._room *= 4
        try:
            self._file = wider.open("w+b")
            self._file.seek(8 + self._room)
            old.seek(begin)
            left = self.size
            while left:
                block = old.read(min(_BLOCK, left))
                self._file.write(block)
                left -= len(block)
            self._write_all()
            os.replace(wider, self.partial)
        except OSError:
            wider.unlink(missing_ok=True)
            raise
        old.close()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Turns errors of the system into ``CaptureError``."""
        try:
            yield
        except CaptureError:
            raise
        except OSError as error:
            free = ""
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and self.path.parent.is_dir():
                free = f"; {shutil.disk_usage(self.path.parent).free >> 20:,} MiB are free there"
            asked = f"capture to '{self.path}': {error.strerror or error}, after {self.size >> 20:,} MiB{free}"
            allowed = "a writable folder with space for the operands"
            do = "Choose another, or write less: max_rows=, patterns, kinds, roles."
            raise CaptureError(message(asked, allowed, do)) from error


def _first_entry(metadata: Mapping[str, str]) -> bytes:
    return b'{"__metadata__":' + json.dumps(dict(metadata)).encode()
