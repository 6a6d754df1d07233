"""``modelopt.torch.quantization.model_quant``: models quantised, calibrated, looked at, folded."""

from __future__ import annotations

import fnmatch
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gemmsim.nn.undoing import naming, unchanged_on_error
from gemmsim.tensor_quant import CalibrationError, DescriptorError

from .config import normalize_quant_cfg_list
from .conversion import Filter, replace_quant_module, set_quantizer_attribute, set_quantizer_by_cfg
from .model_calib import histogram_calibrate, max_calibrate, mse_calibrate
from .nn.modules.quant_module import QuantModule, folded_weights, put_folded
from .nn.modules.tensor_quantizer import quantizers_of

__all__ = [
    "NothingQuantizedError",
    "calibrate",
    "disable_quantizer",
    "enable_quantizer",
    "fold_weight",
    "postprocess_amax",
    "print_quant_summary",
    "quantize",
    "temporarily_fold_weights",
]

ForwardLoop = Callable[..., Any]
_ALGORITHMS: dict[str, Callable[..., None]] = {
    "max": max_calibrate,
    "mse": mse_calibrate,
    "percentile": partial(histogram_calibrate, method="percentile"),
    "entropy": partial(histogram_calibrate, method="entropy"),
}


class NothingQuantizedError(DescriptorError, RuntimeError):
    """A configuration that switches quantisers on, and a model in which none is on after it."""


def quantize(model: nn.Module, config: Any, forward_loop: ForwardLoop | None = None) -> nn.Module:
    """``model`` with quantisers as ``config["quant_cfg"]`` says, calibrated by ``config["algorithm"]``; in place.

    Modules of registered classes are exchanged for quantised ones; a model that has quantisers keeps them.

    Args:
        config: {"quant_cfg": as ``set_quantizer_by_cfg``, "algorithm": as ``calibrate``}, or a ``QuantizeConfig``.
        forward_loop: a function of the model that runs data through it; not needed for weights alone.

    A pattern that switches on and names no quantiser is warned of. Where anything raises, ``forward_loop`` included,
    the model is as it was.

    Raises:
        NothingQuantizedError (ValueError, RuntimeError): where no quantiser is on in the end, though some entry asks.
        CalibrationError (RuntimeError): for an algorithm that gemmsim has not.
        DescriptorError (ValueError): for another form of ``config``.
    """
    if not (isinstance(config, Mapping) or hasattr(config, "keys")):
        asked = f"quantize: a config that is a {type(config).__name__}"
        raise DescriptorError(f"{asked}; allowed: a dict with 'quant_cfg'.\n  Use config.INT8_DEFAULT_CFG.")
    algorithm = config.get("algorithm")
    _steps(algorithm)
    quant_cfg = config.get("quant_cfg")
    wanted = any(entry["enable"] for entry in normalize_quant_cfg_list(quant_cfg))
    with unchanged_on_error(model):
        if not any(True for _ in quantizers_of(model)):
            replace_quant_module(model)
        unused = set_quantizer_by_cfg(model, quant_cfg)
        if wanted and not any(q.is_enabled for _, q in quantizers_of(model)):
            raise NothingQuantizedError(
                f"quantize: patterns {unused or 'of quant_cfg'} name no quantiser, or later ones switch them off; "
                "allowed: patterns of quantisers that the model has.\n  print_quant_summary lists them."
            )
        if unused:
            warnings.warn(f"quantize: patterns {unused} name no quantiser of the model", stacklevel=2)
        return calibrate(model, algorithm, forward_loop)


def _steps(algorithm: Any) -> list[tuple[str, dict[str, Any]]]:
    """(method, options) of each step. ``CalibrationError`` for an algorithm that there is not."""
    found = []
    for part in algorithm if isinstance(algorithm, (list, tuple)) else [algorithm]:
        options = asdict(part) if is_dataclass(part) and not isinstance(part, type) else part
        options = {"method": options} if isinstance(options, str) else options
        if options is None or (isinstance(options, Mapping) and options.get("method", "") is None):
            continue
        method = options.get("method") if isinstance(options, Mapping) else None
        if method not in _ALGORITHMS:
            allowed = f"{', '.join(map(repr, _ALGORITHMS))}, a dict with one as 'method', or None"
            asked = f"calibrate: algorithm={algorithm!r}"
            do = "gemmsim has no SmoothQuant, AWQ, SVDQuant, GPTQ; 'max' takes the same quant_cfg."
            raise CalibrationError(f"{asked}; allowed: {allowed}.\n  {do}")
        rest = {key: value for key, value in options.items() if key != "method"}
        known = _options(method)
        unknown = sorted(set(rest) - known)
        if unknown:
            asked = f"calibrate: method {method!r} with {', '.join(unknown)}"
            raise CalibrationError(f"{asked}; allowed: {', '.join(sorted(known)) or 'no options'}.\n  Leave it out.")
        found.append((method, rest))
    return found


