"""The grammar of d-Matrix's shorthand: from text to constructor arguments."""

from __future__ import annotations

import re
from typing import Any

from gemmsim.formats.dmatrix_names import patterns

__all__ = ["ROUNDING_MODE", "fields_of"]


class _TwoWay(dict[str, str]):
    """A mapping whose ``inverse`` maps back."""

    @property
    def inverse(self) -> dict[str, str]:
        """Letters by word."""
        return {value: key for key, value in self.items()}


#: Letters of the shorthand and the words they stand for; ``.inverse`` for the other direction.
ROUNDING_MODE = _TwoWay(U="up", D="down", N="nearest", S="stochastic")

#: In the order that prefixes are tried.
_KINDS = {
    "SAME": re.compile("SAME.*", re.DOTALL),
    **patterns(sign="[0-9]", flag=r"\w", rounding=r"\w", mxfp_end=r"(?:\((\w)N\))?"),
}


def fields_of(text: str) -> tuple[str, dict[str, Any]]:
    """The kind that ``text`` names and its constructor arguments; nested formats stay text.

    Raises:
        ValueError: for text that is not a shorthand, or has an unknown rounding.
    """
    if not isinstance(text, str):
        raise ValueError(f"format shorthand {text!r}; allowed: text.\n  Try 'BFP[8|8]{{64}}(SN)'.")
    kind = next((name for name in _KINDS if text.startswith(name)), None)
    if kind is None:
        raise ValueError(
            f"unrecognized format shorthand: {text}; allowed: SAME, XP[..](..), FP[..](..), BFP[..]{{..}}(..), "
            "SBFP<..><..>{..}, MXFPn[ExMy]{..}, MXINTn{..}.\n  Letters are upper case."
        )
    match = _KINDS[kind].fullmatch(text)
    if match is None:
        raise ValueError(
            f"malformed format shorthand: {text}; allowed: {_EXAMPLES[kind]} and the like.\n  Check the brackets."
        )
    return kind, _READERS[kind](text, match.groups())


def _rounding(text: str, letter: str) -> str:
    if letter not in ROUNDING_MODE:
        raise ValueError(f"format shorthand {text}: rounding {letter!r}; allowed: U, D, N, S.\n  N is nearest.")
    return ROUNDING_MODE[letter]


def _block(groups: tuple[Any, ...]) -> dict[str, Any]:
    return {"block_size": int(groups[0]), "block_dim": None if groups[1] is None else int(groups[1])}


def _same(text: str, groups: tuple[Any, ...]) -> dict[str, Any]:
    return {}


def _fixed(text: str, groups: tuple[Any, ...]) -> dict[str, Any]:
    bits, frac, clamp, symmetric, rounding = groups
    return {
        "precision": int(bits),
        "fraction": int(frac),
        "clamp": clamp == "C",
        "symmetric": symmetric == "S",
        "rounding": _rounding(text, rounding),
    }


def _float(text: str, groups: tuple[Any, ...]) -> dict[str, Any]:
    sign, exponent, mantissa, bias, flush, rounding = groups
    return {
        "mantissa": int(mantissa),
        "exponent": int(exponent),
        "bias": int(bias),
        "flush_subnormal": flush == "F",
        "unsigned": sign == "0",
        "rounding": _rounding(text, rounding),
    }


def _block_float(text: str, groups: tuple[Any, ...]) -> dict[str, Any]:
    symmetric, rounding = groups[3] == "S", _rounding(text, groups[4])
    return {"precision": int(groups[0]), **_block(groups[1:3]), "symmetric": symmetric, "rounding": rounding}


def _scaled(text: str, groups: tuple[Any, ...]) -> dict[str, Any]:
    return {"block_format": groups[0], "scaler_format": groups[6], **_block(groups[-2:])}


def _mx_float(text: str, groups: tuple[Any, ...]) -> dict[str, Any]:
    bits, exponent, mantissa = map(int, groups[:3])
    if bits != 1 + exponent + mantissa:
        raise ValueError(f"format shorthand {text}: {bits} bits; allowed: {1 + exponent + mantissa}.\n  Change one.")
    fields = {"exponent": exponent, "mantissa": mantissa, "flush_subnormal": groups[5] == "F"}
    return {**fields, **_block(groups[3:5])}


def _mx_integer(text: str, groups: tuple[Any, ...]) -> dict[str, Any]:
    return {"precision": int(groups[0]), **_block(groups[1:])}


_READERS = {
    "SAME": _same,
    "XP": _fixed,
    "FP": _float,
    "BFP": _block_float,
    "SBFP": _scaled,
    "MXFP": _mx_float,
    "MXINT": _mx_integer,
}
_EXAMPLES = {
    "SAME": "SAME",
    "XP": "XP[8,+4](CSN)",
    "FP": "FP[1|4|3,7](FN)",
    "BFP": "BFP[8|8]{64}(SN)",
    "SBFP": "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}",
    "MXFP": "MXFP8[E4M3]{32}",
    "MXINT": "MXINT8{32}",
}
