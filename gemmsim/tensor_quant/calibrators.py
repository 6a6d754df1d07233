"""The calibrator that a description asks for."""

from __future__ import annotations

from typing import Any

from .config import QuantizerAttributeConfig
from .histogram import HistogramCalibrator
from .max_calibrator import MaxCalibrator

__all__ = ["calibrator_of"]


def calibrator_of(config: QuantizerAttributeConfig) -> Any:
    """A new calibrator; None where amax comes from each input, and for E4M3 scales of blocks the tensor's maximum."""
    blocks = config.block_sizes
    if blocks is not None and blocks.get("type") == "dynamic":
        return MaxCalibrator(config.num_bits) if blocks.get("scale_bits") == (4, 3) else None
    if config.type == "dynamic":
        return None
    made = config.calibrator
    if made == "max":
        return MaxCalibrator(config.num_bits, config.axis, config.unsigned)
    if made == "histogram":
        return HistogramCalibrator(config.num_bits, None if blocks else config.axis, config.unsigned)
    if isinstance(made, (tuple, list)):
        constructor, *rest = made
        args = rest[0] if rest else ()
        kwargs = rest[1] if len(rest) > 1 else {}
        return constructor(*args, **kwargs)
    assert callable(made)
    return made()
