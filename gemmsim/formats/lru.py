"""Functions of values that remember their results."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

__all__ = ["remembered"]

_F = TypeVar("_F", bound=Callable[..., Any])


def remembered(function: _F) -> _F:
    """``function``, whose last 4096 results are kept by argument.

    Arguments without a hash (a list given for a format, say) reach ``function`` all the same, so that its own error
    says what is wrong with them; ``functools.lru_cache`` alone would say that they are unhashable.
    """
    kept = lru_cache(maxsize=4096)(function)

    @wraps(function)
    def call(*args: Any) -> Any:
        try:
            return kept(*args)
        except TypeError:  # either no hash, or the function's own, which a second call raises again
            return function(*args)

    return call  # type: ignore[return-value]
