"""Operands and expected bits of single products, as files that a hardware test bench reads with $readmemh.

Operands that a row's columns name are drawn again; those from files, or placed by the kind itself, come from its study.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim.vectors import MOST_WORDS, VectorsError, Words, operand_words, result_words

from .cells import Row
from .errors import StudyError
from .files import atomic_write_text, make_folder
from .operands import placed, placement

__all__ = ["Vectors", "vectors", "write_vectors"]

#: Columns that say where operands come from.
_ORIGINS = ("dist", "scale", "in", "a", "b", "captured", "layer", "role", "transpose", "scaled")
#: Columns that name the product of a cell; and with those of drawn operands, all there is to know of it.
_PRODUCT = ("K", "M", "N", "seed", "spec")
_NEEDED = ("K", "M", "N", "dist", "in", "seed", "spec")
#: Of a row: the operands that its study measured, None where that was no single product.
Measured = Callable[[Row], "tuple[Tensor, Tensor] | None"]

_README = """\
Operands and expected results of matrix products, written by gemmsim {version}.

One folder per cell of the study, named by its key; in it
  a.hex          a, M rows of K words, row by row: word m * K + k is a[m][k]
  b.hex          b, K rows of N words, row by row: word k * N + n is b[k][n]
  expected.hex   result, M rows of N words, row by row: word m * N + n is sum over k of a[m][k] b[k][n]
  spec.json      shapes, format and bits of each file, spec of the product, its seed, what it means in words, where the
                 operands come from

Each word is one code in hexadecimal, without prefix, one a line, as $readmemh of Verilog (IEEE 1800) reads it; lines
that begin with // are comments. A word has as many digits as its format's bits need; unused high bits are 0. Codes of
floating-point formats are sign, exponent and significand from high to low; of fixed point, two's complement.
Operands are in their format already: the product's own cast of them changes nothing. In expected.hex any NaN stands as
the format's canonical one. Where spec.json says "stochastic": true, the bits are those of this seed, drawn as gemmsim's
page on random bits tells.
"""


@dataclass(frozen=True)
class Vectors:
    """Codes of operands and result of the product of one row."""

    row: Row
    a: Words
    b: Words
    expected: Words


def write_vectors(rows: Sequence[Row], out: Path, *, chosen: bool, measured: Measured | None = None) -> None:
    """A folder with a.hex, b.hex, expected.hex and spec.json for each row, and README.txt, in ``out``.

    Rows that are no single product are left out, unless they were ``chosen``. ``measured`` gives the operands of rows
    whose columns do not name drawn ones.

    Raises:
        StudyError: no row is such a product, or a chosen one is not; operands without codes; more than 2^24 words.
    """
    wrong = {row["cell"]: _missing(row, measured) for row in rows}
    fit = [row for row in rows if chosen or not wrong[row["cell"]]]
    if not fit:
        raise StudyError(f"no cell is one product: hex needs the columns {', '.join(_PRODUCT)}, and operands.")
    for row in fit:
        if wrong[row["cell"]]:
            raise StudyError(f"cell {row['cell']} is not a single product: {wrong[row['cell']]}.")
    words = sum(row["M"] * row["K"] + row["K"] * row["N"] + row["M"] * row["N"] for row in fit)
    if words > MOST_WORDS:
        raise StudyError(
            f"{len(fit):,} cells have {words:,} words; allowed: {MOST_WORDS:,}. Choose smaller ones with --cell KEY."
        )
    make_folder(out)
    atomic_write_text(out / "README.txt", _README.format(version=gs.__version__))
    for row in fit:
        _write(vectors(row, measured), make_folder(out / row["cell"]))


def vectors(row: Row, measured: Measured | None = None) -> Vectors:
    """The codes of the product that ``row`` measured, drawn again from its columns, or of the operands ``measured``.

    Operands are in the format that the product casts them to, else in that of the column ``in``, else in that of their
    dtype. The result is in the spec's output format, else in its register's, else in float32, in float64 where that
    does not hold every value.

    Raises:
        StudyError: operands in a block format, or rounded at random: they have no codes of their own.
    """
    spec = gs.GemmSpec.parse(row["spec"])
    place = placement(row.get("in") or "", "in")
    if _is_drawn(row):
        shape = (row["M"], row["K"], row["N"])
        a, b = placed(row["dist"], shape, row["seed"], place, float(row.get("scale") or 1.0))
    else:
        found = measured(row) if measured is not None else None
        assert found is not None, "_missing tells before"
        a, b = found
    result = gs.qmatmul(a, b, spec, seed=row["seed"], out_dtype=torch.float64)
    given = gs.formats.parse_scalar(place.format) if place.format else None
    try:
        return Vectors(
            row,
            operand_words("a", a, spec.a, "m * K + k", given),
            operand_words("b", b, spec.b, "k * N + n", given),
            result_words(result, spec, "m * N + n"),
        )
    except VectorsError as error:
        raise StudyError(f"cell {row['cell']}: {error}") from error


def _is_drawn(row: Row) -> bool:
    return all(row.get(name) is not None for name in _NEEDED)


def _missing(row: Row, measured: Measured | None) -> str:
    """Why the row is no single product whose operands can be had; "" if it is one."""
    needed = _NEEDED if measured is None else _PRODUCT
    absent = [name for name in needed if row.get(name) is None]
    if absent:
        return f"it has no {', '.join(absent)}"
    if row.get("over") is not None:
        return f"it varies {row['over']}"
    return (
        ""
        if _is_drawn(row) or (measured is not None and measured(row) is not None)
        else "its study measures no one product"
    )


def _write(found: Vectors, folder: Path) -> None:
    row = found.row
    spec = gs.GemmSpec.parse(row["spec"])
    words = (found.a, found.b, found.expected)
    for one in words:
        atomic_write_text(folder / f"{one.name}.hex", one.hex_text(str(spec)))
    about = {
        **{column: row.get(column) for column in ("study", "cell", "label", "spec", "spec_json", "seed")},
        "operands": {column: row[column] for column in _ORIGINS if row.get(column) is not None},
        "stochastic": spec.is_stochastic,
        "M": row["M"],
        "K": row["K"],
        "N": row["N"],
        "files": {one.name: one.entry() for one in words},
        "words": spec.explain().splitlines(),
        "library": row.get("library"),
    }
    atomic_write_text(folder / "spec.json", json.dumps(about, indent=1) + "\n")
