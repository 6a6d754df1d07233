"""``modelopt.torch.quantization.model_quant``: functions that quantise, calibrate, print and fold models."""

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
    """The configuration switches quantisers on, but in the model none is on afterwards.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> model = torch.nn.Sequential(torch.nn.ReLU())  # no layer that has quantisers
        >>> try:
        ...     mtq.quantize(model, mtq.INT8_WEIGHT_ONLY_CFG)
        ... except mtq.model_quant.NothingQuantizedError as error:
        ...     print(isinstance(error, ValueError))
        True
    """


def quantize(model: nn.Module, config: Any, forward_loop: ForwardLoop | None = None) -> nn.Module:
    """Give ``model`` quantisers as ``config["quant_cfg"]`` says, calibrated by ``config["algorithm"]``, in place.

    Modules of registered classes are replaced by quantised ones. A model that has quantisers keeps them. A pattern that
    switches quantisers on and matches none gives a warning. After an error, including one in ``forward_loop``, the
    model is unchanged.

    Args:
        config: {"quant_cfg": as ``set_quantizer_by_cfg``, "algorithm": as ``calibrate``}, or a ``QuantizeConfig``.
        forward_loop: a function of the model that runs data through it; not needed if only weights are quantised.

    Raises:
        NothingQuantizedError (ValueError, RuntimeError): where no quantiser is on in the end, but an entry says so.
        CalibrationError (RuntimeError): for an algorithm that gemmsim does not have.
        DescriptorError (ValueError): for another form of ``config``.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 2))
        >>> mtq.quantize(model, mtq.INT8_DEFAULT_CFG, lambda m: m(torch.full((1, 4), 3.0)))[0].input_quantizer.amax
        tensor(3.)
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
    """Give static quantisers their amax: all of them or, after an error, none. Returns ``model``.

    The model is in evaluation mode meanwhile.

    Args:
        algorithm: "max" or "mse", as in ``model_calib``; "percentile" or "entropy", searched in histograms;
            {"method": one of these, its options}; a list of them; None for nothing.
        forward_loop: a function of the model, or without arguments. If it is missing, only weights are calibrated.

    Raises:
        CalibrationError (RuntimeError): for an unknown algorithm or option.
        CalibrationDataError (AssertionError): for NaN or infinity in the data.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> layer = mtq.nn.QuantLinear(4, 2)
        >>> mtq.calibrate(layer, "max", lambda model: model(torch.full((1, 4), 3.0))).input_quantizer.amax
        tensor(3.)
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
    """Switch off the quantisers whose names a wildcard or a function selects; their descriptions stay.

    Example:
        >>> layer = gs.compat.modelopt.nn.QuantLinear(4, 2)
        >>> gs.compat.modelopt.disable_quantizer(layer, "weight_quantizer")
        >>> layer.weight_quantizer.is_enabled, layer.input_quantizer.is_enabled
        (False, True)
    """
    set_quantizer_attribute(model, wildcard_or_filter_func, {"enable": False})


def enable_quantizer(model: nn.Module, wildcard_or_filter_func: Filter) -> None:
    """Switch on the quantisers whose names a wildcard or a function selects; their descriptions stay.

    Example:
        >>> layer = gs.compat.modelopt.nn.QuantLinear(4, 2)
        >>> gs.compat.modelopt.enable_quantizer(layer, lambda name: name.startswith("output"))
        >>> layer.output_quantizer.is_enabled
        True
    """
    set_quantizer_attribute(model, wildcard_or_filter_func, {"enable": True})


def print_quant_summary(model: nn.Module, output_dir: str | Path | None = None) -> None:
    """Print every quantiser with its name, and their number.

    ``output_dir``: write ``.quant_summary.txt`` there instead.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.print_quant_summary(mtq.nn.QuantLinear(4, 2))
        input_quantizer ... TensorQuantizer(8 bit axis=None amax=dynamic fake quant)
        weight_quantizer ... TensorQuantizer(8 bit axis=0 amax=dynamic fake quant)
        output_quantizer ... TensorQuantizer(disabled)
        3 TensorQuantizers found in model
    """
    lines = [f"{name:80} {q}" for name, q in quantizers_of(model)]
    lines.append(f"{len(lines)} TensorQuantizers found in model")
    text = "\n".join(lines)
    if output_dir is None:
        print(text)
    else:
        (Path(output_dir) / ".quant_summary.txt").write_text(text + "\n", encoding="utf-8")


def postprocess_amax(model: nn.Module, key: str, post_process_fn: Callable[[Tensor], Any]) -> nn.Module:
    """Replace the amax of each quantiser whose name matches the wildcard ``key`` by a function of it, where it has one.

    Raises:
        AmaxShapeError (RuntimeError): for another shape.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> layer = mtq.calibrate(mtq.nn.QuantLinear(4, 2))
        >>> mtq.postprocess_amax(layer, "*weight_quantizer", torch.ones_like).weight_quantizer.amax.flatten()
        tensor([1., 1.])
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
    """Replace each weight by its quantised values and switch its quantiser off: all of them or, after an error, none.

    Raises:
        AttributeError: for a quantiser without a weight next to it.
        ComputedWeightError (TypeError): for a weight that is not a parameter, because a parametrisation or a hook
            computes it.

    Example:
        >>> layer = gs.compat.modelopt.calibrate(gs.compat.modelopt.nn.QuantLinear(4, 2))
        >>> gs.compat.modelopt.fold_weight(layer)
        >>> layer.weight_quantizer.is_enabled
        False
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
    """``fold_weight`` inside, with its errors; on exit weights, quantisers and amaxes are as before.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> layer = mtq.calibrate(mtq.nn.QuantLinear(4, 2))
        >>> with mtq.model_quant.temporarily_fold_weights(layer):
        ...     layer.weight_quantizer.is_enabled
        False
    """
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
