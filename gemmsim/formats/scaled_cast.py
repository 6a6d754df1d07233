"""Casts of numbers that are divided by a scale first, which a block of a matrix shares: "e4m3/sat@1x128", as values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

from .block import BlockFormat, ScaleRule
from .block_float import Sharing
from .cast import Cast
from .checks import check_int
from .errors import FormatError, format_error, shown, suggestion
from .fixed_format import FixedFormat
from .float_format import FloatFormat
from .json_fields import named_tensor_format, read_name
from .named import E4M3, E8M0
from .rounding import Rounding

__all__ = ["ScaledCast", "ScaledCastRule", "is_scaled_cast_name", "parse_scaled_cast"]

_MOST = (1 << 31) - 1


class ScaledCastRule(Enum):
    """How the largest magnitude of a block, amax, gives its scale; max is the cast's largest number over 2^margin.

    ``AMAX``: s = max / amax; elements are the cast of x * s, their values are multiplied by 1 / s.
    ``DIVIDE``: d = amax / max; elements are the cast of x / d, their values are multiplied by d.
    ``FLOOR``: d = 2^(floor(log2 amax) - emax), as in OCP MX rev. 1.0, 6.3.
    ``NVFP4``: d = e4m3(amax / max / T), with T = (amax of the tensor) / (448 max).

    Example:
        >>> gs.formats.parse("e4m3/sat@1x128/divide").rule
        ScaledCastRule.DIVIDE
    """

    AMAX = "amax"  # s = max / amax, elements x * s, values times 1 / s
    DIVIDE = "divide"  # d = amax / max, elements x / d, values times d
    FLOOR = "floor"  # d = 2^(floor(log2 amax) - emax): OCP MX rev. 1.0, 6.3
    NVFP4 = "nvfp4"  # d = e4m3(amax / max / T), T = (amax of the tensor) / (448 max)

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"ScaledCastRule.{self.name}"


_WORDS = {
    ScaledCastRule.AMAX: "s = max / amax in binary32; an element is the cast of x * s, its value that times 1 / s",
    ScaledCastRule.DIVIDE: "d = amax / max in binary32; an element is the cast of x / d, its value that times d",
    ScaledCastRule.FLOOR: "2^(floor(log2 amax) - emax), as OCP MX",
    ScaledCastRule.NVFP4: "amax / max in e4m3, under one binary32 scale for the tensor, as NVFP4",
}


@dataclass(frozen=True, repr=False)
class ScaledCast:
    """A cast of elements after division by a scale that ``rows`` by ``terms`` elements of a matrix share.

    Args:
        cast: of the elements: a float or fixed-point format with its rounding and overflow policy.
        rows: rows of a block of the operand a; columns of the operand b. 0: all.
        terms: terms of a block along the sum of the product. 0: all.
        rule: how a block's largest finite magnitude (amax) gives its scale.
        power: the scale is a power of two: the largest one up to s (rule amax), the least one from d on (rule divide).
        margin: max is the largest number of the cast's format over 2^margin.
        least: lower limit of amax. With 0 a block of zeros has the scale 1.
        hadamard: terms of an orthonormal Hadamard transform along the sum, made first; 0: none. Both operands of a
            product need the same one: it changes the elements, but not the exact product.
        signs: seed of the signs that terms are multiplied by before the transform; None: all +1.
        gain: a factor on elements before their cast, whose inverse multiplies the values.
        stored: a scaled cast with blocks along the other dimension, made first: the operand is a tensor that was
            quantised for another product before.
        dim: the dimension that the sum runs along.
        delayed: the number of earlier calls whose largest amax gives the scale of the whole tensor ("delayed scaling").
            A layer or an emulated model keeps this history. 0: amax is that of the tensor itself.

    Blocks at the ends of a matrix may be smaller. A tensor of more dimensions has blocks in each of its matrices,
    except that "tensor" (rows and terms 0) is one block in all. Everything is computed in binary32; float64 is rounded
    to that first. NaN and infinities do not count for amax. NaN stays NaN, and the cast decides what infinities become.

    Raises:
        FormatError: for fields of the wrong type or out of range, and for fields that do not go together.

    Example:
        >>> fmt = gs.formats.parse("e4m3/sat@tensor")
        >>> gs.quantize(torch.tensor([[0.001, 0.01, 0.1]]), fmt)  # 0.1 becomes 448, scaled
        tensor([[0.0010, 0.0098, 0.1000]])
    """

    cast: Cast
    rows: int = 1
    terms: int = 0
    rule: ScaledCastRule = ScaledCastRule.AMAX
    power: bool = False
    margin: int = 0
    least: float = 0.0
    hadamard: int = 0
    signs: int | None = None
    gain: float = 1.0
    stored: ScaledCast | None = None
    dim: int = -1
    delayed: int = 0

    def __post_init__(self) -> None:
        put = object.__setattr__
        owner = "ScaledCast"
        if not isinstance(self.cast, Cast) or not isinstance(self.cast.format, (FloatFormat, FixedFormat)):
            raise format_error(f"{owner}: cast={self.cast!s}", "a cast to a float or fixed-point format", "Try 'e4m3'.")
        for name in ("rows", "terms"):
            put(self, name, check_int(owner, name, getattr(self, name), 0, _MOST))
        if self.rows == 0 and self.terms:
            raise format_error(f"{owner}: all rows and {self.terms} terms", "blocks of rows, or all", "Give both.")
        try:
            put(self, "rule", ScaledCastRule(self.rule))
        except ValueError:
            known = ", ".join(str(rule) for rule in ScaledCastRule)
            raise format_error(f"{owner}: rule={self.rule!r}", known, "Choose one.") from None
        put(self, "margin", check_int(owner, "margin", self.margin, -64, 64))
        put(self, "dim", check_int(owner, "dim", self.dim, -64, 63))
        put(self, "delayed", check_int(owner, "delayed", self.delayed, 0, 1 << 16))
        self._check_numbers()
        self._check_rule()

    def _check_numbers(self) -> None:
        owner = "ScaledCast"
        for name, low in (("least", 0.0), ("gain", 2.0**-20)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= 2.0**20:
                raise format_error(f"{owner}: {name}={value!r}", f"a number from {low:g} to 2^20", "Change it.")
            object.__setattr__(self, name, float(value))
        if self.hadamard not in (0, 2, 4, 8, 16, 32, 64, 128, 256):
            raise format_error(f"{owner}: hadamard={self.hadamard!r}", "a power of two up to 256", "Try 16.")
        if self.signs is not None:
            object.__setattr__(self, "signs", check_int(owner, "signs", self.signs, 0, _MOST))
            if not self.hadamard:
                raise format_error(f"{owner}: signs without hadamard", "signs of a transform", "Drop signs.")
        if self.stored is not None and (not isinstance(self.stored, ScaledCast) or self.stored.stored is not None):
            raise format_error(f"{owner}: stored={self.stored!s}", "a scaled cast without another one", "Give one.")

    def _check_rule(self) -> None:
        powers = self.rule in (ScaledCastRule.AMAX, ScaledCastRule.DIVIDE)
        if self.power and not powers:
            raise format_error(f"ScaledCast: power with rule {self.rule}", "rules amax and divide", "Drop power.")
        if not powers and (self.margin or self.least):
            raise format_error(f"ScaledCast: margin or least with rule {self.rule}", "amax and divide", "Drop them.")
        if self.delayed and (not powers or self.rows or self.hadamard or self.stored is not None):
            allowed = "one scale for the tensor (@tensor) with rule amax or divide, without hadamard and stored"
            raise format_error(f"ScaledCast: delayed={self.delayed} with other blocks or parts", allowed, "Drop one.")
        if not powers and self.block_format is None:
            raise format_error(
                f"ScaledCast: {self.cast} with rule {self.rule} and {self.terms} terms",
                "elements that block formats have (e4m3, e2m1, ...), without infinities, and blocks of 1 term or more",
                "Use rule amax or divide.",
            )

    @property
    def block_format(self) -> BlockFormat | None:
        """The block format that stores elements and scales.

        None where scales are binary32 numbers, or blocks contain all terms.
        """
        fmt = self.cast.format
        if self.terms == 0 or not (self.power or self.rule in (ScaledCastRule.FLOOR, ScaledCastRule.NVFP4)):
            return None
        try:
            if self.rule is ScaledCastRule.NVFP4:
                return BlockFormat(fmt, self.terms, E4M3, ScaleRule.NEAREST, tensor_scale=True)  # type: ignore[arg-type]
            return BlockFormat(fmt, self.terms, E8M0)  # type: ignore[arg-type]
        except FormatError:
            return None

    @property
    def largest(self) -> float:
        """The number that the largest magnitude of a block becomes."""
        return float(self.cast.format.max) / 2.0**self.margin

    @property
    def sharing(self) -> Sharing:
        """``Sharing.TENSOR`` where all elements of a tensor share a scale."""
        return Sharing.TENSOR if self.rows == 0 or self.rule is ScaledCastRule.NVFP4 else Sharing.BLOCK

    @property
    def rounding(self) -> Rounding:
        """The rounding of the elements."""
        return self.cast.rounding

    @property
    def is_stochastic(self) -> bool:
        """Whether the result depends on random bits."""
        return self.cast.is_stochastic or (self.stored is not None and self.stored.is_stochastic)

    @property
    def bits(self) -> int:
        """Width of an element."""
        return self.cast.format.bits

    @property
    def bits_per_value(self) -> float:
        """Stored bits per value, with its part of the scale."""
        scale = 8 if self.power or self.rule in (ScaledCastRule.FLOOR, ScaledCastRule.NVFP4) else 32
        return self.bits + (scale / (self.rows * self.terms) if self.rows and self.terms else 0.0)

    @property
    def granularity(self) -> str:
        """The block in text: "tensor", "row", "1x128", "128x128"."""
        if self.rows == 0:
            return "tensor"
        return "row" if (self.rows, self.terms) == (1, 0) else f"{self.rows}x{self.terms or 'all'}"

    @property
    def name(self) -> str:
        """Canonical name; ``parse(name)`` gives this format."""
        signs = "" if self.signs is None else f",{self.signs}"
        options = [
            str(self.rule) if self.rule is not ScaledCastRule.AMAX else "",
            "pow2" if self.power else "",
            f"margin({self.margin})" if self.margin else "",
            f"least({self.least!r})" if self.least else "",
            f"hadamard({self.hadamard}{signs})" if self.hadamard else "",
            f"gain({self.gain!r})" if self.gain != 1.0 else "",
            f"stored({self.stored.name})" if self.stored is not None else "",
            f"dim({self.dim})" if self.dim != -1 else "",
            f"delayed({self.delayed})" if self.delayed else "",
        ]
        return "/".join([f"{self.cast}@{self.granularity}", *(option for option in options if option)])

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"parse({self.name!r})"

    def describe(self) -> str:
        """Elements, blocks, scale and transform in words, one fact a line."""
        lines = [f"{self}: {self.words()}", f"  scale: {_WORDS[self.rule]}{self._of_scale()}"]
        lines.append(f"  elements rounded {self.rounding.describe()}, to {self.cast}")
        if self.hadamard:
            signs = "" if self.signs is None else f", after signs of seed {self.signs}"
            lines.append(f"  before: orthonormal Hadamard transform of {self.hadamard} terms along the sum{signs}")
        if self.gain != 1.0:
            lines.append(f"  elements are multiplied by {self.gain:g} before the cast, values divided by it")
        if self.stored is not None:
            lines.append(f"  of the values that {self.stored} keeps, whose blocks lie along the other dimension")
        return "\n".join(lines)

    def _of_scale(self) -> str:
        parts = ["a power of two"] if self.power else []
        parts += [f"max {self.largest:g}"]
        parts += [f"amax at least {self.least:g}"] if self.least else []
        parts += [f"amax of the last {self.delayed} calls"] if self.delayed else []
        return f" ({', '.join(parts)})"

    def words(self) -> str:
        """As an operand, in half a line."""
        whole = {"tensor": "the tensor", "row": "each row or column, along the whole sum"}
        block = whole.get(self.granularity, f"blocks of {self.rows} rows or columns x {self.terms or 'all'} terms")
        return f"{self.cast} under a scale for {block}"

    def to_json(self) -> dict[str, object]:
        """Plain dictionary; ``from_json`` reads it back."""
        return {"kind": "scaled_cast", "name": self.name}

    @classmethod
    def from_json(cls, data: Mapping[str, object] | str) -> ScaledCast:
        """Format written by ``to_json``, or named by a string; ``FormatError`` for one of another kind."""
        return named_tensor_format(cls, "scaled_cast", data)


def is_scaled_cast_name(text: str) -> bool:
    """Whether ``text`` has the sign between a cast and a block, "@", outside brackets."""
    return _at(text) >= 0


def _at(text: str) -> int:
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter in "([{<") - (letter in ")]}>")
        if letter == "@" and depth == 0:
            return index
    return -1


_BLOCK = re.compile(r"(\d+)x(\d+|all)")
_OPTION = re.compile(r"([a-z0-9_]+)\s*(?:\((.*)\))?")
_OPTIONS = (
    "divide, floor, nvfp4, pow2, margin(n), least(x), hadamard(n), hadamard(n,seed), gain(x), stored(...), dim(n), "
    "delayed(n)"
)
_KNOWN = ["amax", "divide", "floor", "nvfp4", "pow2", "margin", "least", "hadamard", "gain", "stored", "dim", "delayed"]


@lru_cache(maxsize=4096)
def parse_scaled_cast(text: str) -> ScaledCast:
    """Scaled cast named by ``text``: a cast, "@", a block, and options after slashes.

    Blocks: "tensor", "row", or rows x terms along the sum, "1x128", "128x128", "1xall".

    Raises:
        FormatError: for another block, unknown or repeated options, numbers out of range.

    Example:
        >>> gs.formats.parse("e4m3/sat@128x128/divide").bits_per_value
        8.001953125
    """
    at = _at(text)
    found: Cast = read_name("cast", text[:at])
    block, *options = _split(text[at + 1 :])
    fields: dict[str, object] = dict(zip(("rows", "terms"), _read_block(text, block), strict=True))
    for option in options:
        given = _read_option(text, option.strip())
        for name in given:
            if name in fields:
                raise format_error(f"scaled cast {shown(text)}: {shown(option)}", f"one {name}", "Drop one of them.")
        fields.update(given)
    return ScaledCast(found, **fields)  # type: ignore[arg-type]


def _split(text: str) -> list[str]:
    """Parts between slashes outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "/" and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _read_block(text: str, block: str) -> tuple[int, int]:
    word = block.strip().lower()
    if word in ("tensor", "row"):
        return (0, 0) if word == "tensor" else (1, 0)
    match = _BLOCK.fullmatch(word)
    if match is None or int(match[1]) == 0 or match[2] == "0":
        allowed = "tensor, row, or rows x terms such as 1x128, 128x128, 1x32, 16x16, 1xall"
        raise format_error(f"scaled cast {shown(text)}: block {shown(block)}", allowed, "Try '@1x128'.")
    return int(match[1]), 0 if match[2] == "all" else int(match[2])