def _options(method: str) -> set[str]:
    if method in ("percentile", "entropy"):
        return {"percentile", "stride", "start_bin", "distributed_sync"}
    return set(inspect.signature(_ALGORITHMS[method]).parameters) - {"model", "forward_loop"}


def calibrate(model: nn.Module, algorithm: Any = "max", forward_loop: ForwardLoop | None = None) -> nn.Module:
    """Give static quantisers their amax, all or, with an error, none; returns ``model``, in evaluation mode meanwhile.

    Args:
        algorithm: "max" or "mse", as ``model_calib`` has them; "percentile" or "entropy", searched in histograms;
            {"method": one of these, its options}; a list of them; None for nothing.
        forward_loop: a function of the model, or of nothing. Without one weights alone are calibrated.

    Raises:
        CalibrationError (RuntimeError): for an algorithm or option that there is not.
        CalibrationDataError (AssertionError): for NaN or infinity on the way.
    """
    steps = _steps(algorithm)
    loop = forward_loop
    if loop is not None and not inspect.signature(loop).parameters:
        asked: Callable[[], Any] = loop
        warnings.warn("a forward_loop without arguments; it should take the model", DeprecationWarning, stacklevel=2)

        def loop(model: nn.Module) -> Any:
            return asked()

    training = {module: module.training for module in model.modules()}
    try:
        with unchanged_on_error(model):
            model.eval()
            for method, options in steps:
                _ALGORITHMS[method](model, loop, **options)
    finally:
        for module, was in training.items():
            module.training = was
    return model


def disable_quantizer(model: nn.Module, wildcard_or_filter_func: Filter) -> None:
    """Switch off the quantisers that a wildcard or a function of their names chooses; descriptions stay."""
    set_quantizer_attribute(model, wildcard_or_filter_func, {"enable": False})


def enable_quantizer(model: nn.Module, wildcard_or_filter_func: Filter) -> None:
    """Switch on the quantisers that a wildcard or a function of their names chooses; descriptions stay."""
    set_quantizer_attribute(model, wildcard_or_filter_func, {"enable": True})


def print_quant_summary(model: nn.Module, output_dir: str | Path | None = None) -> None:
    """Print every quantiser with its name, and how many there are.

    ``output_dir``: write ``.quant_summary.txt`` there instead.
    """
    lines = [f"{name:80} {q}" for name, q in quantizers_of(model)]
    lines.append(f"{len(lines)} TensorQuantizers found in model")
    text = "\n".join(lines)
    if output_dir is None:
        print(text)
    else:
        (Path(output_dir) / ".quant_summary.txt").write_text(text + "\n", encoding="utf-8")


def postprocess_amax(model: nn.Module, key: str, post_process_fn: Callable[[Tensor], Any]) -> nn.Module:
    """Set the amax of each quantiser whose name fits the wildcard ``key`` and that has one to a function of it.

    Raises:
        AmaxShapeError (RuntimeError): for another shape.
    """
    if not isinstance(key, str):
        raise DescriptorError(f"postprocess_amax: key={key!r}; allowed: a wildcard.\n  Try '*input_quantizer'.")
    with unchanged_on_error(model):
        for name, q in quantizers_of(model):
            amax = getattr(q, "_amax", None)
            if amax is not None and fnmatch.fnmatch(name, key):
                with naming(name):
                    q.amax = post_process_fn(amax)
    return model


def fold_weight(model: nn.Module) -> None:
    """Put the quantised values of each weight into it, and switch its quantiser off; all or, with an error, none.

    Raises:
        AttributeError: for a quantiser without a weight beside it.
        ComputedWeightError (TypeError): for a weight that is no parameter, because a parametrisation or a hook computes
            it.
    """
    found = []
    for name, module in [(name, m) for name, m in model.named_modules() if isinstance(m, QuantModule)]:
        layer: Any = module
        with naming(name):
            found.append((layer, folded_weights(layer)))
    for module, weights in found:
        put_folded(module, weights)


@contextmanager
@torch.no_grad()
def temporarily_fold_weights(model: nn.Module) -> Iterator[None]:
    """``fold_weight`` inside, whose errors these are; weights, quantisers and amaxes as before afterwards."""
    weights, quantizers = [], []
    for module in model.modules():
        if isinstance(module, QuantModule):
            for name, part in module.named_children():
                weight = module._parameters.get(name.removesuffix("_quantizer"))
                if name.endswith("weight_quantizer") and weight is not None:
                    weights.append((weight, weight.detach().clone()))
                    quantizers += [(q, q.is_enabled, dict(q._buffers)) for _, q in quantizers_of(part)]
    fold_weight(model)
    try:
        yield
    finally:
        with torch.no_grad():
            for weight, values in weights:
                weight.copy_(values)
        for q, enabled, buffers in quantizers:
            q._disabled = not enabled
            for name, value in buffers.items():
                q.register_buffer(name, value)
