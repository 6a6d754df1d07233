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
    """Let ``quantize`` exchange ``original_cls`` for ``quantized_cls``, whose ``_setup()`` makes the quantisers.

    ``quantized_cls``: a subclass of the original one, or of ``nn.QuantModule``. Its ``forward`` calls the quantisers.

    Raises:
        DescriptorError (ValueError): for a class without ``_setup``.
    """
    if not callable(getattr(quantized_cls, "_setup", None)):
        raise DescriptorError(
            f"register: {quantized_cls.__name__}; allowed: a class with a method _setup.\n"
            "  Make the quantisers there: self.input_quantizer = TensorQuantizer()."
        )
    QuantModuleRegistry.register({original_cls: original_cls.__name__})(quantized_cls)


def unregister(original_cls: type[nn.Module]) -> None:
    """Undo ``register``. ``KeyError`` for a class that is not registered."""
    QuantModuleRegistry.unregister(original_cls)


def replace_quant_module(model: nn.Module) -> nn.Module:
    """Exchange every module of a registered class, ``model`` itself too, for its quantised class, in place.

    Quantisers of inputs and weights are of 8 bits and on, those of outputs off, until a configuration says otherwise.
    Where anything raises, the model is as it was. Modules whose ``forward`` is an attribute of their own are left. What
    was converted and what was left to PyTorch is logged (``gemmsim.nn.Conversion``).

    Raises:
        DescriptorError (ValueError): for a model that has quantisers already.
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
    """Set attributes of the quantisers that a wildcard or function names, of all of them or, with an error, of none.

    Args:
        attribute: a ``QuantizerAttributeConfig``, which replaces the description; a dict, of which only the fields in
            it change; a list of these, which makes the quantiser a ``SequentialQuantizer``.
        parent_class: of the module that the quantiser belongs to.

    Raises:
        NotImplementedError: for a filter that is neither. DescriptorError (ValueError): for attributes that are none.
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
        DescriptorError (ValueError): for anything but ``QuantizerAttributeConfig`` or a list of them.
    """
    parts = attributes if isinstance(attributes, (list, tuple)) else [attributes]
    _check_kinds("set_quantizer_attributes_full", parts, QuantizerAttributeConfig)
    set_quantizer_attribute(quant_model, wildcard_or_filter_func, attributes, parent_class)


def set_quantizer_attributes_partial(
    quant_model: nn.Module, wildcard_or_filter_func: Filter, partial_attributes: Any, parent_class: type | None = None
) -> None:
    """``set_quantizer_attribute`` with dicts; a list is for quantisers that are sequences already.

    Raises:
        DescriptorError (ValueError): for anything but a dict or a list of dicts, and where one is given for the other.
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
    """Set the quantisers of ``quant_model`` as ``quant_cfg`` says, later entries over earlier ones; all or, with an
    error, none.

    Args:
        quant_cfg: as ``normalize_quant_cfg_list``. Attributes replace the description, with defaults where left out;
            "enable" alone only switches. "default" is for all and comes first; {"nn.Linear": {pattern: attributes}}
            and "parent_class" are for the quantisers of modules of that class.

    Returns:
        The patterns that switch on and name no quantiser.

    Raises:
        DescriptorError (ValueError): for another form. KeyError: for a class without a quantised one.
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
    """After it, every quantiser has the description and the switches that it had before, and amaxes as they are."""
    kept = [(q, q.config, q.is_enabled, q._if_quant, q._if_calib, q._calibrator) for _, q in quantizers_of(quant_model)]
    try:
        yield
    finally:
        for q, config, enabled, quant, calib, calibrator in kept:
            q.set_from_attribute_config(config)
            q._disabled, q._if_quant, q._if_calib, q._calibrator = not enabled, quant, calib, calibrator


@contextmanager
def set_quantizer_by_cfg_context(quant_model: nn.Module, quant_cfg: Any) -> Iterator[None]:
    """``set_quantizer_by_cfg`` inside, and the descriptions from before afterwards, after an error too.

    Raises:
        DescriptorError (ValueError): for lists of descriptions, which make other modules of quantisers.
    """
    if any(isinstance(entry["cfg"], (list, tuple)) for entry in normalize_quant_cfg_list(quant_cfg)):
        raise DescriptorError(
            "set_quantizer_by_cfg_context: a list of descriptions; allowed: one for each pattern.\n"
            "  Use set_quantizer_by_cfg."
        )
    with preserve_quantizer_attributes_context(quant_model):
        set_quantizer_by_cfg(quant_model, quant_cfg)
        yield