def _read_option(text: str, option: str) -> dict[str, object]:
    match = _OPTION.fullmatch(option.lower() if "@" not in option else option)
    name, inside = (match[1], match[2]) if match else ("", None)
    if inside is None and name in ("amax", "divide", "floor", "nvfp4"):
        return {"rule": ScaledCastRule(name)}
    if inside is None and name == "pow2":
        return {"power": True}
    try:
        if inside is not None and name in ("margin", "dim", "delayed"):
            return {name: int(inside)}
        if inside is not None and name in ("least", "gain"):
            number = float(inside)
            if math.isfinite(number):
                return {name: number}
        if inside is not None and name == "hadamard":
            size, _, seed = inside.partition(",")
            found: dict[str, object] = {"hadamard": int(size)}
            return found | {"signs": int(seed)} if seed.strip() else found
    except ValueError:
        pass
    if inside is not None and name == "stored" and is_scaled_cast_name(inside):
        return {"stored": parse_scaled_cast(inside)}
    hint = suggestion(name, _KNOWN)
    raise format_error(f"scaled cast {shown(text)}: option {shown(option)}", _OPTIONS, hint or "Drop it.")


def along(fmt: ScaledCast, dim: int) -> ScaledCast:
    """``fmt`` with the sum along ``dim``."""
    return fmt if fmt.dim == dim else replace(fmt, dim=dim)
