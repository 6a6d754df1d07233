"""One keyword for one thing: ``spec`` says how something is computed, whatever takes it.

    @takes_spec("formats")
    def qlinear(x, weight, bias=None, spec=None): ...

    qlinear(x, weight, formats="e4m3 : fp16")  # works, with a DeprecationWarning that names spec=
    qlinear(x, weight, acc="fp16")             # KeywordError: ... Try spec='fp16'.

``says_keywords("fmt")`` does the same for a function whose parameter of that kind has another name.

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

__all__ = ["KeywordError", "says_keywords", "takes_spec", "warn_of"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

NEW = "spec"
#: What people call a spec elsewhere: an error about such a keyword names the right one.
_OTHERS = frozenset(
    {"acc", "accum", "accumulator", "arith", "config", "fmt", "format", "formats", "mac", "numerics", "register"}
    | {"accumulate", "precision", "qconfig", "quant", "recipe", "rules", "specs", "spec"}
    | {"sepc", "psec", "spce", "pec", "sec", "spc", "spe", "sspec", "sppec", "speec", "specc"}
)
#: Files between a call and the person who wrote it: those below these folders, and these.
_BETWEEN = (str(Path(__file__).parent), *filter(None, (contextlib.__file__, functools.__file__)))


class KeywordError(TypeError):
    """An unknown keyword argument, or two keywords with the same meaning. The message names the right one.

    Example:
        >>> gs.qmatmul(torch.ones(1, 3), torch.ones(3, 1), format="e4m3 : fp16")
        Traceback (most recent call last):
            ...
        gemmsim._keywords.KeywordError: qmatmul() got an unexpected keyword argument 'format'; allowed: spec.
          Try spec='e4m3 : fp16'.
    """


def takes_spec(*old: str) -> Callable[[_Function], _Function]:
    """Decorator of a function with a parameter ``spec``, whose former keywords ``old`` go on working.

    A former keyword means what ``spec`` means and warns (DeprecationWarning), which Python shows once for each line of
    code that calls so. Arguments by position are untouched. A docstring that does not say it gets a line that does. The
    result's ``former_keywords`` are ``old``, and ``by_position`` is the function itself, which calls without keywords
    may go to directly.
    """

    return _named(NEW, old)


def says_keywords(new: str) -> Callable[[_Function], _Function]:
    """Decorator of a function whose parameter ``new`` is a format: errors about what else it may be called name it."""
    return _named(new, ())


def _named(new: str, old: tuple[str, ...]) -> Callable[[_Function], _Function]:
    def decorate(function: _Function) -> _Function:
        parameters = inspect.signature(function).parameters
        names = list(parameters)
        by_name = parameters[new].kind is inspect.Parameter.KEYWORD_ONLY
        place = sys.maxsize if by_name else names.index(new)
        looked_at = (_OTHERS | set(old)) - set(names)
        name, of_class = function.__name__, names[0] in ("self", "cls")
        known = tuple(names[of_class:])
        takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                if not looked_at.isdisjoint(kwargs):
                    owner = _owner(name, args[0]) if of_class else f"{name}()"
                    kwargs = _as_new(owner, new, old, len(args) > place, kwargs, looked_at)
                if not takes_any:
                    for keyword in kwargs:
                        if keyword not in known:
                            raise _unknown(_owner(name, args[0]) if of_class else f"{name}()", known, keyword)
            return function(*args, **kwargs)

        call.former_keywords = old  # type: ignore[attr-defined]
        call.by_position = function  # type: ignore[attr-defined]
        text = inspect.cleandoc(call.__doc__ or "")
        if old and f"``{old[0]}``" not in text:
            call.__doc__ = f"{text}\n\n``{old[0]}``, the former keyword for ``{new}``, is deprecated.".lstrip()
        return call  # type: ignore[return-value]

    return decorate


def _unknown(owner: str, known: tuple[str, ...], keyword: str) -> KeywordError:
    """The error for a keyword that is like none of another name for the same."""
    import difflib  # here: only messages need it, and it is slow to import

    near = difflib.get_close_matches(keyword, known, n=1)
    do = f"Did you mean {near[0]}=?" if near else "Leave it out."
    return KeywordError(f"{owner} got an unexpected keyword argument {keyword!r}; allowed: {', '.join(known)}.\n  {do}")


def _as_new(
    owner: str, new: str, old: tuple[str, ...], placed: bool, kwargs: dict[str, Any], looked_at: frozenset[str]
) -> dict[str, Any]:
    """``kwargs`` with ``new`` in place of a former keyword.

    Raises:
        KeywordError: for keywords that are neither, and for two that mean the same.
    """
    found = [name for name in kwargs if name in looked_at]
    for name in found:
        if name not in old:
            asked = f"{owner} got an unexpected keyword argument {name!r}"
            raise KeywordError(f"{asked}; allowed: {new}.\n  Try {new}={_value(kwargs[name])}.")
    name, replaced = found[0], _is_replaced()
    if len(found) > 1 or placed or (new in kwargs and not replaced):
        other = found[1] if len(found) > 1 else new
        asked = f"{owner} got both {other} and {name}, the former keyword for {new}"
        raise KeywordError(f"{asked}; allowed: one of them.\n  Leave {name}= out.")
    if not replaced:
        _warn(owner, name, new)
    value = kwargs[name]
    kwargs = {key: value for key, value in kwargs.items() if key != name}
    kwargs.setdefault(new, value)
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


# Compiled code runs these once, while it is traced: what gemmsim.ops.lazy_dynamo.assume_constant_result does.
_warn._dynamo_marked_constant = True  # type: ignore[attr-defined]
_is_replaced._dynamo_marked_constant = True  # type: ignore[attr-defined]
