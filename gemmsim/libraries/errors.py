"""The errors of this package."""

from __future__ import annotations

from ..formats.errors import message

__all__ = ["LibraryError", "TableError", "UnknownPlan", "library_error", "table_error"]


class LibraryError(ValueError):
    """A library, version, GPU, shape, format or configuration that does not exist or contradicts itself.

    Example:
        >>> gs.libraries.cublaslt("h100", version="99")
        Traceback (most recent call last):
            ...
        gemmsim.libraries.errors.LibraryError: cuBLASLt 99 on h100, which was not measured; allowed: 13.1.1.
          ...
    """


class TableError(ValueError):
    """A table of configurations that cannot be read, is corrupt, or belongs to another library.

    Example:
        >>> gs.libraries.read_table("missing.jsonl")
        Traceback (most recent call last):
            ...
        gemmsim.libraries.errors.TableError: missing.jsonl: No such file or directory; ...
    """


class UnknownPlan(LookupError):
    """A call for which it was never measured what the library computes.

    Attributes:
        asked: the call, and what about it is unknown.
        known: what is known instead, for this GPU and library.
        do: what to do.

    Example:
        >>> gs.libraries.cublaslt("h100").plan(64, 64, 64, "fp16")  # without a configuration
        Traceback (most recent call last):
            ...
        gemmsim.libraries.errors.UnknownPlan: 64 x 64 x 64 in fp16 to fp16 on h100 13.1.1: ...
    """

    def __init__(self, asked: str, known: str, do: str) -> None:
        super().__init__(message(asked, known, do).replace("; allowed: ", "; known: ", 1))
        self.asked, self.known, self.do = asked, known, do

    def __reduce__(self) -> tuple[type[UnknownPlan], tuple[str, str, str]]:
        return UnknownPlan, (self.asked, self.known, self.do)


def library_error(asked: str, allowed: str, do: str) -> LibraryError:
    """``LibraryError`` that says what was asked, what is allowed and what to do."""
    return LibraryError(message(asked, allowed, do))


def table_error(asked: str, allowed: str, do: str) -> TableError:
    """``TableError`` that says what was found, what is allowed and what to do."""
    return TableError(message(asked, allowed, do))
