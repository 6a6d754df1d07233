"""Files: text that people write, in the encodings of their tools, and files that are complete or absent."""

from __future__ import annotations

import codecs
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["LIMIT", "FileError", "read_text", "replacing", "write_text"]

#: Bytes that are read at most: lists of rules and of accumulators are shorter, devices may have no end.
LIMIT = 16 * 2**20
#: Byte order marks and the encodings they say, those of 32 bits first: theirs begin like those of 16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)


class FileError(ValueError):
    """A file that cannot be read: ``reason``, and what is ``allowed``, "" where it is not there or not readable."""

    def __init__(self, path: Path, reason: str, allowed: str = "") -> None:
        super().__init__(f"cannot read '{path}': {reason}" + (f"; allowed: {allowed}" if allowed else ""))
        self.reason, self.allowed = reason, allowed


def read_text(path: Path, limit: int = LIMIT) -> str:
    """The text of a file in UTF-8, or in the encoding that its byte order mark says (PowerShell writes UTF-16).

    Raises:
        FileError: it cannot be read, is longer than ``limit`` bytes, or is no text in that encoding.
    """
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise FileError(path, getattr(error, "strerror", None) or str(error)) from None
    if len(data) > limit:
        allowed = "shorter files.\n  Check that it is the right one."
        raise FileError(path, f"it has more than {limit:,} bytes", allowed)
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        reason = f"it is no text in {encoding}: byte {error.start} is {data[error.start]:#04x}"
        raise FileError(path, reason, "UTF-8, or UTF-16 with a mark.\n  Save it as UTF-8.") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path next to ``path`` that replaces it when the block ends, and vanishes when the block raises.

    A reader, or the next run after a power cut, sees the old file or the new one, never a part.
    """
    temporary = path.with_name(f".{path.stem}-{os.getpid()}-{threading.get_ident()}{path.suffix}")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """``path`` holds exactly ``text`` (UTF-8), or what it held before if anything goes wrong (OSError)."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
