"""Products as files for a test bench."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim._files import write_text
from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import SpecLike

from .directed import CASES, Directed, directed_cases
from .errors import VectorsError, vectors_error
from .operands import Tensors, cast_of, format_of, matrices
from .registers import check_registers, count_register_words, registers_of
from .words import MOST_WORDS, Words, coded, operand_words, result_words

__all__ = ["export_directed", "export_vectors"]

_README = """\
Operands and results of a matrix product, written by gemmsim {version}.

  a.hex          a, M rows of K words: word m * K + k is a[m][k]
  b.hex          b, K rows of N words: word k * N + n is b[k][n]
  expected.hex   result, M rows of N words: word m * N + n
  steps.hex      if asked for: the innermost accumulator after every step, word (m * N + n) * S + s for step s of S
  totals_1.hex   of chunked, promote and adder_tree: the accumulator that the partial sums of steps.hex are added to.
                 totals_2.hex is the next level, and so on. The file with the highest number has the whole sum.
                 Words are ordered as in steps.hex.
  words.json     all words of these files as numbers
  spec.json      shape, format and bits of each file, the spec and what it means in words

In an adder_tree, steps.hex has the first adders, totals_1.hex the second ones, and so on. The accumulator that adds
the output of the tree is in the file with the highest number, one word for each step of the tree.

