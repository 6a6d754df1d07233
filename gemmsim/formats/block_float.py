"""Block floating point: integers of a few bits that share one power of two, as values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from .checks import check_bool, check_int
from .errors import AsWritten, FormatError, format_error, shown, suggestion
from .json_fields import json_fields
from .rounding import Rounding, is_rounding_name, parse_rounding

__all__ = ["BlockFloatFormat", "Sharing", "is_block_float_name", "parse_block_float"]

_USAGE = (
    "bfp(bits,block_size[,dim=..]), bfp(bits,tensor) or bfp(bits,index=dim), then asymmetric and inf as needed, "
    "then /rounding"
)


class Sharing(Enum):
    """The elements of a tensor that share an exponent: those of a block, those with the same index, or all.

    Example:
        >>> gs.formats.parse("bfp(8,tensor)").sharing
        Sharing.TENSOR
    """

    BLOCK = "block"  # block_size consecutive ones along dim; the last block may be shorter
    TENSOR = "tensor"  # all
    INDEX = "index"  # those with the same index of dim: a channel

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"Sharing.{self.name}"


@dataclass(frozen=True)
class BlockFloatFormat:
    """Block floating point: k * 2**(E+2-bits) with integers |k| < 2**(bits-1) and one exponent E for each block.

    Args:
        bits: width of an element's integer, the sign included, 1 to 32.
        block_size: elements per exponent for ``Sharing.BLOCK``, 0 for the other kinds of sharing.
        dim: the dimension along which blocks lie, or whose indices have one exponent each; 0 for ``Sharing.TENSOR``.
        sharing: the elements that share an exponent.
        symmetric: leave out the lowest integer, -2**(bits-1).
        keep_infinity: infinite elements stay infinite instead of becoming the largest integer.
        rounding: of the elements; any rounding.

    E = floor(log2 m), where m is the largest finite magnitude of the block; E is 127 if m is zero. Each element is
    rounded once and then clamped. This holds for the element with the largest magnitude too: rounding never raises E.
    NaN stays NaN and changes no other element. Infinities do not count for E. There is no -0.
    Source: mptorch's and QPyTorch's ``block_quantize``; with ``Sharing.BLOCK`` also d-Matrix's BFP.
    docs/reference/formats.md#block-floating-point.

    Raises:
        FormatError: for fields out of range, and for fields that do not go together.

    Example:
        >>> gs.quantize(torch.tensor([1.0, 0.3, 0.01, 0.001]), gs.formats.BlockFloatFormat(bits=8, block_size=4))
        tensor([1.0000, 0.2969, 0.0156, 0.0000])
    """

    bits: int
    block_size: int = 0
    dim: int = -1
    sharing: Sharing = Sharing.BLOCK
    symmetric: bool = True
    keep_infinity: bool = False
    rounding: Rounding = Rounding.RNE

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "bits", check_int("BlockFloatFormat", "bits", self.bits, 1, 32))
        try:
            put(self, "sharing", Sharing(self.sharing))
        except ValueError:
            raise format_error(
                f"BlockFloatFormat: sharing={self.sharing!r}", "block, tensor or index", "Choose one."
            ) from None
        in_blocks = self.sharing is Sharing.BLOCK
        low, high = (1, (1 << 31) - 1) if in_blocks else (0, 0)
        put(
            self,
            "block_size",
            check_int(f"BlockFloatFormat by {self.sharing}", "block_size", self.block_size, low, high),
        )
        put(self, "dim", check_int("BlockFloatFormat", "dim", self.dim, -64, 63))
        if self.sharing is Sharing.TENSOR and self.dim != 0:
            if self.dim != -1:
                raise format_error(f"BlockFloatFormat: dim={self.dim} by tensor", "no dim", "Use sharing by index.")
            put(self, "dim", 0)
        check_bool("BlockFloatFormat", "symmetric", self.symmetric)
        check_bool("BlockFloatFormat", "keep_infinity", self.keep_infinity)
        if not isinstance(self.rounding, Rounding):
            raise format_error(f"BlockFloatFormat: rounding={self.rounding!r}", "a Rounding", "Use parse_rounding.")

    @property
    def max_code(self) -> int:
        """Largest integer."""
        return (1 << (self.bits - 1)) - 1

    @property
    def min_code(self) -> int:
        """Lowest integer."""
        return -self.max_code - (0 if self.symmetric else 1)

    @property
    def bits_per_value(self) -> float:
        """Stored bits per value, with its part of the block's eight exponent bits; for whole tensors: ``bits``."""
        return self.bits + (8 / self.block_size if self.block_size else 0)

    @property
    def is_stochastic(self) -> bool:
        """Whether the result depends on random bits."""
        return self.rounding.is_stochastic

    @property
    def name(self) -> str:
        """Canonical name; ``parse(name)`` gives this format."""
        fields = [str(self.bits)]
        if self.sharing is Sharing.BLOCK:
            fields += [str(self.block_size), *([] if self.dim == -1 else [f"dim={self.dim}"])]
        else:
            fields += ["tensor" if self.sharing is Sharing.TENSOR else f"index={self.dim}"]
        fields += [] if self.symmetric else ["asymmetric"]
        fields += ["inf"] if self.keep_infinity else []
        rounding = "" if self.rounding == Rounding.RNE else f"/{self.rounding}"
        return f"bfp({','.join(fields)}){rounding}"

    def __str__(self) -> str:
        return self.name

    def describe(self) -> str:
        """Elements, exponent and rounding in words, one fact a line."""
        shared = {
            Sharing.BLOCK: f"{self.block_size} consecutive elements along dimension {self.dim}",
            Sharing.TENSOR: "the whole tensor",
            Sharing.INDEX: f"each index of dimension {self.dim}",
        }[self.sharing]
        infinity = "stay" if self.keep_infinity else "become the largest integer"
        lines = [
            f"{self}: block floating point, integers of {self.bits} bits with one exponent for {shared}",
            f"  {self.bits_per_value:g} bits a value; integers from {self.min_code} to {self.max_code}",
            f"  k * 2^(E+2-{self.bits}), E = floor(log2 of the largest finite magnitude)",
            f"  rounded {self.rounding.describe()}, then clamped",
            f"  NaN stays and changes no other element; infinities {infinity}; no -0",
        ]
        return "\n".join(lines)

    def words(self) -> str:
        """As an operand, in half a line."""
        shared = f"{self.block_size} terms along k" if self.block_size else "the whole operand"
        return f"in {self}: integers of {self.bits} bits, one exponent for {shared}, {self.rounding.describe()}"

    def to_json(self) -> dict[str, object]:
        """Plain dictionary; ``from_json`` reads it back."""
        return {
            "kind": "block_float",
            "name": self.name,
            "bits": self.bits,
            "block_size": self.block_size,
            "dim": self.dim,
            "sharing": str(self.sharing),
            "symmetric": self.symmetric,
            "keep_infinity": self.keep_infinity,
            "rounding": self.rounding.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object] | str) -> BlockFloatFormat:
        """Format written by ``to_json``, or named by a string; ``FormatError`` for impossible fields."""
        if isinstance(data, str):
            return parse_block_float(data)
        optional = ("block_size", "dim", "sharing", "symmetric", "keep_infinity", "rounding")
        fields: dict[str, Any] = json_fields(
            "BlockFloatFormat", "block_float", data, required=("bits",), optional=optional
        )
        if "rounding" in fields:
            fields["rounding"] = parse_rounding(fields["rounding"])
        return cls(**fields)


