"""Whole models: quantisers by name pattern, and calibration."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gemmsim._keywords import takes_spec
from gemmsim.nn.conversion_report import Conversion
from gemmsim.nn.transformer_patches import call_children
from gemmsim.nn.undoing import naming, unchanged_on_error
from gemmsim.nn.weights import own_forward

from .config import config_of
from .errors import CalibrationDataError, CalibrationError, DescriptorError, message
from .histogram import HistogramCalibrator
from .integer_products import product_formats
from .layers import QUANTISED, QUANTIZERS, QuantLayer, convert, quantised_class
from .quantizer import TensorQuantizer
from .used_weights import taking_weights

__all__ = ["calibrate", "quantize_"]

Config = Mapping[str, Any]
#: What holds nothing to collect.
_NO_DATA = (str, bytes, int, float, complex, type(None))


@takes_spec("accumulator")
def quantize_(
    model: nn.Module,
    config: Config,
    *,
    spec: str | Mapping[str, str | None] | None = None,
    report: Callable[[Conversion], Any] | None = None,
) -> nn.Module:
    """Give layers of ``model`` quantisers as ``config`` says, in place; return ``model``.

    Args:
        model: its ``nn.Linear``, ``nn.Conv1d/2d/3d`` and ``nn.ConvTranspose1d/2d/3d`` layers (and subclasses in
            torch.nn that compute the same, as ``nn.MultiheadAttention.out_proj``) get ``input_quantizer``,
            ``weight_quantizer`` and ``output_quantizer`` if a pattern enables one of them.
        config: {pattern: description}; later entries take precedence. Patterns are shell wildcards over quantiser
            names such as "encoder.0.fc.weight_quantizer". "default" is for those that no other pattern names;
            {"nn.Linear": {pattern: description}} is for one class. Descriptions are ``ScaledQuantDescriptor``,
            ``QuantizerAttributeConfig``, or a dict of the latter's fields; {"enable": False}, False or None switch
            off. ModelOpt's {"quant_cfg": config, ...} is accepted, too.
        spec: the accumulator of integer products, as in ``int_matmul``; or {pattern over layer names: spec}. None:
            PyTorch's own products of the quantised values. The former keyword ``accumulator`` is deprecated.
        report: called with the ``gemmsim.nn.Conversion``, the table of converted and remaining layers. Without it the
            table is logged to "gemmsim", as a warning if layers remain that a pattern enables.

    State dict keys of the layers do not change; the quantisers add theirs once they have an amax. A second call
    changes the description of quantisers that a pattern names, and leaves the others. Layers keep their hooks: a
    weight that a hook computes (``weight_norm``, ``spectral_norm``, ``prune``) is quantised as each call computes it.
    Layers with parametrised weights are left, and so are those with an instance attribute ``forward``. If anything
    raises, the model is as it was.

    Raises:
        DescriptorError: for patterns that enable something but name no quantiser, unknown descriptions, and
            accumulator patterns that name no layer.
        SpecError: for an unknown accumulator.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2))
        >>> config = {"*weight_quantizer": {"num_bits": 4, "axis": 0}, "2.*": False}
        >>> [type(layer).__name__ for layer in gs.tensor_quant.quantize_(model, config)]
        ['QuantLinear', 'ReLU', 'Linear']
    """
    patterns = config.get("quant_cfg", config) if isinstance(config, Mapping) else config
    if not isinstance(patterns, Mapping) or not all(isinstance(key, str) for key in patterns):
        kind = "with keys that are no text" if isinstance(patterns, Mapping) else f"that is a {type(patterns).__name__}"
        asked = f"quantize_: a config {kind}"
        raise DescriptorError(message(asked, "a dict {pattern: description}", "Use {'*weight_quantizer': {...}}."))
    rules = _rules(patterns)
    with unchanged_on_error(model):
        converted = _convert(model, rules, spec)
        call_children(model)
    Conversion.of("quantize_", model, converted, lambda *row: _why(rules, *row)).tell(report)
    return model


def _convert(
    model: nn.Module, rules: list[tuple[str, str, Any, bool]], accumulator: str | Mapping[str, str | None] | None
) -> dict[str, str]:
    """Classes of the layers that got quantisers, before, by name."""
    used: set[int] = set()
    converted: dict[str, str] = {}
    _check_accumulator(model, accumulator)
    for name, layer in list(model.named_modules()):
        plain = quantised_class(layer) is not None
        if not (plain or isinstance(layer, QuantLayer)):
            continue
        found = {q: _match(rules, f"{name}.{q}".lstrip("."), type(layer).__mro__, used) for q in QUANTIZERS}
        if plain:
            if not any(what is not None and config_of(what[0]).enable for what in found.values()):
                continue
            converted[name] = type(layer).__name__
            convert(layer)
        with naming(name):
            for q, what in found.items():
                if what is not None:
                    setattr(layer, q, _quantizer(what[0], getattr(layer, q)))
        _set_accumulator(layer, name, accumulator)
    unused = [rules[i][1] for i in range(len(rules)) if i not in used and rules[i][3]]
    if unused:
        asked = f"quantize_: patterns {unused} name no quantiser"
        do = "Names end in .input_quantizer, .weight_quantizer or .output_quantizer."
        raise DescriptorError(message(asked, "patterns of layers that the model has", do))
    return converted


def _why(rules: list[tuple[str, str, Any, bool]], name: str, layer: nn.Module) -> tuple[str, bool]:
    """Why a layer with products was left, and whether the patterns say so."""
    kinds = tuple(kind for kind in QUANTISED if isinstance(layer, kind))
    found = [_match(rules, f"{name}.{q}".lstrip("."), type(layer).__mro__, set()) for q in QUANTIZERS]
    asked = any(what is not None and config_of(what[0]).enable for what in found)
    if quantised_class(layer) is not None or not asked:
        return "no pattern enables a quantiser", True
    if kinds and (own := own_forward(layer)):
        return own, False
    return ("a subclass of other packages, or parametrised" if kinds else "no quantised layer of this kind"), False


def _rules(patterns: Config, owner: str = "") -> list[tuple[str, str, Any, bool]]:
    """(class name or "", pattern, description, whether it must name something), the default first, then in order."""
    rules: list[tuple[str, str, Any, bool]] = []
    for key, what in sorted(patterns.items(), key=lambda item: item[0] != "default"):
        if key.startswith("nn.") and isinstance(what, Mapping):
            rules += _rules(what, key[3:])
            continue
        what = {"enable": False} if what in (None, False) else what
        enables = config_of(what).enable
        rules.append((owner, "*" if key == "default" else key, what, enables and key != "default"))
    return rules


def _match(
    rules: list[tuple[str, str, Any, bool]], name: str, classes: tuple[type, ...], used: set[int]
) -> tuple[Any] | None:
    """The last description whose pattern is the quantiser's, in a tuple."""
    found = None
    for i, (owner, pattern, what, _) in enumerate(rules):
        if fnmatch.fnmatchcase(name, pattern) and (not owner or owner in {c.__name__ for c in classes}):
            used.add(i)
            found = (what,)
    return found