Each word is one code in hexadecimal, one a line, as $readmemh of Verilog (IEEE 1800) reads it; lines that begin with //
are comments. Unused high bits are 0. Codes of floating-point formats are sign, exponent and significand from high to
low; those of fixed point and integers are two's complement. Operands are in their formats already: the product's own
cast changes nothing. Any NaN is the canonical one of its format. In spec.json "every" is the number of terms of one
step and "reset" the number of terms after which the accumulator starts from +0 again.
{accumulators}{folders}"""
_ACCUMULATORS = """
The accumulators of {spec}:
{lines}
"""
_FOLDERS = """
Directed cases, each a product of its own with the same files:
{lines}
"""
_TERMS = """\
A term is an index along K. "Terms 8 to 11 of totals_2" is the word of totals_2.hex whose step adds these terms.
"""


@takes_spec()
def export_vectors(
    a: Tensors,
    b: Tensors,
    spec: SpecLike,
    folder: str | Path,
    *,
    steps: bool = False,
    directed: bool = False,
    also: Mapping[str, tuple[Tensor, str]] | None = None,
    seed: int = 0,
) -> list[Path]:
    """Writes operands, result and, with ``steps``, the accumulator after every step as ``$readmemh`` hex and as JSON.

    Args:
        a, b: (M, K) and (K, N): tensors, arrays or nested lists; a vector is one row of a, one column of b.
        spec: the product. Operands are written after its casts of them; without a cast in the format of their dtype
            (int64, that of lists of integers, as 32 bits).
        folder: is created. The call replaces a.hex, b.hex, expected.hex, words.json, spec.json and README.txt in it.
            Files of an earlier call that this one does not write (steps, totals, directed cases) are removed.
        steps: also steps.hex, the accumulator after each step (1 term; n terms of ``fused`` and ``hw``). For
            ``chunked``, ``promote`` and ``adder_tree`` also totals_1.hex, the accumulator of the partial sums of
            chunks, totals_2.hex, ... of the levels above. Of an ``adder_tree``, steps.hex has the first adders, and
            the file with the highest number has the accumulator.
        directed: also the cases of ``gemmsim.vectors.directed_cases`` for K terms, in ``folder/directed/NAME``.
        also: further files of the given operands: name -> (tensor, format of its words), such as a requantised result.
        seed: of the random bits of the accumulator and the output, unless the spec fixes one.

    The result is in the spec's output format. Without one it is in the accumulator's format, or else in float32, or in
    float64 where float32 does not hold every value. NaN is the format's canonical one. The kernels of ``qmatmul``
    compute the words; the accumulator after k terms is the result of the first k terms.

    Returns the folders, ``folder`` first. Every file is written atomically.

    Raises:
        SpecError: for a spec that means nothing; with ``steps``, for an accumulator that does not have one value per
            step.
        VectorsError: for operands in block formats or with stochastic rounding, no terms or no result, fractions in an
            accumulator of integers, numbers without a code (NaN in fixed point), more than 2^24 words, numbers of
            ``also`` that are not in their format, files that cannot be written.
        ShapeError, DTypeError: for operands that are not matrices or do not multiply, or hold no numbers.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = gs.export_vectors([[100, 100, -100]], [[1], [1], [1]], "int8 : int(8)", folder, steps=True)
        ...     print(open(f"{folder}/steps.hex").read().strip())
        // steps: 1 x 1 x 3, fixed(8,0), 8 bits per word, word (m * N + n) * 3 + s; fixed(8,0) : int(8)
        64
        c8
        64
    """
    meaning = gs.GemmSpec.of(spec)
    left, right = matrices(a, b)
    k = left.shape[1]
    further = _further(also or {})
    if steps:
        check_registers(meaning)
    cases = directed_cases(meaning, k) if directed else []
    pairs = [(left, right), *((one.a, one.b) for one in cases)]
    _check_size(meaning, pairs, steps, sum(words.codes.numel() for words in further))
    target = Path(folder)
    given = _words(left, right, meaning, steps, seed)
    _remove_cases(target / "directed")
    written = [_write(target, [*given, *((one, {}) for one in further)], meaning, seed, "")]
    written += _write_cases(target / "directed", cases, meaning, steps, seed)
    _write_readme(target, written[0], cases, "directed/")
    return written


@takes_spec()
def export_directed(
    spec: SpecLike, terms: int, folder: str | Path, *, steps: bool = False, seed: int = 0
) -> list[Path]:
    """Writes the cases of ``directed_cases(spec, terms)`` as files, each in ``folder/NAME``; returns the folders.

    Args:
        spec, steps, seed: as in ``export_vectors``, which describes the files.
        terms: of each sum, K.
        folder: is created; README.txt in it describes each case, and says why a case is missing.

    Raises:
        SpecError, VectorsError: as ``export_vectors`` and ``directed_cases``.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print([path.name for path in gs.vectors.export_directed("int8 : int(18)", 8, folder)])
        ['extremes', 'alternating']
    """
    meaning = gs.GemmSpec.of(spec)
    if steps:
        check_registers(meaning)
    cases = directed_cases(meaning, terms)
    _check_size(meaning, [(one.a, one.b) for one in cases], steps, 0)
    target = Path(folder)
    _remove_cases(target)
    written = _write_cases(target, cases, meaning, steps, seed)
    _write_readme(target, written[0], cases, "")
    return written


def _write_cases(folder: Path, cases: Sequence[Directed], spec: gs.GemmSpec, steps: bool, seed: int) -> list[Path]:
    """The folders of the cases that have operands."""
    return [
        _write(folder / case.name, _words(case.a, case.b, spec, steps, seed), spec, seed, case.about)
        for case in cases
        if case.a is not None and case.b is not None
    ]


def _write_readme(target: Path, product: Path, cases: Sequence[Directed], place: str) -> None:
    """README.txt: the files, the accumulators of one product that has them, and the directed cases."""
    parts = {"accumulators": _accumulators(product), "folders": _folders(cases, place)}
    _write_file(target / "README.txt", _README.format(version=gs.__version__, **parts))


def _accumulators(product: Path) -> str:
    """What README.txt says of each file of accumulators."""
    about = json.loads((product / "spec.json").read_text(encoding="utf-8"))
    lines = []
    for entry in (one for one in about["files"].values() if "every" in one):
        every, reset = entry["every"], entry["reset"]
        terms = f"{every} term{'s' if every > 1 else ''}"
        again = f"starts again after {reset} terms" if reset else "never starts again"
        lines.append(f"  {entry['file']:<13}  {entry['format']}, a word for every {terms}, {again}")
    return _ACCUMULATORS.format(spec=about["spec"], lines="\n".join(lines)) if lines else ""


def _folders(cases: Sequence[Directed], place: str) -> str:
    """What README.txt says of the cases."""
    lines = "\n".join(f"  {place if one.a is not None else ''}{one.name}: {one.about}" for one in cases)
    return _FOLDERS.format(lines=lines) + (_TERMS if "(terms count" in lines else "") if cases else ""


def _check_size(
    spec: gs.GemmSpec, pairs: Sequence[tuple[Tensor | None, Tensor | None]], steps: bool, further: int
) -> None:
    """``VectorsError`` for more words than a file should have."""
    total = further + sum(_count(spec, a, b, steps) for a, b in pairs if a is not None and b is not None)
    if total > MOST_WORDS:
        first = next((a, b) for a, b in pairs if a is not None and b is not None)
        raise vectors_error(
            f"{first[0].shape[0]} x {first[0].shape[1]} x {first[1].shape[1]}{', with steps,' if steps else ''} gives "
            f"{total:,} words",
            f"{MOST_WORDS:,}",
            "Take fewer rows and columns: outputs do not depend on each other.",
        )


def _count(spec: gs.GemmSpec, a: Tensor, b: Tensor, steps: bool) -> int:
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    return m * k + k * n + m * n + (count_register_words(spec, m, n, k) if steps else 0)


def _further(also: Mapping[str, tuple[Tensor, str]]) -> list[Words]:
    found = []
    for name, (values, fmt) in also.items():
        if not name.isidentifier() or name in ("a", "b", "expected", "steps", "words", "spec"):
            raise vectors_error(f"also={name!r}", "a unique name of letters, digits and _", "Rename it.")
        index = "m * N + n" if values.dim() == 2 else "row-major"
        found.append(coded(name, gs.formats.parse_scalar(fmt), values.double(), index))
    return found


def _words(a: Tensor, b: Tensor, spec: gs.GemmSpec, steps: bool, seed: int) -> list[tuple[Words, dict[str, object]]]:
    """The files of a product, and what is said of each besides its format."""
    left = operand_words("a", a, cast_of(spec, 0), "m * K + k", format_of(a))
    right = operand_words("b", b, cast_of(spec, 1), "k * N + n", format_of(b))
    x, y = (one.format.decode(one.codes).double() for one in (left, right))
    _check_integers(spec, x, y)
    result = gs.qmatmul(x, y, spec, seed=seed, out_dtype=torch.float64)
    changed = [
        int(((given.double() != cast) & ~(given.isnan() & cast.isnan())).sum()) for given, cast in ((a, x), (b, y))
    ]
    found: list[tuple[Words, dict[str, object]]] = [
        (left, {"changed_by_cast": changed[0]}),
        (right, {"changed_by_cast": changed[1]}),
        (result_words(result, spec, "m * N + n"), {}),
    ]
    for one in registers_of(x, y, spec, seed) if steps else ():
        index = f"(m * N + n) * {one.values.shape[-1]} + s"
        found.append((coded(one.name, one.format, one.values, index), {"every": one.every, "reset": one.reset}))
    return found


def _check_integers(spec: gs.GemmSpec, *operands: Tensor) -> None:
    """``VectorsError`` for numbers that are no integers in a register of integers."""
    if spec.accumulator.integer_operands and not all(bool((x == x.round()).all()) for x in operands):
        raise vectors_error(
            f"operands that are not integers in {spec.accumulator}",
            "integers, or a spec that casts to them",
            f"Name the formats: 'int8 : {spec.accumulator}'; gemmsim.vectors.scaled_to scales to one.",
        )


def _write(folder: Path, words: list[tuple[Words, dict[str, object]]], spec: gs.GemmSpec, seed: int, case: str) -> Path:
    """The files of one product in its folder; spec.json, the last one, is only there when the others are."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in (folder / "spec.json", folder / "steps.hex", *folder.glob("totals_*.hex")):
            old.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    (m, k), n = words[0][0].codes.shape, words[1][0].codes.shape[1]
    for one, _ in words:
        _write_file(folder / f"{one.name}.hex", one.hex_text(str(spec)))
    about = {
        "spec": str(spec),
        "spec_json": spec.to_json(),
        "case": case,
        "seed": seed,
        "stochastic": spec.is_stochastic,
        "M": m,
        "K": k,
        "N": n,
        "files": {one.name: {**one.entry(), **more} for one, more in words},
        "words": spec.explain().splitlines(),
        "gemmsim": gs.__version__,
    }
    _write_file(folder / "words.json", json.dumps({one.name: one.numbers() for one, _ in words}) + "\n")
    _write_file(folder / "spec.json", json.dumps(about, indent=1) + "\n")
    return folder


def _remove_cases(folder: Path) -> None:
    """Removes the files of directed cases that an earlier call wrote: they may be of another spec."""
    try:
        for old in folder.glob("*/*"):
            if old.parent.name in CASES and (old.suffix == ".hex" or old.name in ("spec.json", "words.json")):
                old.unlink()
    except OSError as error:
        raise _unwritable(folder, error) from error


def _write_file(path: Path, text: str) -> None:
    try:
        write_text(path, text)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> VectorsError:
    return vectors_error(
        f"cannot write '{path}': {error.strerror or error}", "a writable folder with enough space", "Choose another."
    )
