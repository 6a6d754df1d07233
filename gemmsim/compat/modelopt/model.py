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

    None does nothing, and so does a call without ``forward_loop`` (amax then comes from each input) or for a model
    without quantisers.

    Raises:
        CalibrationError (RuntimeError): for an algorithm that is none of these.
    """
    named = isinstance(algorithm, str) or (isinstance(algorithm, Mapping) and "method" in algorithm)
    if algorithm is not None and not named:
        allowed = "'max', 'percentile', 'mse', 'entropy', a dict with 'method', or None"
        raise tensor_quant.CalibrationError(
            f"calibrate: algorithm={algorithm!r}; allowed: {allowed}.\n  Give one of these."
        )
    quantised = any(isinstance(m, tensor_quant.TensorQuantizer) for m in model.modules())
    if algorithm is None or forward_loop is None or not quantised:
        return model
    options = {"method": algorithm} if isinstance(algorithm, str) else dict(algorithm)
    return tensor_quant.calibrate(model, forward_loop, options.pop("method"), **options)
