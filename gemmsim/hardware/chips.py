"""Names of chips for the architectures of the tables."""

from __future__ import annotations

__all__ = ["CHIPS", "chip_key"]

#: The architecture of each chip, which is what the tables and every print-back name.
CHIPS: dict[str, str] = {
    "v100": "volta",
    "a100": "ampere",
    "rtx4090": "ada",
    "h100": "hopper",
    "h200": "hopper",
    "b200": "blackwell",
    "mi100": "cdna1",
    "mi250": "cdna2",
    "mi300": "cdna3",
}


def chip_key(text: str) -> str:
    """``text`` as a chip or an architecture is spelt here: "RTX 4090" is "rtx4090", "RTX Blackwell" "rtx_blackwell"."""
    key = text.strip().lower().replace(" ", "_").replace("-", "_")
    joined = key.replace("_", "")
    return joined if joined in CHIPS else {"ada_lovelace": "ada"}.get(key, key)