def _quantizer(what: Any, old: TensorQuantizer) -> TensorQuantizer:
    new = TensorQuantizer(what)
    new._if_quant, new._if_calib = old._if_quant, old._if_calib and new._calibrator is not None
    new.train(old.training)
    if old.pre_quant_scale is not None:
        new.pre_quant_scale = old.pre_quant_scale
    if old.bias is not None and new.config.bias == old.config.bias:
        new.bias = old.bias
    amax = old.amax
    if amax is not None and new.config.axis == old.config.axis and new.config.block_sizes == old.config.block_sizes:
        new.amax = amax
    return new


def _check_accumulator(model: nn.Module, accumulator: str | Mapping[str, str | None] | None) -> None:
    """``SpecError`` for what is no accumulator, ``DescriptorError`` for a pattern that names no layer."""
    named = accumulator if isinstance(accumulator, Mapping) else {"*": accumulator}
    layers = [name for name, m in model.named_modules() if quantised_class(m) is not None or isinstance(m, QuantLayer)]
    for pattern, value in named.items():
        if value is not None:
            product_formats(value)
        if isinstance(accumulator, Mapping) and not fnmatch.filter(layers, pattern):
            asked = f"quantize_: accumulator pattern {pattern!r} names no layer"
            raise DescriptorError(message(asked, f"patterns of {', '.join(layers)}", "Use '*' for all."))


