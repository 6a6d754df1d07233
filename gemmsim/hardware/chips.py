"""Names of chips for the architectures of the tables, and chips of which the tables have no model."""

from __future__ import annotations

import re

__all__ = ["CHIPS", "chip_key", "no_model_words", "without_model"]

#: Chips and compute capabilities of each architecture of the tables. Case, blanks, "-" and "_" do not matter.
_NAMES: dict[str, str] = {
    "volta": "v100, titan v, quadro gv100, sm_70, sm_72",
    "turing": """t4, rtx 2060, rtx 2060 super, rtx 2070, rtx 2070 super, rtx 2080, rtx 2080 super, rtx 2080 ti,
        titan rtx, quadro rtx 4000, quadro rtx 5000, quadro rtx 6000, quadro rtx 8000, sm_75""",
    "ampere": """a100, a800, a2, a10, a10g, a16, a30, a40, rtx 3050, rtx 3060, rtx 3060 ti, rtx 3070, rtx 3070 ti,
        rtx 3080, rtx 3080 ti, rtx 3090, rtx 3090 ti, rtx a1000, rtx a2000, rtx a4000, rtx a4500, rtx a5000,
        rtx a5500, rtx a6000, orin, jetson orin, agx orin, jetson agx orin, sm_80, sm_86, sm_87""",
    "ada": """rtx 4090, rtx 4090 d, rtx 4080, rtx 4080 super, rtx 4070, rtx 4070 super, rtx 4070 ti,
        rtx 4070 ti super, rtx 4060, rtx 4060 ti, rtx 4050, l4, l20, l40, l40s, rtx 1000 ada, rtx 2000 ada,
        rtx 3000 ada, rtx 3500 ada, rtx 4000 ada, rtx 4500 ada, rtx 5000 ada, rtx 5880 ada, rtx 6000 ada, sm_89""",
    "hopper": "h100, h200, h20, h800, gh200, grace hopper, sm_90",
    "blackwell": "b200, gb200, b100, grace blackwell, sm_100",
    "rtx_blackwell": """rtx 5090, rtx 5090 d, rtx 5080, rtx 5070, rtx 5070 ti, rtx 5060, rtx 5060 ti, rtx 5050,
        rtx pro 2000, rtx pro 4000, rtx pro 4500, rtx pro 5000, rtx pro 6000, rtx 6000 pro, gb10, dgx spark,
        sm_120, sm_121""",
    "cdna1": "mi100, gfx908",
    "cdna2": "mi250x, mi250, mi210, mi200, gfx90a",
    "cdna3": "mi300x, mi300a, mi300, mi308x, mi308, mi325x, gfx940, gfx941, gfx942",
}
#: The architecture of each chip, which is what the tables and every print-back name. No blanks in names: "rtx4090".
CHIPS: dict[str, str] = {re.sub(r"\s", "", name): arch for arch, names in _NAMES.items() for name in names.split(",")}

#: What exists and the tables have no model of: what it is, its names without blanks, the nearest architecture if any.
_WITHOUT_MODEL: tuple[tuple[str, str, str | None], ...] = (
    ("NVIDIA Blackwell Ultra", r"g?b300|blackwellultra|sm103", "blackwell"),
    ("NVIDIA Thor", r"thor|sm101|sm110", "blackwell"),
    ("NVIDIA Rubin", r"rubin|vr200", "blackwell"),
    ("NVIDIA before Volta", r"pascal|p40|p100|gtx(9|10)\d\d(ti)?|sm[3-6]\d", "volta"),
    ("AMD CDNA4", r"cdna4|mi35[05]x?|gfx950", "cdna3"),
    ("AMD before CDNA1", r"vega\d*|mi(25|50|60)|gfx90[06]", "cdna1"),
    ("AMD RDNA", r"rdna\d?|rx[5-9]\d{3}\w*|(ai)?(pro)?(w[67]\d{3}|r9700)|gfx1[0-2]\w\w", "cdna3"),
    ("Google TPU", r"(google)?(cloud)?tpu\w*|trillium|ironwood", None),
    ("Intel", r"intel\w*|gaudi\w*|pontevecchio|xeon\w*|arc[ab]\d+", None),
    ("AWS Trainium", r"(aws)?(trainium|inferentia)\d?|trn\d\w?|inf\d", None),
    ("Apple", r"apple\w*|m[1-5](pro|max|ultra)", None),
)

#: Words of product names that say nothing about the architecture: vendor and line, which may be joined to the rest;
#: memory and form.
_VENDOR = re.compile(r"^(?:nvidia|amd|geforce|tesla|instinct|radeon)+")
_IDLE = re.compile(
    r"graphics|sxm\d?|pcie|nvl|oam|hbm\d?\w?|\d+gb|laptop|mobile|gpu|generation|workstation|server|edition|max|q"
)
#: Forms that may be joined to the chip's name: "H100NVL".
_FORM = re.compile(r"(?<=\d)(?:nvl|pcie|sxm\d?|oam)$")
_CAPABILITY = re.compile(r"(?:sm|compute)(\d{2,3})[af]?")
_JOINED = {name.replace("_", ""): name for name in (*_NAMES, *CHIPS)} | {"adalovelace": "ada"}


def chip_key(text: str) -> str:
    """``text`` as a chip or an architecture is spelt here: "NVIDIA GeForce RTX 4090" is "rtx4090", "sm90a" "sm_90".

    What is neither comes back in lower case without blanks.
    """
    spellings = _spellings(text)
    return next((_JOINED[one] for one in spellings if one in _JOINED), spellings[0])


def without_model(text: str) -> tuple[str, str | None] | None:
    """Of a chip of which the tables have no model: what it is, and the nearest architecture if there is one.

    None for the chips and architectures of the tables, and for what is no chip.
    """
    spellings = _spellings(text)
    if any(one in _JOINED for one in spellings):
        return None
    found = (row for row in _WITHOUT_MODEL if any(re.fullmatch(row[1], one) for one in spellings))
    return next(((name, near) for name, _, near in found), None)


def no_model_words(name: str, near: str | None) -> str:
    """What to tell people of what ``without_model`` found."""
    if near is None:
        return f"the tables have no model of {name}, nor of anything near to it"
    chip = next(chip for chip, arch in CHIPS.items() if arch == near)
    return f"the tables have no model of {name}; nearest is {near} ({chip}), which may add otherwise"


def _spellings(text: str) -> tuple[str, ...]:
    """``text`` without blanks, in the ways it may stand in a table: as it is, without idle words, and so on."""
    words = re.split(r"[\s_-]+", text.strip().lower())
    short = _FORM.sub("", _VENDOR.sub("", "".join(word for word in words if not _IDLE.fullmatch(word))))
    number = _CAPABILITY.fullmatch(short)
    return "".join(words), f"sm{number[1]}" if number else short, f"rtx{short}", short.removesuffix("blackwell")
