"""The names that d-Matrix's package gives to formats."""

from __future__ import annotations

from .single import Format

__all__ = ["ALIASES"]

_SIZES = (128, 64, 32, 16)
_SHORTHAND = {
    "SAME": "SAME",
    "FLOAT32": "FP[1|8|23,127](_N)",
    "FLOAT16": "FP[1|5|10,15](FN)",
    "BFLOAT16": "FP[1|8|7,127](FN)",
    "AFLOAT8": "FP[1|4|3,7](_N)",
    "BFLOAT8": "FP[1|5|2,15](_N)",
    "INT8": "XP[8,0](CSN)",
    "INT4": "XP[4,0](CSN)",
    "BFP32_1": "BFP[24|8]{1}(SN)",
    **{f"BFP24_{size}": f"BFP[16|8]{{{size}}}(SN)" for size in _SIZES[1:]},
    **{f"BFP{bits}_{size}": f"BFP[{bits - 8}|8]{{{size}}}(SN)" for bits in (16, 14, 12) for size in _SIZES},
    **{f"BFP{bits}A_{size}": f"BFP[{bits - 8}|8]{{{size}}}(_N)" for bits in (16, 14, 12) for size in _SIZES},
    "SBFP12_16": "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}",
    **{f"SBFP12_16_{bias}": f"SBFP<XP[4,0](CSN)><FP[0|4|4,{bias}](FN)>{{16}}" for bias in range(4, 19)},
    **{
        f"MXFP{1 + e + m}_E{e}M{m}K{size}": f"MXFP{1 + e + m}[E{e}M{m}]{{{size}}}"
        for e, m in ((4, 3), (5, 2), (2, 3), (3, 2), (2, 1))
        for size in _SIZES[:3]
    },
    **{f"MXINT{bits}_K{size}": f"MXINT{bits}{{{size}}}" for bits in (8, 6, 4) for size in _SIZES[:3]},
}

#: Formats by the names that the package publishes, in its order.
ALIASES: dict[str, Format] = {name: Format.from_shorthand(text) for name, text in _SHORTHAND.items()}


def __getattr__(name: str) -> Format:
    """A published format."""
    if name not in ALIASES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return ALIASES[name]


def __dir__() -> list[str]:
    return sorted(["ALIASES", *ALIASES])