def _set_accumulator(layer: Any, name: str, accumulator: str | Mapping[str, str | None] | None) -> None:
    if isinstance(accumulator, Mapping):
        for pattern, value in accumulator.items():
            if fnmatch.fnmatchcase(name, pattern):
                layer.accumulator = value
    elif accumulator is not None:
        layer.accumulator = accumulator


def calibrate(
    model: nn.Module,
    batches: Iterable[Any] | Callable[[nn.Module], Any],
    method: str = "max",
    *,
    progress: Callable[[int, int | None], None] | None = None,
    unreached: str = "error",
    **options: Any,
) -> nn.Module:
    """Run ``batches`` through ``model``, give every static quantiser its amax, and return ``model``.

    Args:
        batches: tensors, tuples of arguments or dicts of keyword arguments; or a function that runs the model.
        method: "max", or "percentile", "mse", "entropy" with histograms (amaxes per axis or block remain maxima).
        progress: called after each batch with the number of batches done and their total (None if unknown).
        unreached: what happens to quantisers that no batch reached, such as those of experts that no token chose:
            "error", or "keep" their present amax, if any.
        options: options of ``HistogramCalibrator.compute_amax``: percentile, stride, start_bin.

    During calibration, quantisers collect and do not quantise, and there are no gradients. Weights are collected as
    their layer's calls use them, once while they stay the same, no matter what sets them: hooks, parametrisations, or
    the code around the layer. Weights of layers that no batch reaches are collected as the next call would compute
    them, except for plain attributes, which only a call shows. The model's training mode does not change. Maxima do
    not depend on how the data is divided into batches. Neither do histograms, because calibration uses
    ``HistogramCalibrator(grow_method="double")``.

    Raises:
        CalibrationError (RuntimeError): for another method or option, for something that is not batches, for a model
            without quantisers, and for quantisers without data, with their names; then no amax has changed.
        CalibrationDataError (AssertionError): for NaN or infinity in the collected tensors.

    Example:
        >>> model = gs.tensor_quant.quantize_(torch.nn.Linear(2, 2), {"*input_quantizer": {}})
        >>> gs.tensor_quant.calibrate(model, [torch.tensor([[1.0, -3.0]]), torch.ones(4, 2)]).input_quantizer.amax
        tensor(3.)
    """
    if method not in ("max", "percentile", "mse", "entropy"):
        asked = f"calibrate: method={method!r}"
        raise CalibrationError(message(asked, "'max', 'percentile', 'mse', 'entropy'", "Choose one."))
    if unreached not in ("error", "keep"):
        asked = f"calibrate: unreached={unreached!r}"
        raise CalibrationError(message(asked, "'error', 'keep'", "Choose one."))
    if options and method == "max":
        asked = f"calibrate: {', '.join(options)} with method='max'"
        raise CalibrationError(
            message(asked, "no options", "Choose 'percentile', 'mse' or 'entropy', or leave them out.")
        )
    unknown = set(options) - {"percentile", "stride", "start_bin"}
    if unknown:
        asked = f"calibrate: options {sorted(unknown)}"
        raise CalibrationError(message(asked, "percentile, stride, start_bin", "Leave them out."))
    if not (callable(batches) or isinstance(batches, Iterable)):
        asked = f"calibrate: batches that are a {type(batches).__name__}"
        raise CalibrationError(message(asked, "tensors, tuples or dicts to iterate, or a function", "Give a list."))
    if not any(isinstance(m, TensorQuantizer) for m in model.modules()):
        asked = "calibrate: a model without quantisers"
        raise CalibrationError(message(asked, "a model with TensorQuantizers", "Call quantize_ first."))
    with unchanged_on_error(model):
        found = _collect(model, batches, method, progress)
        missed = [name for name, q in model.named_modules() if any(q is one and not _saw_data(one) for one in found)]
        if missed and unreached == "error":
            asked = f"calibrate: nothing was collected by {_listed(missed)}"
            do = "Give batches that reach them, or unreached='keep' to go on with the others."
            raise CalibrationError(message(asked, "quantisers that a batch reaches", do))
        names = {q: name for name, q in model.named_modules()}
        for q in found:
            if _saw_data(q):
                with naming(names[q]):
                    _load(q, method, options)
    return model


