"""Models with torchmx's layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import nn

from gemmsim.nn import Conversion, call_children
from gemmsim.nn.undoing import naming
from gemmsim.nn.weights import computed_parameter, own_forward

from .config import MXConfig, QAttentionConfig, QLinearConfig
from .dtypes import DType, float6_e3m2, float8_e4m3
from .layers.mx_linear import MXInferenceLinear

if TYPE_CHECKING:
    ATTENTION_LAYERS: dict[type, Any]
    MLP_LAYERS: dict[type, Any]

# Without ATTENTION_LAYERS and MLP_LAYERS, so that ``import *`` needs no transformers.
__all__ = ["mx_dynamic_activation_mx_weights", "quantize_linear_", "quantize_llm_"]


def __getattr__(name: str) -> Any:
    """transformers' layers and their replacements, on first use (PEP 562), which loads transformers."""
    if name not in ("ATTENTION_LAYERS", "MLP_LAYERS"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .layers import llm

    return getattr(llm, name)


def quantize_linear_(model: nn.Module, qconfig: QLinearConfig) -> None:
    """Replace the linear layers below ``model`` by ``MXInferenceLinear``, in place.

    A log message says what was replaced and what was left to PyTorch (``gemmsim.nn.Conversion``). Layers whose weight
    or bias is not a parameter, because a parametrisation or a hook computes it, are left, and so are layers with a
    ``forward`` set on the object. Errors name the layer and leave the model unchanged.

    Example:
        >>> model, c = torch.nn.Sequential(torch.nn.Linear(32, 16)), gs.compat.torchmx.config
        >>> gs.compat.torchmx.quant_api.quantize_linear_(model, c.QLinearConfig(c.MXConfig("int8"), c.MXConfig("int8")))
        >>> type(model[0]).__name__
        'MXInferenceLinear'
    """
    with Conversion.watched("torchmx.quantize_linear_", model, _why):
        _exchange_linear(model, qconfig)
        call_children(model)


def _exchange_linear(model: nn.Module, qconfig: QLinearConfig, prefix: str = "") -> None:
    for name, child in list(model.named_children()):
        if not isinstance(child, nn.Linear) or isinstance(child, MXInferenceLinear):
            _exchange_linear(child, qconfig, f"{prefix}{name}.")
        elif not _own(child):
            with naming(f"{prefix}{name}"):
                setattr(model, name, MXInferenceLinear.from_float(child, qconfig))


def _own(child: nn.Module) -> str:
    """Why a layer is left: what it has that its class does not say."""
    return computed_parameter(child) or own_forward(child)


def _why(name: str, module: nn.Module) -> tuple[str, bool]:
    """Why a layer was left, and whether that was asked for."""
    own = _own(module) if isinstance(module, nn.Linear) else ""
    return (own, False) if own else ("this converter has no such layer", True)


def quantize_llm_(model: nn.Module, qattention_config: QAttentionConfig, qmlp_config: QLinearConfig) -> None:
    """Replace attention and MLP of transformers' Llama and Qwen2 below ``model``, then all other linear layers.

    The remaining layers are computed as ``qmlp_config`` says. Layers left, and errors, are as in ``quantize_linear_``.
    An attention or MLP with a ``forward`` set on the object keeps it, and its linear layers are replaced as the rest.

    Raises:
        ModuleNotFoundError: without transformers (the extra gemmsim[transformers]).

    Example:
        >>> from gemmsim.compat.torchmx import config as c, quant_api
        >>> linear = c.QLinearConfig(c.MXConfig("float6_e3m2"), c.MXConfig("float8_e4m3"))
        >>> quant_api.quantize_llm_(model, c.QAttentionConfig(linear), linear)  # doctest: +SKIP
    """
    with Conversion.watched("torchmx.quantize_llm_", model, _why):
        _exchange(model, qattention_config, qmlp_config)
        _exchange_linear(model, qmlp_config)
        call_children(model)


def _exchange(
    model: nn.Module, qattention_config: QAttentionConfig, qmlp_config: QLinearConfig, prefix: str = ""
) -> None:
    from .layers.llm import replacement

    for name, child in list(model.named_children()):
        with naming(f"{prefix}{name}"):
            found = replacement(child, qattention_config, qmlp_config)
        if found is not None:
            setattr(model, name, found)
        else:
            _exchange(child, qattention_config, qmlp_config, f"{prefix}{name}.")


def mx_dynamic_activation_mx_weights(
    weight_elem_dtype: DType = float6_e3m2,
    weight_block_size: int = 32,
    activation_elem_dtype: DType = float8_e4m3,
    activation_block_size: int = 32,
) -> Callable[[nn.Module], nn.Module]:
    """A function for ``gemmsim.compat.torchao.quantize_`` (and torchao's) that makes a linear layer an MX layer.

    Example:
        >>> from gemmsim.compat import torchmx
        >>> make = torchmx.quant_api.mx_dynamic_activation_mx_weights()
        >>> type(make(torch.nn.Linear(32, 16))).__name__
        'MXInferenceLinear'
    """
    qconfig = QLinearConfig(
        MXConfig(weight_elem_dtype.name, weight_block_size), MXConfig(activation_elem_dtype.name, activation_block_size)
    )

    def apply(module: nn.Module) -> nn.Module:
        if not isinstance(module, nn.Linear):
            raise AssertionError(f"a {type(module).__name__}; allowed: torch.nn.Linear")
        return MXInferenceLinear.from_float(module, qconfig)

    return apply
