"""What every command shares: where text goes, and how a user's mistake is told."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import typer
from rich.console import Console

import gemmsim as gs
from gemmsim.arithmetic import SpecError, UnsupportedSpec
from gemmsim.backends.cpu import LibraryError
from gemmsim.backends.cuda import CudaError
from gemmsim.backends.environment import VariableError
from gemmsim.formats import FormatError
from gemmsim.hardware import HardwareError
from gemmsim.study import StudyError

#: Errors whose message is written for the user. Anything else is a fault of ours and keeps its traceback.
USER_ERRORS = (
    FormatError,
    SpecError,
    UnsupportedSpec,
    HardwareError,
    StudyError,
    LibraryError,
    CudaError,
    VariableError,
)

USAGE_EXIT = 2
INTERRUPT_EXIT = 130


def console() -> Console:
    """Standard output; made per call, so that a redirected stream is respected."""
    return Console(highlight=False, soft_wrap=False)


def say(text: str) -> None:
    """``text`` on standard output as it is: no markup, no wrapping."""
    typer.echo(text)


def show(renderable: Any) -> None:
    """A table on standard output; where that is no terminal, in its natural width, so that nothing is cut."""
    out = console()
    if not out.is_terminal:
        out = Console(highlight=False, width=200)
    out.print(renderable)


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Turns the typed errors into one message on standard error and exit code 2."""
    try:
        yield
    except USER_ERRORS as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(USAGE_EXIT) from None


def version_text() -> str:
    """'gemmsim' and its version."""
    return f"gemmsim {gs.__version__}"