def _collect(
    model: nn.Module, batches: Any, method: str, progress: Callable[[int, int | None], None] | None
) -> list[TensorQuantizer]:
    """The static quantisers of ``model``, after they have taken in batches, and weights as the calls use them."""
    quantizers = [q for q in model.modules() if isinstance(q, TensorQuantizer)]
    weights: dict[str, Any] = {name: m for name, m in model.named_modules() if isinstance(m, QuantLayer)}
    found = [q for q in quantizers if q.is_enabled and q._calibrator is not None]
    switches = [(q, q._if_quant, q._if_calib) for q in quantizers]
    try:
        for q in found:
            _prepare(q, method)
        for q in quantizers:
            q.disable_quant()
        with torch.no_grad():
            for q in found:
                q.enable_calib()
            with taking_weights(weights, {id(q) for q in found}):
                try:
                    _run(model, batches, progress)
                except CalibrationDataError as error:
                    with naming(_where(model, error)):
                        raise
    finally:
        for q, quant, calib in switches:
            q._if_quant, q._if_calib = quant, calib
    return found


def _where(model: nn.Module, error: Exception) -> str:
    """Path of the quantiser in which ``error`` was raised."""
    paths = {q: name for name, q in model.named_modules() if isinstance(q, TensorQuantizer)}
    trace = error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if isinstance(owner, TensorQuantizer) and owner in paths:
            return paths[owner]
        trace = trace.tb_next
    return "a quantiser"


def _saw_data(q: TensorQuantizer) -> bool:
    calibrator = q._calibrator
    if isinstance(calibrator, HistogramCalibrator):
        return calibrator.calib_hist is not None
    return calibrator.compute_amax() is not None


def _listed(names: list[str], most: int = 8) -> str:
    """The first names and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _prepare(q: TensorQuantizer, method: str) -> None:
    """An empty calibrator of the method, where it applies."""
    per_tensor = q.axis is None and q.block_sizes is None
    own = q.config.calibrator not in ("max", "histogram")
    if method != "max" and per_tensor and not own:
        q._calibrator = HistogramCalibrator(q.num_bits, None, q.unsigned, grow_method="double")
    q._calibrator.reset()
    if q._bias_calibrator is not None:
        q.reset_bias()


def _run(model: nn.Module, batches: Any, progress: Callable[[int, int | None], None] | None) -> None:
    if callable(batches) and not isinstance(batches, Iterable):
        batches(model)
        return
    total = len(batches) if hasattr(batches, "__len__") and not isinstance(batches, Tensor) else None
    for done, batch in enumerate([batches] if isinstance(batches, Tensor) else batches, 1):
        try:
            if isinstance(batch, Mapping):
                model(**batch)
            elif isinstance(batch, (tuple, list)):
                model(*batch)
            else:
                model(batch)
        except (AttributeError, TypeError) as error:
            _check_batch(batch, done, error)
            raise
        if progress is not None:
            progress(done, total)


def _check_batch(batch: Any, number: int, error: Exception) -> None:
    """``CalibrationError`` for numbers, text, None and numpy arrays in place of a batch, or of all of its arguments, on
    which the model failed with ``error``."""
    inside = list(batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (tuple, list)) else ())
    named = not isinstance(batch, Mapping) or all(isinstance(key, str) for key in batch)
    if named and any(not (isinstance(one, _NO_DATA) or type(one).__module__ == "numpy") for one in inside or (batch,)):
        return
    kinds = ", ".join(dict.fromkeys(type(one).__name__ for one in inside))
    asked = f"calibrate: batch {number} is a {type(batch).__name__}{f' of {kinds}' * bool(kinds)} ({error})"
    do = "Give tensors: [x, ...] for a model of one argument."
    allowed = "a tensor, a tuple of arguments or a dict of keyword arguments"
    raise CalibrationError(message(asked, allowed, do)) from error


def _load(q: TensorQuantizer, method: str, options: dict[str, Any]) -> None:
    if q._bias_calibrator is not None:
        q.load_calib_bias()
    if getattr(q, "_amax", None) is not None:
        del q._amax
    if isinstance(q._calibrator, HistogramCalibrator):
        q.load_calib_amax("percentile" if method == "max" else method, **options)
    else:
        q.load_calib_amax()
    if q.config.learn_amax:
        q.init_learn_amax()
