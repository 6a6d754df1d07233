"""What every command shares: where text goes, and how mistakes and failures are told. It loads no PyTorch."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

import gemmsim as gs

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "FAILED_EXIT",
    "INTERRUPT_EXIT",
    "USAGE_EXIT",
    "console",
    "is_user_error",
    "plain",
    "say",
    "say_json",
    "show",
    "user_errors",
    "version_text",
    "warn",
]

#: Exit codes: a check failed, or something went wrong while a command ran; a mistake in what was asked; interrupted.
FAILED_EXIT = 1
USAGE_EXIT = 2
INTERRUPT_EXIT = 130


def console() -> Console:
    """Standard output; made per call, so that a redirected stream is respected. Without a terminal as wide as COLUMNS
    says, else 80."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False, markup=False, emoji=False)


def say(text: str) -> None:
    """``text`` on standard output as it is: no markup, no wrapping."""
    typer.echo(text)


def say_json(value: Any) -> None:
    """``value`` as JSON on standard output; see ``plain``."""
    say(json.dumps(plain(value), indent=1))


def plain(value: Any) -> Any:
    """``value`` of plain parts for JSON: infinities and NaN as "inf", "-inf", "nan"; of other things their text."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, dict):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return str(value)


def warn(text: str) -> None:
    """``text`` on standard error."""
    typer.echo(text, err=True)


def show(renderable: Any, *, natural: bool = False) -> None:
    """A table on standard output. ``natural``: where that is no terminal, as wide as it is, so that nothing is cut."""
    out = console()
    if natural and not out.is_terminal:
        from rich.console import Console

        out = Console(highlight=False, width=200, markup=False, emoji=False)
    out.print(renderable)


def is_user_error(error: BaseException) -> bool:
    """Whether ``error`` is one of gemmsim's own, whose message is written for the user. Anything else is a fault of
    ours and keeps its traceback, but for what the machine refuses."""
    return any(kind.__module__.partition(".")[0] == "gemmsim" for kind in type(error).__mro__)


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """One message on standard error instead of a traceback: exit code 2 for the typed errors, 1 for what the machine
    refuses (files, memory) and for nesting without end, 130 for an interrupt.

    Raises:
        Exit: with that code.
    """
    try:
        yield
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        warn("interrupted")
        raise typer.Exit(INTERRUPT_EXIT) from None
    except Exception as error:
        if is_user_error(error):
            warn(f"error: {_for_a_shell(str(error))}")
            raise typer.Exit(USAGE_EXIT) from None
        if (words := _refused(error)) is None:
            raise
        warn(f"error: {words}")
        raise typer.Exit(FAILED_EXIT) from None


def _for_a_shell(said: str) -> str:
    """A message whose advice is Python code, in words for a command line: a recipe's spec of one product."""
    recipe = re.search(r"gemmsim\.recipes\.(\w+)\(\)\.fprop", said)
    if recipe is None:
        return said
    said = said.replace("qmatmul, qlinear, modules, emulate and convert take all three", "gemmsim emulate takes all")
    made = getattr(gs.recipes, recipe[1])()
    return said.replace(f"one of them, {recipe[0]}", f"the spec of one product, such as {str(made.fprop)!r}")


def _refused(error: Exception) -> str | None:
    """What the machine refuses, in words; None for other errors."""
    if isinstance(error, OSError):
        where = f"'{error.filename}': " if error.filename is not None else ""
        return f"{where}{error.strerror or error}"
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in str(error)):
        return f"not enough memory: {str(error).partition(chr(10))[0] or 'the system gives no more'}"
    if isinstance(error, RecursionError):
        return "something is nested too deeply to read; allowed: fewer levels"
    return None


def version_text() -> str:
    """'gemmsim' and its version."""
    return f"gemmsim {gs.__version__}"
