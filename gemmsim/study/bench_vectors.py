"""Operands and expected bits of single products, as files that a hardware test bench reads with $readmemh."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim.formats import Cast, FormatError

from .cells import Row
from .errors import StudyError
from .files import atomic_write_text, make_folder
from .operands import placed, placement

__all__ = ["MOST_WORDS", "Vectors", "vectors", "write_vectors"]

#: Words of all files together: 16 million are some 150 MB.
MOST_WORDS = 2**24
#: Columns that name the operands and the product of a cell.
_NEEDED = ("K", "M", "N", "dist", "in", "seed", "spec")

_README = """\
Operands and expected results of matrix products, written by gemmsim {version}.

One folder a cell of the study, named by its key; in it
  a.hex          a, M rows of K words, row by row: word m * K + k is a[m][k]
  b.hex          b, K rows of N words, row by row: word k * N + n is b[k][n]
  expected.hex   result, M rows of N words, row by row: word m * N + n is sum over k of a[m][k] b[k][n]
  spec.json      shapes, format and bits of each file, spec of the product, its seed, what it means in words

Each word is one code in hexadecimal, without prefix, one a line, as $readmemh of Verilog (IEEE 1800) reads it; lines
that begin with // are comments. A word has as many digits as its format's bits need; unused high bits are 0. Codes of
floating-point formats are sign, exponent and significand from high to low; of fixed point, two's complement.
Operands are in their format already: the product's own cast of them changes nothing. In expected.hex any NaN stands as
the format's canonical one. Where spec.json says "stochastic": true, the bits are those of this seed, drawn as gemmsim's
page on random bits tells.
"""


@dataclass(frozen=True)
class _Matrix:
    """Codes of a matrix in a format."""

    format: gs.formats.Format
    codes: Tensor


@dataclass(frozen=True)
class Vectors:
    """Codes of operands and result of the product of one row."""

    row: Row
    a: _Matrix
    b: _Matrix
    expected: _Matrix


def write_vectors(rows: Sequence[Row], out: Path, *, chosen: bool) -> None:
    """A folder with a.hex, b.hex, expected.hex and spec.json for each row, and README.txt, in ``out``.

    Rows that are no single product of drawn operands are left out, unless they were ``chosen``.

    Raises:
        StudyError: no row is such a product, or a chosen one is not; operands without codes; more than 2^24 words.
    """
    fit = [row for row in rows if chosen or not _missing(row)]
    if not fit:
        raise StudyError(f"no cell is one product of drawn operands: hex needs the columns {', '.join(_NEEDED)}.")
    for row in fit:
        if missing := _missing(row):
            raise StudyError(f"cell {row['cell']} is no single product of drawn operands: {missing}.")
    words = sum(row["M"] * row["K"] + row["K"] * row["N"] + row["M"] * row["N"] for row in fit)
    if words > MOST_WORDS:
        raise StudyError(
            f"{len(fit):,} cells have {words:,} words; allowed: {MOST_WORDS:,}. Choose smaller ones with --cell KEY."
        )
    make_folder(out)
    atomic_write_text(out / "README.txt", _README.format(version=gs.__version__))
    for row in fit:
        _write(vectors(row), make_folder(out / row["cell"]))


def vectors(row: Row) -> Vectors:
    """The codes of the product that ``row`` measured, drawn again from its columns.

    Operands are in the format that the product casts them to, else in that of the column ``in``, else in float32. The
    result is in the spec's output format, else in its register's, else in float32, in float64 where that does not hold
    every value.

    Raises:
        StudyError: operands in a block format, or rounded at random: they have no codes of their own.
    """
    spec = gs.GemmSpec.parse(row["spec"])
    place = placement(row["in"], "in")
    shape = (row["M"], row["K"], row["N"])
    a, b = placed(row["dist"], shape, row["seed"], place, float(row.get("scale") or 1.0))
    result = gs.qmatmul(a, b, spec, seed=row["seed"], out_dtype=torch.float64)
    return Vectors(
        row,
        _operand(a, spec.a, place.format, row["cell"]),
        _operand(b, spec.b, place.format, row["cell"]),
        _result(result, spec),
    )


def _missing(row: Row) -> str:
    """Why the row is no single product of drawn operands; "" if it is one."""
    absent = [name for name in _NEEDED if row.get(name) is None]
    if absent:
        return f"it has no {', '.join(absent)}"
    return f"it varies {row['over']}" if row.get("over") is not None else ""


def _operand(x: Tensor, given: Any, placed_in: str, cell: str) -> _Matrix:
    fmt: Any
    if given is None:
        fmt = gs.formats.parse_scalar(placed_in) if placed_in else gs.formats.FP32
        return _Matrix(fmt, fmt.encode(x))
    if not isinstance(given, Cast) or given.is_stochastic:
        why = "are rounded at random" if isinstance(given, Cast) else "share scales"
        raise StudyError(f"cell {cell}: operands in {given} {why}; hex takes those with a code for each number.")
    fmt = given.format
    return _Matrix(fmt, fmt.encode(gs.quantize(x.double(), given)))


def _result(result: Tensor, spec: gs.GemmSpec) -> _Matrix:
    for fmt in _candidates(spec):
        try:
            codes = fmt.encode(result)
        except FormatError:
            continue
        decoded = fmt.decode(codes).double()
        if bool(((decoded == result) | (decoded.isnan() & result.isnan())).all()):
            return _Matrix(fmt, codes)
    return _Matrix(gs.formats.FP64, gs.formats.FP64.encode(result))


def _candidates(spec: gs.GemmSpec) -> list[Any]:
    """Formats that the result may be in, the most telling first."""
    if spec.out is not None:
        return [spec.out.format]
    accumulator = spec.accumulator
    registers = list(dict.fromkeys(cast.format for cast in accumulator.casts()))
    if isinstance(accumulator, gs.arithmetic.Integer) and accumulator.signed:
        registers = [gs.formats.parse_scalar(f"fixed({accumulator.P},0)")]
    return [*(registers if len(registers) == 1 else []), gs.formats.FP32]


def _write(found: Vectors, folder: Path) -> None:
    row = found.row
    spec = gs.GemmSpec.parse(row["spec"])
    m, k, n = row["M"], row["K"], row["N"]
    files = {}
    for name, matrix, shape, index in (
        ("a", found.a, (m, k), "m * K + k"),
        ("b", found.b, (k, n), "k * N + n"),
        ("expected", found.expected, (m, n), "m * N + n"),
    ):
        bits = matrix.format.bits
        head = f"// {name}: {shape[0]} x {shape[1]}, {matrix.format}, {bits} bits a word, word {index}; {spec}\n"
        atomic_write_text(folder / f"{name}.hex", head + _words(matrix.codes, bits))
        files[name] = {"file": f"{name}.hex", "shape": shape, "format": str(matrix.format), "bits": bits, "word": index}
    about = {
        **{column: row.get(column) for column in ("study", "cell", "label", "spec", "spec_json", "seed")},
        "stochastic": spec.is_stochastic,
        "M": m,
        "K": k,
        "N": n,
        "files": files,
        "words": spec.explain().splitlines(),
        "library": row.get("library"),
    }
    atomic_write_text(folder / "spec.json", json.dumps(about, indent=1) + "\n")


def _words(codes: Tensor, bits: int) -> str:
    """One word a line; negative integers are the two's complement codes that they stand for."""
    digits, mask = (bits + 3) // 4, (1 << bits) - 1
    return "".join(f"{code & mask:0{digits}x}\n" for code in codes.flatten().tolist())
