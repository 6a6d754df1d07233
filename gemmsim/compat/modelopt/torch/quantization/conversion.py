"""``modelopt.torch.quantization.conversion``: quantisers put into models, and set by name."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from torch import nn

from gemmsim.nn import Conversion, call_children
from gemmsim.nn.undoing import naming, unchanged_on_error
from gemmsim.nn.weights import own_forward
from gemmsim.tensor_quant import DescriptorError, QuantizerAttributeConfig, TensorQuantizer

from .config import normalize_quant_cfg_list
from .nn.modules.quant_module import QuantModuleRegistry
from .nn.modules.tensor_quantizer import SequentialQuantizer, quantizers_of

__all__ = [
    "preserve_quantizer_attributes_context",
    "register",
    "replace_quant_module",
    "set_quantizer_attribute",
    "set_quantizer_attributes_full",
    "set_quantizer_attributes_partial",
    "set_quantizer_by_cfg",
    "set_quantizer_by_cfg_context",
    "unregister",
]

#: A shell wildcard over quantisers' names, or a function of a name.
Filter: TypeAlias = str | Callable[[str], bool]


def register(original_cls: type[nn.Module], quantized_cls: type) -> None:
    """Let ``quantize`` replace ``original_cls`` by ``quantized_cls``, whose ``_setup()`` makes the quantisers.

    ``quantized_cls``: a subclass of the original one, or of ``nn.QuantModule``. Its ``forward`` calls the quantisers.

    Raises:
        DescriptorError (ValueError): for a class without ``_setup``.

    Example:
        >>> class DoubledLinear(torch.nn.Linear):
        ...     def forward(self, x):
        ...         return 2 * super().forward(x)
        >>> gs.compat.modelopt.register(DoubledLinear, gs.compat.modelopt.nn.QuantLinearConvBase)
        >>> gs.compat.modelopt.unregister(DoubledLinear)
    """
    if not callable(getattr(quantized_cls, "_setup", None)):
        raise DescriptorError(
            f"register: {quantized_cls.__name__}; allowed: a class with a method _setup.\n"
            "  Make the quantisers there: self.input_quantizer = TensorQuantizer()."
        )
    QuantModuleRegistry.register({original_cls: original_cls.__name__})(quantized_cls)


def unregister(original_cls: type[nn.Module]) -> None:
    """Undo ``register``.

    Raises:
        KeyError: for a class that is not registered.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.unregister(torch.nn.Embedding)
        Traceback (most recent call last):
            ...
        KeyError: ...unregister: Embedding; allowed: registered classes: ...
    """
    QuantModuleRegistry.unregister(original_cls)


def replace_quant_module(model: nn.Module) -> nn.Module:
    """Replace every module of a registered class, including ``model`` itself, by its quantised class, in place.

    Quantisers of inputs and weights have 8 bits and are on, those of outputs are off, until a configuration changes
    them. After an error the model is unchanged. Modules with a ``forward`` set on the object are left. A log message
    says what was converted and what was left to PyTorch (``gemmsim.nn.Conversion``).

    Raises:
        DescriptorError (ValueError): for a model that has quantisers already.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> model = mtq.conversion.replace_quant_module(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU()))
        >>> [type(layer).__name__ for layer in model]
        ['QuantLinear', 'ReLU']
    """
    if any(True for _ in quantizers_of(model)):
        raise DescriptorError(
            "replace_quant_module: a model with quantisers; allowed: one without.\n  Use set_quantizer_by_cfg."
        )
    with Conversion.watched("modelopt.replace_quant_module", model, _why):
        for name, module in list(model.named_modules()):
            if module in QuantModuleRegistry:
                with naming(name):
                    QuantModuleRegistry.convert(module)
        call_children(model)
    return model


def _why(name: str, module: nn.Module) -> tuple[str, bool]:
    """Why a layer was left, and whether that was asked for."""
    own = own_forward(module) if type(module) in QuantModuleRegistry else ""
    return (own, False) if own else ("this converter has no such layer", True)


def _matching(model: nn.Module, chosen: Filter, parent: Any) -> list[tuple[str, Any]]:
    """Quantisers that the filter names, those inside a ``SequentialQuantizer`` too."""
    if not (isinstance(chosen, str) or callable(chosen)):
        kind = type(chosen).__name__
        raise NotImplementedError(f"a filter that is a {kind}; allowed: a wildcard or a function.\n  Try '*'.")
    found: list[tuple[str, Any]] = []
    for name, module in model.named_modules():
        if not isinstance(module, (TensorQuantizer, SequentialQuantizer)):
            continue
        hit = fnmatch.fnmatch(name, chosen) if isinstance(chosen, str) else chosen(name)
        if hit and (parent is None or isinstance(model.get_submodule(name.rpartition(".")[0]), parent)):
            found.append((name, module))
    return found


def _sequence(model: nn.Module, name: str, length: int) -> SequentialQuantizer:
    """The quantiser ``name`` exchanged for a sequence of new ones."""
    path, _, own = name.rpartition(".")
    made = SequentialQuantizer(*(TensorQuantizer() for _ in range(length)))
    setattr(model.get_submodule(path), own, made)
    return made


def set_quantizer_attribute(
    quant_model: nn.Module, wildcard_or_filter_func: Filter, attribute: Any, parent_class: Any = None
) -> None:
    """Set attributes of the quantisers that a wildcard or function selects: of all of them or, after an error, of none.

    Args:
        attribute: a ``QuantizerAttributeConfig``, which replaces the description; a dict, of which only the fields in
            it change; a list of these, which makes the quantiser a ``SequentialQuantizer``.
        parent_class: of the module that the quantiser belongs to.

    Raises:
        NotImplementedError: for a filter of another kind. DescriptorError (ValueError): for invalid attributes.

    Example:
        >>> layer = gs.compat.modelopt.nn.QuantLinear(4, 2)
        >>> gs.compat.modelopt.set_quantizer_attribute(layer, "*weight_quantizer", {"num_bits": 4})
        >>> layer.weight_quantizer.num_bits, layer.weight_quantizer.axis
        (4, 0)
    """
    with unchanged_on_error(quant_model):
        for name, module in _matching(quant_model, wildcard_or_filter_func, parent_class):
            with naming(name):
                if isinstance(attribute, (list, tuple)) and not isinstance(module, SequentialQuantizer):
                    module = _sequence(quant_model, name, len(attribute))
                module.set_from_attribute_config(attribute)


def set_quantizer_attributes_full(
    quant_model: nn.Module, wildcard_or_filter_func: Filter, attributes: Any, parent_class: type | None = None
) -> None:
    """``set_quantizer_attribute`` with whole descriptions.

    Raises:
        DescriptorError (ValueError): for anything except ``QuantizerAttributeConfig`` or a list of them.

    Example:
        >>> layer, full = gs.compat.modelopt.nn.QuantLinear(4, 2), gs.compat.modelopt.set_quantizer_attributes_full
        >>> full(layer, "*weight_quantizer", gs.compat.modelopt.config.QuantizerAttributeConfig(num_bits=4))
        >>> layer.weight_quantizer.num_bits, layer.weight_quantizer.axis
        (4, None)
    """
    parts = attributes if isinstance(attributes, (list, tuple)) else [attributes]
    _check_kinds("set_quantizer_attributes_full", parts, QuantizerAttributeConfig)
    set_quantizer_attribute(quant_model, wildcard_or_filter_func, attributes, parent_class)


def set_quantizer_attributes_partial(
    quant_model: nn.Module, wildcard_or_filter_func: Filter, partial_attributes: Any, parent_class: type | None = None
) -> None:
    """``set_quantizer_attribute`` with dicts; a list is for quantisers that are sequences already.

    Raises:
        DescriptorError (ValueError): for anything except a dict or a list of dicts, and where the wrong one is given.

    Example:
        >>> layer = gs.compat.modelopt.nn.QuantLinear(4, 2)
        >>> gs.compat.modelopt.set_quantizer_attributes_partial(layer, "*weight_quantizer", {"num_bits": 4})
        >>> layer.weight_quantizer.num_bits, layer.weight_quantizer.axis
        (4, 0)
    """
    several = isinstance(partial_attributes, (list, tuple))
    _check_kinds("set_quantizer_attributes_partial", partial_attributes if several else [partial_attributes], Mapping)
    with unchanged_on_error(quant_model):
        for name, module in _matching(quant_model, wildcard_or_filter_func, parent_class):
            if several and not isinstance(module, SequentialQuantizer):
                asked = f"set_quantizer_attributes_partial: a list for {name}, a {type(module).__name__}"
                raise DescriptorError(f"{asked}; allowed: a dict there.\n  Use set_quantizer_attributes_full.")
            with naming(name):
                module.set_from_attribute_config(partial_attributes)


def _check_kinds(owner: str, parts: Any, kind: type) -> None:
    others = sorted({type(part).__name__ for part in parts if not isinstance(part, kind)})
    if others:
        allowed = f"{kind.__name__}, or a list of them"
        raise DescriptorError(f"{owner}: {', '.join(others)}; allowed: {allowed}.\n  Give one of these.")


def set_quantizer_by_cfg(quant_model: nn.Module, quant_cfg: Any) -> list[Filter]:
    """Set the quantisers of ``quant_model`` as ``quant_cfg`` says. Later entries override earlier ones.

    After an error all quantisers are as before.

    Args:
        quant_cfg: as ``normalize_quant_cfg_list``. Attributes replace the description, with defaults where left out;
            "enable" alone only switches. "default" is for all and comes first; {"nn.Linear": {pattern: attributes}}
            and "parent_class" are for the quantisers of modules of that class.

    Returns:
        The patterns that switch on and match no quantiser.

    Raises:
        DescriptorError (ValueError): for another form. KeyError: for a class without a quantised one.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> layer, cfg = mtq.nn.QuantLinear(4, 2), {"*weight_quantizer": {"num_bits": 4}, "*router*": {"num_bits": 8}}
        >>> mtq.set_quantizer_by_cfg(layer, cfg), layer.weight_quantizer.num_bits
        (['*router*'], 4)
    """
    unused: list[Filter] = []
    with unchanged_on_error(quant_model):
        for entry in normalize_quant_cfg_list(quant_cfg):
            chosen, what, enable = entry["quantizer_name"], entry["cfg"], entry["enable"]
            parent = entry["parent_class"]
            owner = QuantModuleRegistry.owner(parent) if isinstance(parent, str) else parent
            if enable and not _matching(quant_model, chosen, owner):
                unused.append(chosen)
            if what is None:
                what = {"enable": enable}
            elif isinstance(what, (list, tuple)):
                what = [_whole(part, enable) for part in what]
            else:
                what = _whole(what, enable)
            set_quantizer_attribute(quant_model, chosen, what, owner)
    return unused


def _whole(what: Any, enable: bool) -> Any:
    return QuantizerAttributeConfig.from_dict({"enable": enable, **what}) if isinstance(what, Mapping) else what


@contextmanager
def preserve_quantizer_attributes_context(quant_model: nn.Module) -> Iterator[None]:
    """On exit every quantiser gets back the description and the switches that it had before. Amaxes stay as they are.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> layer = mtq.nn.QuantLinear(4, 2)
        >>> with mtq.conversion.preserve_quantizer_attributes_context(layer):
        ...     mtq.disable_quantizer(layer, "*")  # until the block ends
    """
    kept = [(q, q.config, q.is_enabled, q._if_quant, q._if_calib, q._calibrator) for _, q in quantizers_of(quant_model)]
    try:
        yield
    finally:
        for q, config, enabled, quant, calib, calibrator in kept:
            q.set_from_attribute_config(config)
            q._disabled, q._if_quant, q._if_calib, q._calibrator = not enabled, quant, calib, calibrator


@contextmanager
def set_quantizer_by_cfg_context(quant_model: nn.Module, quant_cfg: Any) -> Iterator[None]:
    """``set_quantizer_by_cfg`` inside; on exit, and after an error, the previous descriptions return.

    Raises:
        DescriptorError (ValueError): for lists of descriptions, which make other modules of quantisers.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> layer = mtq.calibrate(mtq.nn.QuantLinear(4, 2))
        >>> with mtq.set_quantizer_by_cfg_context(layer, {"*": {"enable": False}}):
        ...     layer.weight_quantizer.is_enabled
        False
    """
    if any(isinstance(entry["cfg"], (list, tuple)) for entry in normalize_quant_cfg_list(quant_cfg)):
        raise DescriptorError(
            "set_quantizer_by_cfg_context: a list of descriptions; allowed: one for each pattern.\n"
            "  Use set_quantizer_by_cfg."
        )
    with preserve_quantizer_attributes_context(quant_model):
        set_quantizer_by_cfg(quant_model, quant_cfg)
        yield
