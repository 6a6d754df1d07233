"""How operands are cut into slices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from gemmsim.arithmetic.errors import spec_error
from gemmsim.formats import Cast, FixedFormat, FloatFormat, parse_cast

from ..ops.quantization import quantize
from .powers import scale

__all__ = ["FloatSlices", "IntegerSlices", "slicing_from_json"]

#: Most integer slices: the powers of two of their products stay far from underflow.
_MOST = 64


@dataclass(frozen=True)
class FloatSlices:
    """``x_1 = R(x), x_2 = R(2^gain (x - x_1)), x_3 = R(2^gain (2^gain (x - x_1) - x_2))``, ...

    x is then about ``x_1 + 2^-gain x_2 + 2^-2gain x_3 + ...``.

    Args:
        fmt: R, the cast of every slice, deterministic, to a float format. It should saturate ("bf16/sat"): finite
            numbers beyond its largest one then leave a remainder for the next slice.
        count: slices, 1 to 8.
        gain: each remainder is multiplied by ``2^gain`` first, 0 to 24, which keeps small ones from underflow.

    Operands are rounded to float32 first, which only changes float64 ones. Remainders are exact.
    With bf16, three slices hold every float32 of magnitude 2^-110 or more, two to 2^-16 of it, one to 2^-8; smaller
    ones to half of bf16's smallest number, 2^-134. With tf32, gain 11, two hold it to 2^-23.

    Raises:
        SpecError, FormatError: for another format, and counts and gains outside these ranges.

    Example:
        >>> parts, _ = gs.sliced.FloatSlices("bf16/sat", count=3).of(torch.tensor([1.2345678]), 0)
        >>> [part.item() for part in parts]
        [1.234375, 0.0001926422119140625, 1.1920928955078125e-07]
    """

    kind: ClassVar[str] = "float"

    fmt: Cast
    count: int
    gain: int = 0

    def __post_init__(self) -> None:
        cast = parse_cast(self.fmt) if isinstance(self.fmt, str) else self.fmt
        cast = Cast(cast) if isinstance(cast, FloatFormat) else cast
        if not isinstance(cast, Cast) or isinstance(cast.format, FixedFormat) or cast.is_stochastic:
            asked = f"FloatSlices: fmt={self.fmt!r}"
            raise spec_error(asked, "deterministic casts to float formats", "Give 'bf16/sat', for instance.")
        object.__setattr__(self, "fmt", cast)
        _check("FloatSlices", "count", self.count, 1, 8)
        _check("FloatSlices", "gain", self.gain, 0, 24)

    def of(self, x: Tensor, dim: int) -> tuple[list[Tensor], None]:
        """The slices of the finite tensor ``x``, float64, and no scales; ``dim`` does not matter here."""
        rest = x.to(torch.float32).to(torch.float64)
        found = []
        for _ in range(self.count):
            found.append(quantize(rest, self.fmt))
            rest = (rest - found[-1]) * 2.0**self.gain
        return found, None

    def shift(self, term: tuple[int, int]) -> int:
        """Exponent of the product of these slices (numbered from 1) relative to the first ones."""
        return -self.gain * (term[0] + term[1] - 2)

    def to_json(self) -> dict[str, object]:
        """Plain dictionary."""
        return {"kind": self.kind, "fmt": str(self.fmt), "count": self.count, "gain": self.gain}

    def explain_lines(self) -> list[tuple[str, str]]:
        """The slices in words."""
        gain = f"2^{self.gain} times " if self.gain else ""
        rest = f"; each next one R of {gain}what is left, exactly" if self.count > 1 else ""
        lines = [("slices", f"{self.count} of each operand (rounded to float32): x_1 = R(x){rest}")]
        return [*lines, ("R", f"rounds to {self.fmt.words()}")]

    def __str__(self) -> str:
        return f"{self.fmt} x {self.count}" + (f", gain {self.gain}" if self.gain else "")


@dataclass(frozen=True)
class IntegerSlices:
    """Rows of a and columns of b as ``2^e (2^-bits q_1 + 2^-2bits q_2 + ...)`` with integers q_s.

    The magnitudes of q_s are below ``2^bits``. e is the exponent of the largest magnitude of the row or column, which
    is below ``2^e`` and at least half of it. The q_s are truncated toward zero.

    Args:
        bits: of each slice, 1 to 15, without sign: 7 for int8.
        count: slices, 1 to 64. They hold an operand exactly if its lowest bit is at least ``2^(e - bits count)``;
            otherwise they truncate it below that.

    A row of zeros has slices of zeros, and e = 0. Operands are not rounded first; the widest are float64.

    Raises:
        SpecError: for numbers outside these ranges.

    Example:
        >>> parts, exponents = gs.sliced.IntegerSlices(bits=7, count=2).of(torch.tensor([[0.75, 0.1]]), 1)
        >>> parts, exponents
        ([tensor([[96., 12.]], dtype=torch.float64), tensor([[  0., 102.]], dtype=torch.float64)], tensor([[0]]))
    """

    kind: ClassVar[str] = "integer"

    bits: int
    count: int

    def __post_init__(self) -> None:
        _check("IntegerSlices", "bits", self.bits, 1, 15)
        _check("IntegerSlices", "count", self.count, 1, _MOST)

    def of(self, x: Tensor, dim: int) -> tuple[list[Tensor], Tensor]:
        """The slices of the finite tensor ``x``, float64, and the exponents e of its vectors along ``dim``."""
        x = x.to(torch.float64)
        if x.shape[dim] == 0:
            shape = list(x.shape)
            shape[dim] = 1
            return [x] * self.count, torch.zeros(shape, dtype=torch.int64, device=x.device)
        exponents = torch.frexp(x.abs().amax(dim, keepdim=True))[1].to(torch.int64)
        rest = scale(x, -exponents)
        found = []
        for _ in range(self.count):
            rest = rest * 2.0**self.bits
            found.append(rest.trunc())
            rest = rest - found[-1]
        return found, exponents

    def shift(self, term: tuple[int, int]) -> int:
        """Exponent of the product of these slices (numbered from 1), without the vectors' own exponents."""
        return -self.bits * (term[0] + term[1])

    def to_json(self) -> dict[str, object]:
        """Plain dictionary."""
        return {"kind": self.kind, "bits": self.bits, "count": self.count}

    def explain_lines(self) -> list[tuple[str, str]]:
        """The slices in words."""
        words = (
            f"{self.count} integers of {self.bits} bits and sign of each element, cut off: "
            f"x = 2^e (2^-{self.bits} q_1 + 2^-{2 * self.bits} q_2 + ...)"
        )
        return [
            ("slices", words),
            ("e", "exponent of the largest magnitude in a's row or b's column, which is below 2^e"),
        ]

    def __str__(self) -> str:
        return f"{self.bits} bits x {self.count}"


def slicing_from_json(data: Any) -> FloatSlices | IntegerSlices:
    """What ``to_json`` of one of them wrote.

    Raises:
        SpecError: for anything else.
    """
    kinds: dict[str, Any] = {one.kind: one for one in (FloatSlices, IntegerSlices)}
    if isinstance(data, (FloatSlices, IntegerSlices)):
        return data
    fields = dict(data) if isinstance(data, Mapping) else {}
    kind = fields.pop("kind", None)
    wanted = {"float": {"fmt", "count", "gain"}, "integer": {"bits", "count"}}
    if kind not in kinds or set(fields) != wanted[kind]:
        do = "Use what to_json() writes."
        raise spec_error(f"slicing {data!r}", "kind 'float' with fmt, count, gain; 'integer' with bits, count", do)
    found: FloatSlices | IntegerSlices = kinds[kind](**fields)
    return found


def _check(owner: str, name: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise spec_error(f"{owner}: {name}={value!r}", f"integers from {low} to {high}", f"Give another {name}.")
