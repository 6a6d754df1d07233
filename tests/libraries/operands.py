"""Operands that tell orders of sums apart: ordinary ones do not, where partial sums happen to be exact."""

from __future__ import annotations

import ml_dtypes
import numpy as np

__all__ = ["KINDS", "operands"]

#: flat: normal. spread: each scaled by its own power of two. runs: so are runs of terms. taken back: a large product at
#: one place and its negative at another, and small ones. probe: a large product, its negative and a few small ones, all
#: else zero. ties: halves of a 16-bit unit, and products far below them.

KINDS = ("flat", "spread", "runs", "taken back", "probe", "ties")

_DTYPES = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
#: Of each format: exponents of factors of spread operands, of large and of small ones of a probe.
_SPREAD = {"fp16": 4, "bf16": 9, "e4m3": 4, "e5m2": 6}
_LARGE = {"fp16": 6, "bf16": 8, "e4m3": 7, "e5m2": 8}
_SMALL = {"fp16": -7, "bf16": -9, "e4m3": -6, "e5m2": -8}


def _rounded(values: np.ndarray, name: str) -> np.ndarray:
    """``values`` in format ``name``, none of them infinite."""
    largest = {"fp16": 65504.0, "bf16": 1e30, "e4m3": 448.0, "e5m2": 57344.0}[name]
    return np.clip(values, -largest, largest).astype(_DTYPES[name]).astype(np.float32)


def _scaled_runs(rng: np.random.Generator, shape: tuple[int, int], spread: int) -> np.ndarray:
    """Powers of two, (vectors, K), the same for runs of 8 to 128 terms."""
    length = int(rng.choice([8, 16, 32, 64, 128]))
    runs = rng.integers(-spread, spread + 1, (shape[0], -(-shape[1] // length)))
    return np.exp2(np.repeat(runs, length, axis=1)[:, : shape[1]])


def _places(rng: np.random.Generator, K: int, count: int) -> np.ndarray:
    return rng.choice(K, min(count, K), replace=False)


def _probe(rng: np.random.Generator, x: np.ndarray, y: np.ndarray, large: int, small: int) -> None:
    """In place, one element's vectors: L at one k, -L at another, a few small products, zeros."""
    places = _places(rng, len(x), int(rng.integers(3, 9)))
    x[:], y[:] = 0, 0
    for k in places[2:]:
        x[k], y[k] = rng.choice([-1, 1]) * (1 + rng.random()) * 2.0**small, (1 + rng.random()) * 2.0**small
    x[places[0]], y[places[0]] = 2.0**large, 2.0**large
    if len(places) > 1:
        x[places[1]], y[places[1]] = -(2.0**large), 2.0**large


def _ties(rng: np.random.Generator, x: np.ndarray, y: np.ndarray, half: int) -> None:
    """In place, one element's vectors: 1 first, then odd multiples of 2**half, each with a far smaller one."""
    x[:], y[:] = 0, 0
    x[0] = y[0] = 1
    for k in _places(rng, len(x) - 1, 6):
        x[k], y[k] = 2.0 ** (half // 2), 2.0 ** (half - half // 2) * rng.choice([-3, -1, 1, 3])
        x[k + 1], y[k + 1] = 2.0**-13, 2.0**-13 * rng.choice([-1, 1])


def operands(
    rng: np.random.Generator, kind: str, count: int, K: int, formats: tuple[str, str]
) -> tuple[np.ndarray, np.ndarray]:
    """``count`` rows and as many columns of numbers of the formats: (count, K) each, float32. Element i is row i by column i;
    where the kind is flat, spread or runs any row and column are a sample."""
    x, y = (rng.standard_normal((count, K)) for _ in range(2))
    a_format, b_format = formats
    if kind == "spread":
        x *= np.exp2(rng.integers(-_SPREAD[a_format], _SPREAD[a_format] + 1, x.shape))
        y *= np.exp2(rng.integers(-_SPREAD[b_format], _SPREAD[b_format] + 1, y.shape))
    elif kind == "runs":
        x *= _scaled_runs(rng, x.shape, _SPREAD[a_format])
        y *= _scaled_runs(rng, y.shape, _SPREAD[b_format])
    elif kind == "taken back":
        large, small = min(_LARGE[a_format], _LARGE[b_format]), 2.0 ** -(_SPREAD[a_format] // 2)
        x *= small
        for i in range(count):
            places = _places(rng, K, 2)
            x[i, places] = [2.0**large, -(2.0**large)][: len(places)]
            y[i, places] = 2.0**large
    elif kind == "probe":
        for i in range(count):
            _probe(rng, x[i], y[i], min(_LARGE[a_format], _LARGE[b_format]), max(_SMALL[a_format], _SMALL[b_format]))
    elif kind == "ties":
        for i in range(count):
            _ties(rng, x[i], y[i], -8 if a_format == "bf16" else -11)
    return _rounded(x, a_format), _rounded(y, b_format)
