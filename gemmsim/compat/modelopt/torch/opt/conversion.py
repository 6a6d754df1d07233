"""``modelopt.torch.opt.conversion``: the quantisers of a model as plain values."""

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
    """The description of each quantiser and whether it is on, by name, and the lengths of sequences; it has no tensors.

    Raises:
        DescriptorError (ValueError): for a calibrator given as a constructor, which no file can hold.

    Example:
        >>> from gemmsim.compat.modelopt.torch import opt, quantization as mtq
        >>> sorted(opt.modelopt_state(mtq.calibrate(mtq.nn.QuantLinear(4, 2))))
        ['kind', 'quantizers', 'sequences']
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
    """Give ``model`` the quantisers of ``modelopt_state``, in place; their amaxes come with the state dict.

    ``model`` is as it was before quantisation, or has the same quantisers. A state without quantisers changes nothing.
    After an error ``model`` is unchanged.

    Raises:
        DescriptorError (ValueError): for another kind of state, and for one with other quantisers than the model gets.

    Example:
        >>> from gemmsim.compat.modelopt.torch import opt, quantization as mtq
        >>> state = opt.modelopt_state(mtq.calibrate(mtq.nn.QuantLinear(4, 2)))
        >>> type(opt.restore_from_modelopt_state(torch.nn.Linear(4, 2), state)).__name__
        'QuantLinear'
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
    """Write ``modelopt_state(model)`` and the state dict with ``torch.save``, which receives ``kwargs``.

    Example:
        >>> import io
        >>> from gemmsim.compat.modelopt.torch import opt, quantization as mtq
        >>> opt.save(mtq.calibrate(mtq.nn.QuantLinear(4, 2)), io.BytesIO())
    """
    torch.save({"modelopt_state": modelopt_state(model), "model_state_dict": model.state_dict()}, f, **kwargs)


def restore(model: nn.Module, f: Any, strict: bool = True, **kwargs: Any) -> nn.Module:
    """Give ``model`` the quantisers and the values of a file that ``save`` wrote, in place; returns ``model``.

    Args:
        strict: as ``nn.Module.load_state_dict``. kwargs: of ``torch.load``; ``weights_only=True`` is enough.

    Raises:
        DescriptorError (ValueError): as ``restore_from_modelopt_state``.

    Example:
        >>> import io
        >>> from gemmsim.compat.modelopt.torch import opt, quantization as mtq
        >>> with io.BytesIO() as file:
        ...     opt.save(mtq.calibrate(mtq.nn.QuantLinear(4, 2)), file)
        ...     position = file.seek(0)
        ...     print(opt.restore(torch.nn.Linear(4, 2), file).weight_quantizer.amax.shape)
        torch.Size([2, 1])
    """
    data = torch.load(f, **{"weights_only": True, **kwargs})
    with unchanged_on_error(model):
        restore_from_modelopt_state(model, (data.get("modelopt_state") or {}) if isinstance(data, Mapping) else {})
        model.load_state_dict(data["model_state_dict"], strict=strict)
    return model
