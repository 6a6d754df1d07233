"""torchmx's settings, read from the environment when first imported; they may be set later too."""

from __future__ import annotations

import os

__all__ = ["LOG_FILE", "LOG_LEVEL", "MX_EXACT_QUANTIZATION", "TORCHMX_LOG_FILE", "TORCHMX_LOG_LEVEL"]

#: "True" or "False": torchmx's two ways of quantising. Their codes are the same, and so are gemmsim's by either.
MX_EXACT_QUANTIZATION = os.environ.get("MX_HARDWARE_EXACT_QUANTIZATION", "False")
#: What ``utils.get_logger`` sets; gemmsim itself writes no such logs. torchmx's documentation names the variables
#: TORCHMX_LOG_LEVEL and TORCHMX_LOG_FILE, which count first here; its code reads LOG_LEVEL and LOG_FILE.
TORCHMX_LOG_LEVEL = os.environ.get("TORCHMX_LOG_LEVEL", os.environ.get("LOG_LEVEL", "INFO"))
TORCHMX_LOG_FILE = os.environ.get("TORCHMX_LOG_FILE", os.environ.get("LOG_FILE"))
#: Names of torchmx's documentation.
LOG_LEVEL = TORCHMX_LOG_LEVEL
LOG_FILE = TORCHMX_LOG_FILE
