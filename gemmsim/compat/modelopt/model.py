"""``quantize`` and ``calibrate`` of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from gemmsim import tensor_quant

__all__ = ["calibrate", "quantize"]

ForwardLoop = Callable[[nn.Module], Any]


def quantize(model: nn.Module, config: Mapping[str, Any], forward_loop: ForwardLoop | None = None) -> nn.Module:
    """``model`` with quantisers as ``config["quant_cfg"]`` says, calibrated by ``config["algorithm"]``; in place.

    Errors as ``gemmsim.tensor_quant.quantize_`` and ``calibrate``.
    """
    tensor_quant.quantize_(model, config)
    return calibrate(model, config.get("algorithm"), forward_loop)


def calibrate(
    model: nn.Module, algorithm: str | Mapping[str, Any] | None = "max", forward_loop: ForwardLoop | None = None
) -> nn.Module:
    """Give static quantisers their amax; ``algorithm`` "max", "percentile", "mse", "entropy", or {"method": one,
    options}.

    None does nothing, and so does a call without ``forward_loop``: amax then comes from each input.
    """
    if algorithm is None or forward_loop is None:
        return model
    options = {"method": algorithm} if isinstance(algorithm, str) else dict(algorithm)
    return tensor_quant.calibrate(model, forward_loop, options.pop("method"), **options)
