"""Files and folders of results, whose errors are StudyErrors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from gemmsim._files import write_text

from .errors import StudyError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """An OSError of the block, such as a full disk, becomes the StudyError that ``path`` cannot be written."""
    try:
        yield
    except OSError as error:
        raise StudyError(
            f"cannot write '{path}': {error.strerror or error}. Finished cells are safe; make room or choose another "
            "folder with --out, then give the same command again."
        ) from error


def atomic_write_text(path: Path, text: str) -> None:
    """``path`` holds exactly ``text`` (UTF-8), or what it held before if anything goes wrong: then a StudyError."""
    with writing(path):
        write_text(path, text)


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Only one process at a time writes to ``folder``; a second one gets a StudyError at once.

    The operating system drops the lock when its holder dies, so no stale lock is ever left.
    """
    try:
        import fcntl
    except ImportError:  # no fcntl on Windows: two runs into one folder are then the user's care
        yield
        return
    with writing(folder / ".lock"):
        handle = (folder / ".lock").open("w")
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StudyError(
                f"another run is writing to '{folder}'. Wait for it to end, or choose another folder with --out."
            ) from error
        yield


def make_folder(path: Path) -> Path:
    """``path`` as an existing folder; StudyError when something else is in the way or it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(f"cannot make the folder '{path}': {error.strerror}. Choose another with --out.") from error
    return path
