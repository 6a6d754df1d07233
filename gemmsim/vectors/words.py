"""Tensors as words of a memory: the codes of their numbers in a format, in hexadecimal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim._keywords import takes_spec
from gemmsim.formats import Cast, Format, FormatError

from .errors import vectors_error

__all__ = ["MOST_WORDS", "Words", "coded", "operand_words", "result_words"]

#: Words of all files together: 16 million are some 150 MB.
MOST_WORDS = 2**24


@dataclass(frozen=True)
class Words:
    """The codes of a tensor in a format, row-major.

    Attributes:
        name: of the file, without its ending.
        format: of the codes.
        codes: integers; for fixed-point formats signed ones, whose two's complement is the word.
        index: the number of a word as a formula of its indices, such as "m * K + k".

    Example:
        >>> e4m3, a = gs.formats.parse_cast("e4m3"), torch.tensor([[1.0, -2.0]])
        >>> words = gs.vectors.operand_words("a", a, e4m3, "m * K + k")
        >>> words.bits, [hex(word) for word in words.numbers()]
        (8, ['0x38', '0xc0'])
    """

    name: str
    format: Format
    codes: Tensor
    index: str

    @property
    def bits(self) -> int:
        """Bits of a word."""
        return int(self.format.bits)

    def numbers(self) -> list[int]:
        """The words in their order, as integers from 0."""
        mask = (1 << self.bits) - 1
        return [code & mask for code in self.codes.flatten().tolist()]

    def hex_text(self, note: str = "") -> str:
        """The file: a comment, then one word a line, with as many digits as the bits need."""
        digits = (self.bits + 3) // 4
        shape = " x ".join(map(str, self.codes.shape))
        about = f"{self.name}: {shape}, {self.format}, {self.bits} bits per word, word {self.index}"
        head = f"// {about}; {note}\n" if note else f"// {about}\n"
        return head + "".join(f"{word:0{digits}x}\n" for word in self.numbers())

    def entry(self) -> dict[str, object]:
        """The entry of the file in a description."""
        return {
            "file": f"{self.name}.hex",
            "shape": list(self.codes.shape),
            "format": str(self.format),
            "bits": self.bits,
            "word": self.index,
        }


def operand_words(name: str, x: Tensor, cast: Any, index: str, given: Format | None = None) -> Words:
    """The words of an operand that a product casts by ``cast``, after that cast.

    Args:
        name: of the file.
        x: the operand, floats.
        cast: ``GemmSpec.a`` or ``.b``; None: the operand as it is, in the format ``given``, otherwise in float32
            (float64 for a tensor of float64).
        index: as in ``Words``.

    Raises:
        VectorsError: for operands in block formats or with stochastic rounding, which have no codes of their own.

    Example:
        >>> a = torch.tensor([[1.0, -2.0]])
        >>> gs.vectors.operand_words("a", a, gs.formats.parse_cast("int8"), "m * K + k").hex_text().splitlines()
        ['// a: 1 x 2, fixed(8,0), 8 bits per word, word m * K + k', '01', 'fe']
    """
    if cast is None:
        fmt: Any = given
        if fmt is None:
            fmt = gs.formats.FP64 if x.dtype == torch.float64 else gs.formats.FP32
        return coded(name, fmt, x if x.is_floating_point() and x.itemsize > 1 else x.double(), index)
    if not isinstance(cast, Cast) or cast.is_stochastic:
        why = "are rounded at random" if isinstance(cast, Cast) else "share scales"
        raise vectors_error(
            f"operands in {cast}, which {why}",
            "formats with a code for each number, rounded the same way each time",
            "Name such a format, or cast the operands first.",
        )
    return coded(name, cast.format, gs.quantize(x.double(), cast), index)


@takes_spec()
def result_words(result: Tensor, spec: gs.GemmSpec, index: str, name: str = "expected") -> Words:
    """The words of a product's result, in the spec's output format or, without one, in that of the accumulator.

    If the accumulator has no such format, they are in float32, or in float64 where float32 does not hold every value.
    Any NaN becomes the format's canonical one.

    Example:
        >>> words = gs.vectors.result_words(torch.tensor([[1.5]]), gs.GemmSpec.parse("e4m3 : fp16"), "m * N + n")
        >>> str(words.format), [hex(word) for word in words.numbers()]
        ('e5m10', ['0x3e00'])
    """
    for fmt in _candidates(spec):
        try:
            codes = fmt.encode(result)
        except FormatError:
            continue
        decoded = fmt.decode(codes).double()
        if bool(((decoded == result) | (decoded.isnan() & result.isnan())).all()):
            return Words(name, fmt, codes, index)
    return Words(name, gs.formats.FP64, gs.formats.FP64.encode(result), index)


def coded(name: str, fmt: Any, x: Tensor, index: str) -> Words:
    """The words of numbers that are in the format.

    Raises:
        VectorsError: for a number without a code.
    """
    try:
        return Words(name, fmt, fmt.encode(x), index)
    except FormatError as error:
        raise vectors_error(
            f"{name} as codes of {fmt}: {str(error).partition('; allowed')[0]}",
            "numbers of that format",
            "Cast them first.",
        ) from error


def _candidates(spec: gs.GemmSpec) -> list[Any]:
    """Formats that the result may be in, the most telling first."""
    if spec.out is not None:
        return [spec.out.format]
    return [spec.accumulator.add_cast.format, gs.formats.FP32]
