"""``torchao.float8.fsdp_utils``: scales of sharded weights."""

from __future__ import annotations

from torch import nn

from ..errors import ElementError, message, shown
from .float8_linear import Float8Linear

__all__ = ["precompute_float8_dynamic_scale_for_fsdp"]


def precompute_float8_dynamic_scale_for_fsdp(module: nn.Module) -> None:
    """Only check ``module``, since layers scale the weight that FSDP has gathered at each call.

    torchao computes the scales of all sharded weights here, with one reduction, so that shards can be cast before they
    are gathered. The gathered weight then has the bits of the whole weight, cast. A training loop may therefore call
    this function after each optimizer step, and its results are the same without the call.

    Raises:
        TypeError: for anything but a module.
        ElementError: where layers that gather in float8 have weights of several dtypes; a ValueError.

    Example:
        >>> from gemmsim.compat.torchao import float8
        >>> model = float8.convert_to_float8_training(torch.nn.Sequential(torch.nn.Linear(32, 16)))
        >>> float8.precompute_float8_dynamic_scale_for_fsdp(model)
    """
    if not isinstance(module, nn.Module):
        asked = f"precompute_float8_dynamic_scale_for_fsdp({shown(module)})"
        raise TypeError(message(asked, "a module", "Give the model after convert_to_float8_training."))
    layers = [one for one in module.modules() if isinstance(one, Float8Linear)]
    configs = [one.config for one in layers if one.config.enable_fsdp_float8_all_gather]
    dtypes = {str(config.cast_config_weight.target_dtype) for config in configs}
    if len(dtypes) > 1:
        asked = f"precompute_float8_dynamic_scale_for_fsdp: weights in {', '.join(sorted(dtypes))}"
        raise ElementError(message(asked, "one float8 dtype for all weights", "Convert the model with one config."))
