"""torchmx's settings, read from the environment when first imported; they may be set later too."""

from __future__ import annotations

import os

__all__ = ["LOG_FILE", "LOG_LEVEL", "MX_EXACT_QUANTIZATION"]

#: "True" or "False": torchmx's two ways of quantising. Their codes are the same, and so are gemmsim's by either.
MX_EXACT_QUANTIZATION = os.environ.get("MX_HARDWARE_EXACT_QUANTIZATION", "False")
#: Kept for code that reads them; nothing here writes logs.
LOG_LEVEL = os.environ.get("LOG_LEVEL", "INFO")
LOG_FILE = os.environ.get("LOG_FILE")
