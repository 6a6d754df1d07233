"""Random operands by name, the same on every machine: counter-based (Philox), from the name, the shape and a seed."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .errors import StudyError, nearest

__all__ = ["NAMES", "Distribution", "distribution", "distributions", "draw"]

_Draw = Callable[[np.random.Generator, "tuple[int, ...]", "tuple[float, ...]"], "np.ndarray"]
#: Numbers drawn at a time, which caches hold.
_PIECE = 2**15


@dataclass(frozen=True)
class _Family:
    draw: _Draw
    words: str
    #: Names of its numbers, in order.
    numbers: tuple[str, ...] = ()
    #: Whether an element depends on what comes before it in the stream alone: drawn in pieces it is the same.
    one_by_one: bool = False


def _relu(g: np.random.Generator, shape: tuple[int, ...], _: tuple[float, ...]) -> np.ndarray:
    return np.maximum(g.standard_normal(shape), 0)


def _outliers(g: np.random.Generator, shape: tuple[int, ...], numbers: tuple[float, ...]) -> np.ndarray:
    share, factor = numbers
    values = g.standard_normal(shape)
    return np.where(g.random(shape) < share, values * factor, values)


def _wide(g: np.random.Generator, shape: tuple[int, ...], numbers: tuple[float, ...]) -> np.ndarray:
    return (g.random(shape) - 0.5) * np.exp(numbers[0] * g.standard_normal(shape))


def _integers(g: np.random.Generator, shape: tuple[int, ...], numbers: tuple[float, ...]) -> np.ndarray:
    low, high = (math.ceil(numbers[0]), math.floor(numbers[1]))
    if low > high or max(abs(low), abs(high)) > 2**24:
        raise StudyError(f"integers({low},{high}); allowed: lowest <= highest, both within 2^24, which float32 holds.")
    return g.integers(low, high, shape, endpoint=True)


def _uniform(g: np.random.Generator, shape: tuple[int, ...], numbers: tuple[float, ...]) -> np.ndarray:
    mean, deviation = numbers
    return mean + deviation * np.sqrt(12) * (g.random(shape) - 0.5)


_FAMILIES = {
    "randn": _Family(lambda g, s, n: g.standard_normal(s), "normal, mean 0, deviation 1", one_by_one=True),
    "rand01": _Family(lambda g, s, n: g.random(s), "uniform in [0, 1)", one_by_one=True),
    "rand11": _Family(lambda g, s, n: 2 * g.random(s) - 1, "uniform in [-1, 1)", one_by_one=True),
    "ones": _Family(
        lambda g, s, n: np.ones(s), "1 everywhere: products are sums of the other operand's terms", one_by_one=True
    ),
    "fan_in": _Family(lambda g, s, n: g.standard_normal(s) / np.sqrt(max(s[0], 1)), "normal, deviation 1/sqrt(K)"),
    "relu": _Family(_relu, "normal, negative ones replaced by 0", one_by_one=True),
    "normal": _Family(lambda g, s, n: n[0] + n[1] * g.standard_normal(s), "normal", ("mean", "deviation"), True),
    "uniform": _Family(_uniform, "uniform of that mean and deviation", ("mean", "deviation"), True),
    "lognormal": _Family(lambda g, s, n: np.exp(n[0] * g.standard_normal(s)), "exp of a normal", ("deviation",), True),
    "student": _Family(lambda g, s, n: g.standard_t(n[0], s), "Student's t, heavy tails", ("degrees",), True),
    "outliers": _Family(_outliers, "normal, a share of them times a factor", ("share", "factor")),
    "integers": _Family(_integers, "whole numbers, both ends included, equally likely", ("lowest", "highest")),
    "wide": _Family(_wide, "(rand - 0.5) exp(phi randn): exponents spread by phi", ("phi",)),
}
#: Name -> what it is.
NAMES = {
    name: family.words + (f" ({', '.join(family.numbers)})" if family.numbers else "")
    for name, family in _FAMILIES.items()
}

_CALL = re.compile(r"\s*(?P<name>\w+)\s*(?:\((?P<numbers>[^()]*)\))?\s*$")


@dataclass(frozen=True)
class _One:
    name: str
    numbers: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.name}({','.join(f'{n:g}' for n in self.numbers)})" if self.numbers else self.name


@dataclass(frozen=True)
class Distribution:
    """Distributions of a (M, K) and of b (K, N). As text one name if they are equal, else ``A*B``."""

    a: _One
    b: _One

    def __str__(self) -> str:
        return str(self.a) if self.a == self.b else f"{self.a}*{self.b}"


def distributions(given: object, name: str) -> tuple[str, ...]:
    """The canonical texts of a list such as ``randn,rand01`` or ``["uniform(1,1)*ones"]``.

    Raises:
        StudyError: as ``distribution``, or an empty list.
    """
    entries = _split(given) if isinstance(given, str) else [str(item) for item in given]  # type: ignore[attr-defined]
    if not entries:
        raise StudyError(f"{name} lists no distribution; allowed: {_allowed()}.")
    return tuple(dict.fromkeys(str(distribution(entry)) for entry in entries))


def distribution(text: str) -> Distribution:
    """The distribution of this name, such as ``randn``, ``lognormal(2)``, ``uniform(1,1)*ones``.

    Raises:
        StudyError: an unknown name (it tells the nearest), numbers that do not belong to it.
    """
    first, star, second = text.partition("*")
    a = _read(first)
    return Distribution(a, _read(second) if star else a)


def draw(text: str, m: int, k: int, n: int, seed: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """a (m, k) and b (k, n) of this distribution, each from a stream of its own: float64, rounded to ``dtype``."""
    parts = distribution(text)
    return _draw(parts.a, (m, k), "a", seed, dtype), _draw(parts.b, (k, n), "b", seed, dtype)


def _draw(one: _One, shape: tuple[int, int], operand: str, seed: int, dtype: torch.dtype) -> Tensor:
    key = int.from_bytes(hashlib.sha256(f"{one}|{shape}|{operand}|{seed}".encode()).digest()[:16], "little")
    generator = np.random.Generator(np.random.Philox(key=key))
    family = _FAMILIES[one.name]
    with np.errstate(over="ignore", under="ignore"):
        if not family.one_by_one:
            return torch.from_numpy(family.draw(generator, shape, one.numbers).astype(np.float64, copy=False)).to(dtype)
        drawn = torch.empty(shape, dtype=dtype)
        for part in drawn.view(-1).split(_PIECE):
            part.copy_(torch.from_numpy(family.draw(generator, part.shape, one.numbers)))
    return drawn


def _read(text: str) -> _One:
    match = _CALL.match(text)
    family = _FAMILIES.get(match["name"]) if match else None
    if match is None or family is None:
        name = match["name"] if match else text.strip()
        raise StudyError(f"unknown distribution {name!r}.{nearest(name, list(_FAMILIES))} Allowed: {_allowed()}.")
    try:
        given = tuple(float(part) for part in (match["numbers"] or "").split(",") if part.strip())
    except ValueError:
        given = (float("nan"),)
    if len(given) != len(family.numbers) or not all(np.isfinite(given)):
        wanted = f"{match['name']}({', '.join(family.numbers)})" if family.numbers else match["name"]
        raise StudyError(f"distribution {text.strip()!r}; allowed: {wanted}, {family.words}.")
    return _One(match["name"], given)


def _split(text: str) -> list[str]:
    """At commas outside parentheses."""
    return [part for part in re.split(r",(?![^()]*\))", text) if part.strip()]


def _allowed() -> str:
    return ", ".join(f"{n}({','.join(f.numbers)})" if f.numbers else n for n, f in _FAMILIES.items()) + ", and A*B"
