"""``modelopt.torch.quantization.model_calib``: amaxes from data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gemmsim.nn.undoing import naming
from gemmsim.nn.weights import computed_parameter, current_weight
from gemmsim.tensor_quant import HistogramCalibrator, MseCalibrator, TensorQuantizer

from .nn.modules.tensor_quantizer import quantizers_of

__all__ = [
    "enable_stats_collection",
    "finish_stats_collection",
    "histogram_calibrate",
    "max_calibrate",
    "mse_calibrate",
    "weight_only_quantize",
]

ForwardLoop = Callable[[nn.Module], Any]


@torch.no_grad()
def weight_only_quantize(model: nn.Module) -> None:
    """Every weight once through its quantiser, those that parametrisations or hooks compute as the next call would.

    Raises:
        ComputedWeightError (TypeError): for a weight that a hook of other packages may compute.
    """
    for path, module in model.named_modules():
        for name, quantizer in list(module.named_children()):
            own = name.removesuffix("_quantizer")
            if not name.endswith("weight_quantizer") or module._parameters.get(own, quantizer) is None:
                continue
            if own in module._parameters or computed_parameter(module, own):
                with naming(path):
                    quantizer(current_weight(module, own))


def enable_stats_collection(model: nn.Module) -> None:
    """Let every enabled quantiser collect, and none quantise."""
    for _, q in quantizers_of(model):
        if q.is_enabled:
            q.disable_quant()
            if q._calibrator is not None:
                q.enable_calib()


def finish_stats_collection(model: nn.Module, method: str | None = None, **options: Any) -> None:
    """Give each quantiser the amax and bias that it has collected, if any, and let it quantise.

    ``method`` and ``options``: of histograms ("percentile", "mse", "entropy"), as ``HistogramCalibrator.compute_amax``.
    """
    for _, q in quantizers_of(model):
        if not q.is_enabled:
            continue
        if q._bias_calibrator is not None and q._bias_calibrator.compute_bias() is not None:
            q.load_calib_bias()
        histogram = isinstance(q._calibrator, HistogramCalibrator)
        arguments = ((method or "percentile",), options) if histogram else ((), {})
        if q._calibrator is not None and q._if_calib:
            found = q._calibrator.compute_amax(*arguments[0], **arguments[1])
            if found is not None:
                if getattr(q, "_amax", None) is not None:
                    del q._amax
                q.amax = found
        q.enable_quant()
        q.disable_calib()


@torch.no_grad()
def _collect(model: nn.Module, forward_loop: ForwardLoop | None) -> None:
    enable_stats_collection(model)
    if forward_loop is None:
        weight_only_quantize(model)
    else:
        forward_loop(model)


def max_calibrate(model: nn.Module, forward_loop: ForwardLoop | None = None, distributed_sync: bool = True) -> None:
    """The largest magnitude that each static quantiser sees while ``forward_loop`` runs; without one, of weights alone.

    Quantisers that saw nothing go on taking amax from each input. ``distributed_sync`` is kept: gemmsim exchanges
    nothing between processes.

    Raises:
        CalibrationDataError (AssertionError): for NaN or infinity on the way.
    """
    for _, q in quantizers_of(model):
        if q._calibrator is not None:
            q._calibrator.reset()
        if q._bias_calibrator is not None:
            q.reset_bias()
    try:
        _collect(model, forward_loop)
    except BaseException:
        _switch_back(model)
        raise
    finish_stats_collection(model)


def _switch_back(model: nn.Module) -> None:
    for _, q in quantizers_of(model):
        q.enable_quant()
        q.disable_calib()


def histogram_calibrate(
    model: nn.Module, forward_loop: ForwardLoop | None, method: str, distributed_sync: bool = True, **options: Any
) -> None:
    """``max_calibrate``, in which static quantisers of one amax search it in a histogram; not in ModelOpt.

    ``method``: "percentile" or "entropy"; ``options`` as ``HistogramCalibrator.compute_amax``.
    """
    for _, q in quantizers_of(model):
        if q.is_enabled and q._calibrator is not None and q.axis is None and q.block_sizes is None:
            q._calibrator = HistogramCalibrator(q.num_bits, None, q.unsigned, grow_method="double")
    try:
        _collect(model, forward_loop)
    except BaseException:
        _switch_back(model)
        raise
    finish_stats_collection(model, method, **options)


def mse_calibrate(
    model: nn.Module,
    forward_loop: ForwardLoop | None = None,
    distributed_sync: bool = True,
    num_steps: int = 10,
    start_multiplier: float = 0.25,
    stop_multiplier: float = 4.0,
) -> None:
    """``max_calibrate``, then of ``num_steps`` multiples of each amax the one with the least squared error.

    Blocks keep their maxima. ``forward_loop`` runs twice. Errors as ``max_calibrate``.
    """
    max_calibrate(model, forward_loop, distributed_sync)
    searched = []
    for _, q in quantizers_of(model):
        amax = getattr(q, "_amax", None)
        if q.is_enabled and q._calibrator is not None and amax is not None and q.block_sizes is None:
            searched.append((q, q._calibrator))
            multiples = (num_steps, start_multiplier, stop_multiplier)
            q._calibrator = MseCalibrator(amax.clone(), q.axis, *multiples, _quantised(q))
    others = [q for _, q in quantizers_of(model) if q.is_enabled and all(q is not found for found, _ in searched)]
    try:
        _collect(model, forward_loop)
        for q in others:
            q.disable_calib()
        finish_stats_collection(model)
    finally:
        _switch_back(model)
        for q, calibrator in searched:
            q._calibrator = calibrator


def _quantised(q: TensorQuantizer) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of a tensor and an amax: what ``q`` makes of the tensor under that amax."""

    def run(x: Tensor, amax: Tensor) -> Tensor:
        held, switches = q._amax, (q._if_quant, q._if_calib)
        q._amax, q._if_quant, q._if_calib = amax, True, False
        try:
            found: Tensor = q(x)
            return found
        finally:
            q._amax = held
            q._if_quant, q._if_calib = switches

    return run
