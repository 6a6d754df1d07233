"""What an emulated matrix product is, as one value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gemmsim.arithmetic import GemmSpec, SpecLike
from gemmsim.arithmetic.errors import spec_error
from gemmsim.formats.errors import shown

from ..ops.arrays import takes_arrays
from .product import sliced_product
from .slices import FloatSlices, IntegerSlices, slicing_from_json

__all__ = ["Sliced", "matmul"]

_TOTALS = ("fp32", "fp64")
_FIELDS = ("slicing", "terms", "partial", "joined", "total", "out")


@dataclass(frozen=True)
class Sliced:
    """A matrix product as a sum of products of slices: ``sum over (i, j) in terms of 2^shift(i, j) a_i @ b_j``.

    Args:
        slicing: how both operands are divided into slices: ``FloatSlices`` or ``IntegerSlices``.
        terms: the kept cross terms (i, j), numbers of slices from 1, each once; the order of the sum.
        partial: the spec of each product of slices: one for all, or one for each term. There is no output cast except
            those in it.
        joined: True: all terms are one sum in one accumulator: one product of the a_i next to each other and the b_j
            below one another, in the order of ``terms`` (its K is multiplied by the number of terms). It needs one
            spec, and slices without scales. False: each product separately; ``T = R(p_1)``, then ``T = R(T + p_t)`` for
            each next one, where p is the product rounded to ``total`` times its power of two, exactly, and R rounds to
            ``total``, to nearest even.
        total: format of that sum, "fp32" or "fp64"; without influence if joined.
        out: format of the result, "fp32" or "fp64", to which T times the powers of two of its row and column is rounded
            (nearest even).

    Outputs whose row of a or column of b holds a NaN or an infinity follow IEEE 754: NaN for a NaN, 0 * inf and
    infinities of both signs, otherwise that infinity. The same holds for float64 operands beyond float32, where slices
    are of float32. Other outputs come from finite slices and overflow as the accumulators do; infinite partial products
    of both signs may therefore give NaN. Results of underflow keep their sign, -0 included. K = 0 gives +0.

    Raises:
        SpecError, FormatError: for terms of no slice, none or one twice, specs that mean nothing or do not go with the
            terms, and a sum that cannot be joined.

    Example:
        >>> two = gs.sliced.FloatSlices("bf16/sat", count=2)
        >>> scheme = gs.sliced.Sliced(two, terms=((2, 1), (1, 2), (1, 1)), partial=":exact(fp32)")
        >>> scheme(torch.tensor([[1.2345678]]), torch.ones(1, 1)).item(), scheme.products
        (1.234567642211914, 3)
    """

    slicing: FloatSlices | IntegerSlices
    terms: tuple[tuple[int, int], ...]
    partial: GemmSpec | tuple[GemmSpec, ...]
    joined: bool = False
    total: str = "fp32"
    out: str = "fp32"

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "slicing", slicing_from_json(self.slicing))
        put(self, "terms", _terms(self.terms, self.slicing.count))
        put(self, "partial", _specs(self.partial, len(self.terms)))
        for name in ("total", "out"):
            if getattr(self, name) not in _TOTALS:
                asked = f"Sliced: {name}={getattr(self, name)!r}"
                raise spec_error(asked, "'fp32', 'fp64'", "Other roundings go into partial, or onto the result.")
        if type(self.joined) is not bool:
            raise spec_error(f"Sliced: joined={self.joined!r}", "True or False", "Give one of them.")
        scaled = any(self.slicing.shift(term) != self.slicing.shift((1, 1)) for term in self.terms)
        if self.joined and (scaled or isinstance(self.slicing, IntegerSlices) or isinstance(self.partial, tuple)):
            asked = f"Sliced: joined=True with slices {self.slicing} and {self.partial}"
            raise spec_error(asked, "FloatSlices without gain and one spec for all terms", "Use joined=False.")

    @property
    def products(self) -> int:
        """Number of matrix products."""
        return len(self.terms)

    @property
    def specs(self) -> tuple[GemmSpec, ...]:
        """The spec of each term."""
        return self.partial if isinstance(self.partial, tuple) else (self.partial,) * self.products

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """``gemmsim.sliced.matmul(a, b, self)``."""
        return matmul(a, b, self)

    def explain(self) -> str:
        """What is computed, in a few lines of words; each spec in its own words.

        Example:
            >>> print(gs.sliced.bf16(2).explain().splitlines()[0])
            slices      2 of each operand (rounded to float32): x_1 = R(x); each next one R of what is left, exactly
        """
        lines = [*self.slicing.explain_lines(), ("terms", f"{self.products}: {_term_words(self.terms)}")]
        if self.joined:
            lines.append(("sum", "all terms sequentially in one accumulator, from +0"))
        else:
            lines.append(("sum", f"T = R(T + 2^shift p) in {self.total}, each p rounded to it, in this order"))
        lines.append(("result", f"rounded to {self.out}"))
        text = "\n".join(f"{name:12}{words}" for name, words in lines)
        for spec in dict.fromkeys(self.specs):
            text += "\neach partial product\n" + "\n".join(f"  {line}" for line in spec.explain().splitlines())
        return text

    def __str__(self) -> str:
        specs = ", ".join(repr(spec.key) for spec in dict.fromkeys(self.specs))
        how = "joined" if self.joined else f"summed in {self.total}"
        return f"{self.slicing}; {self.products} products by {specs}, {how} -> {self.out}"

    def to_json(self) -> dict[str, object]:
        """The scheme as a plain dictionary; ``from_json`` reads it back.

        Example:
            >>> gs.sliced.Sliced.from_json(gs.sliced.bf16(2).to_json()) == gs.sliced.bf16(2)
            True
        """
        one = self.partial
        return {
            "version": 1,
            "slicing": self.slicing.to_json(),
            "terms": [list(term) for term in self.terms],
            "partial": one.key if isinstance(one, GemmSpec) else [spec.key for spec in one],
            "joined": self.joined,
            "total": self.total,
            "out": self.out,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str) -> Sliced:
        """Scheme written by ``to_json``, as the dictionary or as JSON text.

        Raises:
            SpecError: for another version, unknown or missing fields and impossible values.
        """
        if isinstance(data, str):
            try:
                data = json.loads(data)
            except (ValueError, RecursionError) as error:
                raise spec_error(f"Sliced JSON: {error}", "what to_json() writes", "Use json.dumps of it.") from None
        if not isinstance(data, Mapping) or data.get("version", 1) != 1:
            raise spec_error(f"Sliced JSON {shown(data)}", "an object of version 1", "Use to_json().")
        fields = {name: value for name, value in data.items() if name != "version"}
        if set(fields) != set(_FIELDS):
            raise spec_error(f"Sliced JSON with {', '.join(sorted(fields))}", ", ".join(_FIELDS), "Use to_json().")
        return cls(**fields)


@takes_arrays
def matmul(a: Tensor, b: Tensor, scheme: Sliced) -> Tensor:
    """``a @ b`` by the products of ``scheme``, in the dtype of ``scheme.out``, float32 or float64.

    Args:
        a, b: shapes as for ``torch.matmul``; float32, float64, float16, bfloat16, float8, int8, uint8, any strides, one
            device. Where slices are of float32, float64 operands are rounded to it first.
        scheme: the slices and products. Random bits of stochastic accumulators come from torch's default CPU generator.

    There is no gradient: rounding has none, and the scheme of a backward product would be the caller's choice. NaN,
    infinities, zeros and K = 0: see ``Sliced``. A K with which an integer accumulator could wrap is refused; for
    ``ozaki_int8`` this is K above 133144.

    Raises:
        GradError: for an operand that requires grad in grad mode.
        SpecError: for a ``scheme`` that is not one.
        ShapeError: for shapes that do not multiply, and K beyond what an integer accumulator holds exactly.
        UnsupportedSpec, DTypeError, DeviceError: as ``gemmsim.qmatmul``.

    Example:
        >>> gs.sliced.matmul(torch.tensor([[1.2345678]]), torch.ones(1, 1), gs.sliced.bf16(3)).item()
        1.2345677614212036
    """
    if not isinstance(scheme, Sliced):
        asked = f"sliced.matmul: scheme={shown(scheme)}"
        raise spec_error(asked, "a gemmsim.sliced.Sliced", "Use gemmsim.sliced.bf16(3), for instance.")
    return sliced_product(a, b, scheme)


def _terms(terms: Any, count: int) -> tuple[tuple[int, int], ...]:
    allowed = f"pairs (i, j) of slices from 1 to {count}, each once, at least one"
    do = f"Give ((1, 1), ...), or use more slices than {count}."
    try:
        found = tuple((i, j) for i, j in terms)
    except (TypeError, ValueError):
        raise spec_error(f"Sliced: terms={shown(terms)}", allowed, do) from None
    inside = all(type(i) is int and 1 <= i <= count for term in found for i in term)
    if not found or not inside or len(set(found)) < len(found):
        raise spec_error(f"Sliced: terms={shown(found)}", allowed, do)
    return found


def _specs(partial: SpecLike | Sequence[SpecLike], count: int) -> GemmSpec | tuple[GemmSpec, ...]:
    if not isinstance(partial, (tuple, list)):
        return _spec(partial)
    found = tuple(_spec(one) for one in partial)
    if len(found) != count:
        asked = f"Sliced: {len(found)} specs for {count} terms"
        raise spec_error(asked, "one spec, or one for each term", "Give as many as terms.")
    return found[0] if len(set(found)) == 1 else found


def _spec(one: Any) -> GemmSpec:
    spec = GemmSpec.of(one)
    if spec.accumulator.name == "palette":
        raise spec_error(f"Sliced: partial={spec.key!r}", "specs without a palette", "Name one accumulator.")
    return spec


def _term_words(terms: tuple[tuple[int, int], ...]) -> str:
    words = [f"a_{i} b_{j}" for i, j in terms]
    return ", ".join(words) if len(words) <= 9 else f"{', '.join(words[:4])}, ..., {', '.join(words[-3:])}"