def is_block_float_name(text: str) -> bool:
    """Whether ``text`` starts as names of block floating point do."""
    return re.match(r"\s*bfp\b", text, re.IGNORECASE) is not None


def parse_block_float(text: str | BlockFloatFormat) -> BlockFloatFormat:
    """The format named by ``text``: "bfp(8,16)", "bfp(8,tensor)", "bfp(8,index=1)/sr8". A format is returned as it is.

    Raises:
        FormatError: for any other text, and for fields that do not go together.

    Example:
        >>> gs.formats.parse_block_float("bfp(8,16)").bits_per_value  # 8 bits, and 8 bits of exponent for 16 values
        8.5
    """
    if isinstance(text, BlockFloatFormat):
        return text
    if not isinstance(text, str):
        raise format_error(f"block floating point {shown(text)}", "a name or a BlockFloatFormat", "Try 'bfp(8,16)'.")
    base, *options = map(AsWritten, text.split("/"))
    match = re.fullmatch(r"bfp\((.*)\)", base)
    if match is None:
        raise FormatError(f"format {shown(text)}; allowed: {_USAGE}.\n  Try 'bfp(8,16)'.")
    inside = base.written[base.written.index("(") + 1 : -1]
    fmt = BlockFloatFormat(**_fields(text, [AsWritten(field) for field in inside.split(",") if field.strip()]))
    for option in options:
        if not is_rounding_name(option) or len(options) > 1:
            raise format_error(
                f"format {shown(text)}: {shown(option)}", "one rounding after '/'", "Drop the other options."
            )
        fmt = replace(fmt, rounding=parse_rounding(option))
    return fmt


def _fields(text: str, given: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}

    def put(**new: Any) -> None:
        for key, value in new.items():
            if key in fields:
                raise format_error(f"format {shown(text)}: {key} twice", _USAGE, "Drop one of them.")
            fields[key] = value

    for at, field in enumerate(given):
        number = re.fullmatch(r"[0-9]{1,9}", field)
        keyword = re.fullmatch(r"(dim|index)=(-?[0-9]{1,3})", field)
        if number and at < 2:
            put(**{"bits" if at == 0 else "block_size": int(field)})
        elif keyword:
            put(dim=int(keyword[2]), **({"sharing": Sharing.INDEX} if keyword[1] == "index" else {}))
        elif field == "tensor":
            put(sharing=Sharing.TENSOR)
        elif field == "asymmetric":
            put(symmetric=False)
        elif field == "inf":
            put(keep_infinity=True)
        else:
            hint = suggestion(field.partition("=")[0], ("tensor", "index", "dim", "asymmetric", "inf"))
            raise format_error(f"format {shown(text)}: {shown(field)}", _USAGE, hint or "Drop it.")
    if "bits" not in fields:
        raise format_error(f"format {shown(text)}", _USAGE, "Give the bits of an element first.")
    return fields
