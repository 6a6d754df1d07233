"""Which codes of a float format are not finite numbers."""

from __future__ import annotations

from enum import Enum

from .errors import format_error, shown, suggestion

__all__ = ["Specials", "parse_specials"]


class Specials(Enum):
    """The codes of a float format that are not finite numbers. They decide what overflow can produce.

    ``IEEE``: the top exponent field is infinity (trailing bits zero) or NaN; there is -0. ``NAN_ONLY``: the all-ones
    code of each sign is NaN; no infinity; there is -0 (OCP OFP8 rev. 1.0, E4M3). ``FNUZ``: the code of -0 is the only
    NaN; no infinity, no -0 (arXiv:2206.02915). ``NONE``: every code is finite; there is -0 if signed (OCP MX rev. 1.0,
    FP6 and FP4). ``P3109_EXTENDED``, ``P3109_FINITE``: NaN at 2^(K-1) (signed) or 2^K-1 (unsigned), no -0; infinities
    at the ends in the extended domain only. ``SCALE``: unsigned powers of two; no zero, no infinity, the all-ones code
    is NaN (OCP MX rev. 1.0, E8M0).

    Example:
        >>> gs.formats.E4M3.specials, gs.formats.E4M3FNUZ.specials
        (<Specials.NAN_ONLY: 'nan_only'>, <Specials.FNUZ: 'fnuz'>)
    """

    #: Top exponent field is reserved: trailing bits zero = infinity, else NaN; has -0 (IEEE 754-2019, 3.4).
    IEEE = "ieee"
    #: Only the all-ones code of each sign is NaN; no infinity; has -0 (OCP OFP8 rev. 1.0, E4M3).
    NAN_ONLY = "nan_only"
    #: The code of -0 is the only NaN; no infinity, no -0 (AMD/Graphcore FP8, arXiv:2206.02915).
    FNUZ = "fnuz"
    #: Every code is finite: no infinity, no NaN; has -0 if signed (OCP MX rev. 1.0, FP6 and FP4).
    NONE = "none"
    #: NaN at 2^(K-1) (signed) or 2^K-1 (unsigned), infinities at the ends; no -0 (P3109 v4.0, extended domain).
    P3109_EXTENDED = "p3109_extended"
    #: NaN as in the extended domain, no infinity, no -0 (P3109 v4.0, finite domain).
    P3109_FINITE = "p3109_finite"
    #: Unsigned powers of two: no zero, no infinity, the all-ones code is NaN (OCP MX rev. 1.0, E8M0).
    SCALE = "scale"

    def __str__(self) -> str:
        return str(self.value)

    @property
    def is_p3109(self) -> bool:
        """Whether codes are laid out as IEEE P3109 says."""
        return self in (Specials.P3109_EXTENDED, Specials.P3109_FINITE)

    def p3109_reserved(self, signed: bool) -> int:
        """Codes above the largest finite one among the non-negative codes of a P3109 format."""
        extended = self is Specials.P3109_EXTENDED
        # Unsigned NaN is the last code; signed NaN sits where -0 would be and takes none of them.
        return int(extended) + int(not signed)


def parse_specials(text: object) -> Specials:
    """Member whose value is ``text`` (case does not matter).

    Raises:
        FormatError: for anything else.
    """
    if isinstance(text, Specials):
        return text
    known = {member.value: member for member in Specials}
    key = text.strip().lower() if isinstance(text, str) else None
    if key not in known:
        hint = suggestion(key, known) if key is not None else ""
        raise format_error(
            f"unknown specials {shown(text)}", ", ".join(known), f"{hint}Plain IEEE-like formats need none."
        )
    return known[key]
