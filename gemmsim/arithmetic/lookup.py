"""Products from a table of codes, for approximate multipliers, around any register."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import zlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..formats import Cast, FixedFormat, Format, FormatError, OwnExponentFormat, format_from_json, parse_scalar
from .accumulator import Accumulator, register
from .argument_kinds import ACCUMULATOR, Kind, argument
from .errors import SpecFormatError, spec_error
from .wrappers import Composite

__all__ = ["Lookup", "ProductTable", "table"]

_BITS = 8
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_SWAPPED = ".t"
_TABLES: dict[str, ProductTable] = {}


@dataclass(frozen=True, eq=False)
class ProductTable:
    """The products of all pairs of codes: ``rows[x][y]`` for code x of format ``a`` and code y of format ``b``.

    ``table`` makes one. Two tables are equal if their formats and products are. Spec strings contain only the ``name``;
    ``to_json`` writes all products.

    Example:
        >>> rows = [[x * y & ~1 for y in range(4)] for x in range(4)]  # a multiplier without the lowest bit
        >>> t = gs.acc.table(rows, "uint2", name="even_products")
        >>> t.product(3, 3), t.shape
        (8.0, (4, 4))
    """

    name: str
    a: Format
    b: Format
    #: float64 numbers, row by row: 2**a.bits rows of 2**b.bits.
    data: bytes = field(repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(2**a.bits, 2**b.bits)."""
        return 1 << self.a.bits, 1 << self.b.bits

    @cached_property
    def products(self) -> array[float]:
        """All products, row by row."""
        return array("d", self.data)

    def product(self, x: int, y: int) -> float:
        """The product of the codes ``x`` and ``y``."""
        return self.products[x * self.shape[1] + y]

    @cached_property
    def is_integer(self) -> bool:
        """Whether every product is an integer."""
        return all(math.isfinite(value) and value == int(value) for value in self.products)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of formats and products."""
        return hashlib.sha256(f"{self.a} {self.b} ".encode() + self.data).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProductTable) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return _known, (self.name, self.a, self.b, self.data)

    def transposed(self) -> ProductTable:
        """The table with the codes exchanged."""
        rows, columns = self.shape
        data = array("d", (self.products[x * columns + y] for y in range(columns) for x in range(rows))).tobytes()
        if self.a == self.b and data == self.data:
            return self
        name = self.name.removesuffix(_SWAPPED) if self.name.endswith(_SWAPPED) else self.name + _SWAPPED
        return _known(name, self.b, self.a, data)

    def to_json(self) -> dict[str, object]:
        """The table as a plain dictionary, with compressed products; ``from_json`` reads it back and makes the name
        known.
        """
        packed = base64.b64encode(zlib.compress(self.data, 9)).decode()
        return {"name": self.name, "a": self.a.to_json(), "b": self.b.to_json(), "products": packed}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ProductTable:
        """Table written by ``to_json``.

        Raises:
            SpecError: for anything else; FormatError for formats in it that are none.
        """
        try:
            products = zlib.decompress(base64.b64decode(data["products"]))
            return _known(str(data["name"]), format_from_json(data["a"]), format_from_json(data["b"]), products)
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            if isinstance(error, (SpecFormatError, FormatError)):
                raise
            raise spec_error(f"table JSON: {error}", "what to_json() writes", "Write it again.") from None


def table(products: Any, a: str | Format, b: str | Format | None = None, *, name: str | None = None) -> ProductTable:
    """A multiplier given by its products, for ``GemmSpec(product=...)`` and ``acc.lookup``.

    Args:
        products: 2**bits rows of 2**bits numbers (nested lists, an array, a tensor): ``products[x][y]`` for the codes x
            and y, as ``a.encode`` and ``b.encode`` give them (two's complement for integers: -1 of int8 is 255). Codes
            that a format does not use may have any number.
        a, b: formats of up to 8 bits: floats, integers, fixed point or lists of values; ``b`` is ``a`` if left out.
        name: a word for spec strings, known in this process from now on; None makes one from the contents.

    Products are taken as float64 numbers. A NaN that a format has no code for gives NaN, for any other factor.

    Raises:
        SpecError: for a table of another shape, entries that are not numbers, wider formats, and a name that belongs to
            another table.

    Example:
        >>> rows = [[x * y & ~1 for y in range(4)] for x in range(4)]  # a multiplier without the lowest bit
        >>> t = gs.acc.table(rows, "uint2", name="even_products")
        >>> gs.qmatmul(torch.tensor([[3.0, 3.0]]), torch.tensor([[3.0], [1.0]]), gs.acc.lookup(t, "fp32"))
        tensor([[10.]])
    """
    left = _format(a)
    right = left if b is None else _format(b)
    values = products.tolist() if hasattr(products, "tolist") else products
    shape = (1 << left.bits, 1 << right.bits)
    try:
        rows = [array("d", [float(value) for value in row]) for row in values]
    except (TypeError, ValueError, OverflowError):
        raise spec_error(
            "table: products that are not rows of numbers", f"{shape[0]} x {shape[1]}", "Give them."
        ) from None
    if len(rows) != shape[0] or any(len(row) != shape[1] for row in rows):
        found = f"{len(rows)} x {'/'.join(sorted({str(len(row)) for row in rows})) or 0}"
        raise spec_error(
            f"table of {found} products for {left} and {right}", f"{shape[0]} x {shape[1]}", "Give one for each pair."
        )
    data = b"".join(row.tobytes() for row in rows)
    if name is None:
        name = "table_" + hashlib.sha256(f"{left} {right} ".encode() + data).hexdigest()[:12]
    elif not isinstance(name, str) or not _NAME.fullmatch(name):
        raise spec_error(f"table: name={name!r}", "a word of a-z, 0-9 and _", "Choose such a name.")
    return _known(name, left, right, data)


def _format(fmt: str | Format) -> Format:
    try:
        found = parse_scalar(fmt)
    except FormatError as error:
        raise SpecFormatError(f"table: {error}") from error
    unbounded = isinstance(found, FixedFormat) and not found.clamp
    if found.bits > _BITS or unbounded or isinstance(found, OwnExponentFormat):
        raise spec_error(f"table of {found}", f"formats with codes of up to {_BITS} bits", "Use a narrower one.")
    return found


def _known(name: str, a: Format, b: Format, data: bytes) -> ProductTable:
    """The table of this name, which is one of these contents from now on."""
    made = ProductTable(name, a, b, data)
    found = _TABLES.setdefault(name, made)
    if found != made:
        raise spec_error(
            f"table {name!r} with other products than before", "a name for each table", "Leave the name out, or rename."
        )
    return found


class _TableKind(Kind):
    """A table, or its name."""

    def read(self, value: object, owner: str, name: str) -> ProductTable:
        if isinstance(value, ProductTable):
            return value
        if isinstance(value, Mapping):
            return ProductTable.from_json(value)
        word = value.strip().lower() if isinstance(value, str) else ""
        found = _TABLES.get(word)
        if found is None and word.endswith(_SWAPPED) and word.removesuffix(_SWAPPED) in _TABLES:
            found = _TABLES[word.removesuffix(_SWAPPED)].transposed()
        if found is None:
            known = ", ".join(sorted(_TABLES)) or "none yet"
            raise spec_error(
                f"{owner}: {name}={value!r}",
                f"tables known in this process: {known}",
                "Make it with gemmsim.acc.table.",
            )
        return found

    def json(self, value: Any) -> object:
        found: ProductTable = value
        return found.to_json()


@register("lookup")
@dataclass(frozen=True, repr=False)
class Lookup(Composite):
    """Each product is ``products[x][y]`` for the codes x and y of the operands; ``inner`` adds these numbers.

    Args:
        products: a ``ProductTable``, or its name.
        inner: any accumulator except instructions, palettes, scaled ones and ``Custom`` ones. One that rounds products
            rounds these.

    Operands are cast to the table's formats. NaN, infinities, -0 and overflow of the sums as in ``inner``.

    Example:
        >>> rows = [[x * y & ~1 for y in range(4)] for x in range(4)]
        >>> gs.arithmetic.Lookup(gs.acc.table(rows, "uint2", name="even_products"), "fp32")
        Accumulator.parse('lookup(even_products, e8m23)')
    """

    products: ProductTable = field(metadata=argument(_TableKind()))
    inner: Accumulator = field(metadata=argument(ACCUMULATOR))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner.operand_casts is not None or self.inner.is_custom:
            raise spec_error(
                f"lookup with {self.inner}",
                "accumulators that take any format, and multiply nothing themselves",
                "Use an accumulator such as fp32 or int(32).",
            )
        if self.inner.integer_operands and not self.products.is_integer:
            raise spec_error(
                f"lookup({self.products}, {self.inner}) with products that are not integers",
                "integer products for int(...)",
                "Use fixed(P, frac) or a float accumulator.",
            )

    @property
    def operand_casts(self) -> tuple[Cast, Cast] | None:
        """Casts to the table's formats."""
        return Cast(self.products.a), Cast(self.products.b)

    @property
    def integer_operands(self) -> bool:
        """False: operands are codes, whatever the register adds."""
        return False

    @property
    def is_lookup(self) -> bool:
        """True."""
        return True

    def with_product(self, product: Cast) -> Lookup:
        """Refused: the table gives the products.

        Raises:
            SpecError: always.
        """
        raise spec_error(f"product={product} with {self}", "no rounding: the table has the products", "Leave it out.")

    def transposed(self) -> Lookup:
        """With the table transposed."""
        return replace(self, products=self.products.transposed(), inner=self.inner.transposed())

    def explain_lines(self) -> list[tuple[str, str]]:
        """The table, then ``inner``'s words without its product."""
        rows, columns = self.products.shape
        words = f"q = {self.products}[code of a][code of b], {rows} x {columns} products, as they are"
        return [("product", words), *(line for line in self.inner.explain_lines() if line[0] != "product")]
