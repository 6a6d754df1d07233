"""Numbers of formats in d-Matrix's ONNX operators."""

from __future__ import annotations

__all__ = ["BFP_IDS", "SCALED_IDS", "UNSIGNED_IDS", "FormatIdError"]

_SIZES = (128, 64, 32, 16)
#: In the order of the numbers: width with the exponent, block size; asymmetric formats last.
_ORDER = [("", 32, 1), *(("", 24, size) for size in (64, 32, 16))]
_ORDER += [("", width, size) for width in (16, 14, 12) for size in _SIZES]
_ASYMMETRIC = [("A", width, size) for width in (14, 12) for size in _SIZES]

#: (suffix, precision + 8, block size) -> number; suffix "A": not symmetric.
BFP_IDS = {key: 10001 + at for at, key in enumerate([*_ORDER, *_ASYMMETRIC])}
#: The same of unsigned formats, which have names there alone.
UNSIGNED_IDS = {key: 10025 + at for at, key in enumerate(_ORDER)}
#: SBFP12_16_b -> number, by the scale's bias b.
SCALED_IDS = {bias: 10041 + bias - 4 for bias in range(4, 19)}


class FormatIdError(KeyError):
    """d-Matrix's ONNX operators have no number for this format.

    Example:
        >>> from gemmsim.compat import dmx
        >>> dmx.BlockFloatingPoint(8, 20).bfp_id
        Traceback (most recent call last):
            ...
        gemmsim.compat.dmx.bfp_ids.FormatIdError: BFP[8|8]{20}(SN): bfp_id of a format without a number; allowed: ...
    """

    def __init__(self, fmt: object, allowed: str, do: str) -> None:
        super().__init__(f"{fmt!r}: bfp_id of a format without a number; allowed: {allowed}.\n  {do}")

    def __str__(self) -> str:
        return str(self.args[0])
