"""One keyword for one thing: ``spec`` says how something is computed, whatever takes it.

    @takes_spec("formats")
    def qlinear(x, weight, bias=None, spec=None): ...

    qlinear(x, weight, formats="e4m3 : fp16")  # works, with a DeprecationWarning that names spec=
    qlinear(x, weight, acc="fp16")             # TypeError: ... Try spec='fp16'.

What a person, an editor, ``inspect.signature`` and a type checker see is the function as it is written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

__all__ = ["takes_spec", "warn_of"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

NEW = "spec"
#: What people call a spec elsewhere: an error about such a keyword names the right one.
_OTHERS = frozenset(
    {"acc", "accum", "accumulator", "arith", "config", "fmt", "format", "formats", "mac", "numerics", "register"}
    | {"accumulate", "precision", "qconfig", "quant", "recipe", "rules", "specs", "spec"}
)
#: Files between a call and the person who wrote it: those below these folders, and these.
_BETWEEN = (str(Path(__file__).parent), *filter(None, (contextlib.__file__, functools.__file__)))


def takes_spec(*old: str) -> Callable[[_Function], _Function]:
    """Decorator of a function with a parameter ``spec``, whose former keywords ``old`` go on working.

    A former keyword means what ``spec`` means and warns (DeprecationWarning), which Python shows once for each line of
    code that calls so. Arguments by position are untouched. A docstring that does not say it gets a line that does. The
    result's ``former_keywords`` are ``old``.
    """

    def decorate(function: _Function) -> _Function:
        parameters = inspect.signature(function).parameters
        names = list(parameters)
        by_name = parameters[NEW].kind is inspect.Parameter.KEYWORD_ONLY
        place = sys.maxsize if by_name else names.index(NEW)
        looked_at = (_OTHERS | set(old)) - set(names)
        name, of_class = function.__name__, names[0] in ("self", "cls")

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs and not looked_at.isdisjoint(kwargs):
                owner = _owner(name, args[0]) if of_class else f"{name}()"
                kwargs = _as_spec(owner, old, len(args) > place, kwargs, looked_at)
            return function(*args, **kwargs)

        call.former_keywords = old  # type: ignore[attr-defined]
        text = inspect.cleandoc(call.__doc__ or "")
        if old and f"``{old[0]}``" not in text:
            call.__doc__ = f"{text}\n\n``{old[0]}``, the former keyword for ``{NEW}``, is deprecated.".lstrip()
        return call  # type: ignore[return-value]

    return decorate


def _as_spec(
    owner: str, old: tuple[str, ...], placed: bool, kwargs: dict[str, Any], looked_at: frozenset[str]
) -> dict[str, Any]:
    """``kwargs`` with ``spec`` in place of a former keyword.

    Raises:
        TypeError: for keywords that are neither, and for two that mean the same.
    """
    found = [name for name in kwargs if name in looked_at]
    for name in found:
        if name not in old:
            asked = f"{owner} got an unexpected keyword argument {name!r}"
            raise TypeError(f"{asked}; allowed: {NEW}.\n  Try {NEW}={_value(kwargs[name])}.")
    name, replaced = found[0], _is_replaced()
    if len(found) > 1 or placed or (NEW in kwargs and not replaced):
        other = found[1] if len(found) > 1 else NEW
        asked = f"{owner} got both {other} and {name}, the former keyword for {NEW}"
        raise TypeError(f"{asked}; allowed: one of them.\n  Leave {name}= out.")
    if not replaced:
        _warn(owner, name, NEW)
    value = kwargs[name]
    kwargs = {key: value for key, value in kwargs.items() if key != name}
    kwargs.setdefault(NEW, value)
    return kwargs


def _owner(name: str, owner: object) -> str:
    """The name that a person called: of ``__init__`` and class methods that of the class itself."""
    kind = owner.__name__ if isinstance(owner, type) else type(owner).__name__
    return f"{kind}()" if name == "__init__" else f"{kind}.{name}()"


def _value(value: object) -> str:
    """A string as it is written, anything else as dots."""
    return repr(value) if isinstance(value, str) and len(value) < 80 else "..."


def _is_replaced() -> bool:
    """Whether ``dataclasses.replace`` calls, which gives the fields of a record by their names."""
    return _caller().f_code.co_filename == dataclasses.__file__


def warn_of(owner: str, name: str, new: str) -> None:
    """DeprecationWarning, at the line of the person's code that calls, about ``name``, which is called ``new`` now."""
    _warn(owner, name, new)


def _warn(owner: str, name: str, new: str) -> None:
    frame = _caller()
    warnings.warn_explicit(
        f"{owner}: the keyword is {new} now, and {name} an older name for it. Write {new}=.",
        DeprecationWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        frame.f_globals.get("__name__", "<unknown>"),
        frame.f_globals.setdefault("__warningregistry__", {}),
    )


def _caller() -> FrameType:
    """The frame of the code that calls this package, whatever of PyTorch is between."""
    torch = sys.modules.get("torch")
    between = _BETWEEN if torch is None else (*_BETWEEN, str(Path(torch.__file__ or __file__).parent))
    frame = first = sys._getframe(1)
    while frame.f_code.co_filename.startswith(between):
        if frame.f_back is None:
            return first
        frame = frame.f_back
    return frame


# Compiled code runs these once, while it is traced: what gemmsim.ops.tracing.assume_constant_result does.
_warn._dynamo_marked_constant = True  # type: ignore[attr-defined]
_is_replaced._dynamo_marked_constant = True  # type: ignore[attr-defined]
