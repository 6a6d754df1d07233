"""``modelopt.torch.opt.conversion``: what quantisers a model has, as plain values."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from gemmsim.nn.undoing import unchanged_on_error
from gemmsim.tensor_quant import DescriptorError, QuantizerAttributeConfig

from ..quantization.conversion import replace_quant_module
from ..quantization.nn.modules.tensor_quantizer import SequentialQuantizer, TensorQuantizer, quantizers_of

__all__ = ["modelopt_state", "restore", "restore_from_modelopt_state", "save"]

_KIND = "gemmsim.compat.modelopt"


def modelopt_state(model: nn.Module) -> dict[str, Any]:
    """Each quantiser's description and whether it is on, by name, and the lengths of sequences; no tensors.

    Raises:
        DescriptorError (ValueError): for a calibrator given as a constructor, which no file holds.
    """
    sequences = {name: len(m) for name, m in model.named_modules() if isinstance(m, SequentialQuantizer)}
    quantizers = {}
    for name, q in quantizers_of(model):
        if not isinstance(q.config.calibrator, str):
            raise DescriptorError(
                f"modelopt_state: {name} has a calibrator that is a constructor; allowed: 'max', 'histogram'.\n"
                "  Set calibrator='max' once it is calibrated."
            )
        quantizers[name] = {**q.config.dict(), "enable": q.is_enabled}
    return {"kind": _KIND, "sequences": sequences, "quantizers": copy.deepcopy(quantizers)}


def restore_from_modelopt_state(model: nn.Module, modelopt_state: Mapping[str, Any]) -> nn.Module:
    """``model`` with the quantisers that ``modelopt_state`` gave, in place; their amaxes come with the state dict.

    ``model``: as it was before it was quantised, or with the same quantisers. Of no quantisers nothing is done. Where
    anything raises, ``model`` is as it was.

    Raises:
        DescriptorError (ValueError): for another kind of state, and for one of other quantisers than the model gets.
    """
    if not isinstance(modelopt_state, Mapping) or modelopt_state.get("kind") != _KIND:
        raise DescriptorError(
            "restore: a state that modelopt_state did not give; allowed: gemmsim's own, not ModelOpt's.\n"
            "  Quantize the model, and load the state dict."
        )
    quantizers = modelopt_state["quantizers"]
    if not quantizers:
        return model
    with unchanged_on_error(model):
        if not any(True for _ in quantizers_of(model)):
            replace_quant_module(model)
        modules = dict(model.named_modules())
        for name, length in modelopt_state["sequences"].items():
            path, _, own = name.rpartition(".")
            parent = modules.get(path)
            if parent is not None and not isinstance(getattr(parent, own, None), SequentialQuantizer):
                setattr(parent, own, SequentialQuantizer(*(TensorQuantizer() for _ in range(length))))
        found = dict(quantizers_of(model))
        if set(found) != set(quantizers):
            different = sorted(set(found) ^ set(quantizers))
            allowed = "the model that the state is of"
            raise DescriptorError(
                f"restore: quantisers {different[:5]} on one side alone; allowed: {allowed}.\n  Build it."
            )
        for name, q in found.items():
            q.set_from_attribute_config(QuantizerAttributeConfig.from_dict(quantizers[name]))
    return model


def save(model: nn.Module, f: Any, **kwargs: Any) -> None:
    """Write ``modelopt_state(model)`` and the state dict by ``torch.save``, whose keywords are ``kwargs``."""
    torch.save({"modelopt_state": modelopt_state(model), "model_state_dict": model.state_dict()}, f, **kwargs)


def restore(model: nn.Module, f: Any, strict: bool = True, **kwargs: Any) -> nn.Module:
    """``model`` with the quantisers and the values of a file that ``save`` wrote, in place.

    Args:
        strict: as ``nn.Module.load_state_dict``. kwargs: of ``torch.load``; ``weights_only=True`` is enough.

    Raises:
        DescriptorError (ValueError): as ``restore_from_modelopt_state``.
    """
    data = torch.load(f, **{"weights_only": True, **kwargs})
    with unchanged_on_error(model):
        restore_from_modelopt_state(model, (data.get("modelopt_state") or {}) if isinstance(data, Mapping) else {})
        model.load_state_dict(data["model_state_dict"], strict=strict)
    return model
