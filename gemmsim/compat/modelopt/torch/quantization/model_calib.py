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
    """Pass every weight once through its quantiser; computed weights are those that the next call would compute.

    Raises:
        ComputedWeightError (TypeError): for a weight that a hook of other packages may compute.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.model_calib.weight_only_quantize(mtq.nn.QuantLinear(4, 2))
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
    """Let every enabled quantiser collect statistics and return its input unquantised.

    Example:
        >>> layer, x = gs.compat.modelopt.nn.QuantLinear(4, 2, bias=False), torch.tensor([[0.3, 1.0, 7.0, 0.1]])
        >>> gs.compat.modelopt.model_calib.enable_stats_collection(layer)
        >>> torch.equal(layer(x), torch.nn.functional.linear(x, layer.weight))
        True
    """
    for _, q in quantizers_of(model):
        if q.is_enabled:
            q.disable_quant()
            if q._calibrator is not None:
                q.enable_calib()


def finish_stats_collection(model: nn.Module, method: str | None = None, **options: Any) -> None:
    """Give each quantiser the amax and bias that it has collected, if any, and let it quantise.

    ``method`` and ``options``: of histograms ("percentile", "mse", "entropy"), as ``HistogramCalibrator.compute_amax``.

    Example:
        >>> layer = gs.compat.modelopt.nn.QuantLinear(4, 2)
        >>> gs.compat.modelopt.model_calib.finish_stats_collection(layer)
        >>> layer.input_quantizer.amax  # nothing was collected
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
    """Give each static quantiser the largest magnitude that it receives in ``forward_loop``; without one, only weights.

    Quantisers that received nothing continue to take amax from each input. ``distributed_sync`` is stored: gemmsim
    exchanges nothing between processes.

    Raises:
        CalibrationDataError (AssertionError): for NaN or infinity in the data.

    Example:
        >>> layer = gs.compat.modelopt.nn.QuantLinear(4, 2)
        >>> gs.compat.modelopt.model_calib.max_calibrate(layer, lambda model: model(torch.full((1, 4), 3.0)))
        >>> layer.input_quantizer.amax
        tensor(3.)
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
    """``max_calibrate``, but static quantisers of one amax find it in a histogram; ModelOpt does not have it.

    ``method``: "percentile" or "entropy"; ``options`` as ``HistogramCalibrator.compute_amax``.

    Example:
        >>> layer, calib = gs.compat.modelopt.nn.QuantLinear(4, 2), gs.compat.modelopt.model_calib
        >>> calib.histogram_calibrate(layer, lambda m: m(torch.full((1, 4), 3.0)), "percentile", percentile=99.9)
        >>> layer.input_quantizer.amax
        tensor(3.)
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
    """``max_calibrate``, then the one of ``num_steps`` multiples of each amax that has the least squared error.

    Blocks keep their maxima. ``forward_loop`` runs twice. Errors are those of ``max_calibrate``.

    Example:
        >>> layer = gs.compat.modelopt.nn.QuantLinear(4, 2)
        >>> gs.compat.modelopt.model_calib.mse_calibrate(layer, lambda model: model(torch.full((1, 4), 3.0)))
        >>> layer.input_quantizer.amax.shape
        torch.Size([])
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
