"""``torchao.float8.float8_linear``: the linear layer with three products of float8 operands."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

import gemmsim as gs
from gemmsim.nn.weights import refuse_computed, refuse_own_forward, take_hooks
from gemmsim.ops.lazy_dynamo import allow_in_graph, assume_constant_result

from ..errors import LayoutError, StorageError, message, shown
from .config import CastConfig, Float8GemmConfig, Float8LinearConfig, ScalingGranularity, ScalingType
from .float8_training_tensor import LinearMMConfig, ScaledMMConfig
from .products import Operand, Plan, autocast_dtype, check_hardware, planned_product

__all__ = ["Float8Linear", "matmul_with_hp_or_float8_args"]

_OWNER = "Float8Linear"


@allow_in_graph
class _Products(torch.autograd.Function):
    """``x @ weight.T`` of a matrix; ``plans`` of output, gradient of x, gradient of the weight."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, plans: Any) -> Tensor:
        """The output in the dtype of ``x``."""
        return planned_product(x.detach(), weight.detach().t(), plans[0])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Both operands are kept as they are."""
        x, weight, ctx.plans = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """``grad @ weight`` and ``grad.T @ x``, every operand cast anew along the sum, in the dtype of ``grad``."""
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = planned_product(grad, weight, ctx.plans[1]).to(x.dtype)
        if ctx.needs_input_grad[1]:
            grad_weight = planned_product(grad.t(), x, ctx.plans[2]).to(weight.dtype)
        return grad_x, grad_weight, None


def _operand(cast: CastConfig | None, power: bool) -> Operand | None:
    assert cast is not None and cast.target_dtype is not None, "Float8LinearConfig sets them"
    if cast.scaling_type is ScalingType.DISABLED:
        return None
    return cast.target_dtype, cast.scaling_granularity is ScalingGranularity.AXISWISE, power


@assume_constant_result
def _plans(config: Float8LinearConfig) -> tuple[Plan, Plan, Plan]:
    """The three products of a configuration; constants of compiled code."""
    power = config.round_scales_to_power_of_2

    def plan(left: CastConfig | None, right: CastConfig | None, gemm: Float8GemmConfig) -> Plan:
        return _operand(left, power), _operand(right, power), config.emulate, gemm.use_fast_accum

    c = config
    grad, grad_later = c.cast_config_grad_output, c.cast_config_grad_output_for_grad_weight
    return (
        plan(c.cast_config_input, c.cast_config_weight, c.gemm_config_output),
        plan(grad, c.cast_config_weight_for_grad_input, c.gemm_config_grad_input),
        plan(grad_later, c.cast_config_input_for_grad_weight, c.gemm_config_grad_weight),
    )


class matmul_with_hp_or_float8_args:
    """torchao's differentiable product of its layer: ``matmul_with_hp_or_float8_args.apply(x, weight.t(), ...)``."""

    @staticmethod
    def apply(
        input_hp: Tensor, weight_hp_t: Tensor, linear_mm_config: LinearMMConfig | None, config: Float8LinearConfig
    ) -> Tensor:
        """``input_hp @ weight_hp_t`` (..., out) as ``config`` says, without a bias. ``linear_mm_config`` is not read.

        Raises:
            StorageError: for operands that are no floating-point tensors; a DTypeError and an AssertionError.
            LayoutError: for sizes that do not fit each other; a ShapeError and an AssertionError.
        """
        return _matmul(input_hp, weight_hp_t.t(), config)


def _matmul(x: Tensor, weight: Tensor, config: Float8LinearConfig) -> Tensor:
    for name, value in (("input", x), ("weight", weight)):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            asked = f"{_OWNER}: {name} of {value.dtype if isinstance(value, Tensor) else type(value).__name__}"
            raise StorageError(message(asked, "floating-point tensors", "Use .float() or .to_original_precision()."))
    if not x.dim() or x.shape[-1] != weight.shape[1]:
        asked = f"{_OWNER}: input of shape {tuple(x.shape)}, weight {tuple(weight.shape)}"
        raise LayoutError(message(asked, f"inputs (..., {weight.shape[1]})", "Change the last dimension."))
    rows = x.reshape(-1, x.shape[-1]) if x.shape[-1] else x.new_zeros(x.shape[:-1].numel(), 0)
    out: Tensor = _Products.apply(rows, weight, _plans(config))
    return out.reshape(*x.shape[:-1], weight.shape[0])


class Float8Linear(gs.nn.Emulated, nn.Linear):
    """``torch.nn.Linear`` with the operands of its three products in float8, as ``config`` says.

    The forward product is ``Q(x) Q(W).T``, the gradients are ``Q(g) Q(W)`` and ``Q(g).T Q(x)``. Scales of rows are
    along each product's sum. The output has the dtype of the input. Gradients are first in the dtype of the output's
    gradient, then in that of their tensor. The bias is added in the dtype of the output. Under autocast the input is
    converted first.

    With ``config.emulate`` products are PyTorch's own of the decoded operands, in float32. Otherwise sums are those of
    Hopper's instructions, as in ``gs.scaled_mm(..., split=1)``; sizes need not be multiples of 16.

    NaN or an infinity in a tensor or row makes its scale NaN or 0, and all its decoded values NaN.

    Args:
        config: a ``Float8LinearConfig``, by keyword. Others are those of ``torch.nn.Linear``.

    Raises:
        TypeError: for another config.
        ElementError: for dtypes that Hopper's instructions lack, without ``emulate``; a FormatError.

    Example:
        >>> from gemmsim.compat.torchao.float8 import Float8Linear, Float8LinearConfig
        >>> layer = Float8Linear(32, 16, config=Float8LinearConfig.from_recipe_name("rowwise"))
        >>> layer(torch.ones(4, 32)).shape
        torch.Size([4, 16])
    """

    config: Float8LinearConfig

    def __init__(self, *args: Any, config: Float8LinearConfig, **kwargs: Any) -> None:
        if not isinstance(config, Float8LinearConfig):
            do = "Try Float8LinearConfig.from_recipe_name('tensorwise')."
            raise TypeError(message(f"{_OWNER}: config={shown(config)}", "a Float8LinearConfig", do))
        for plan in _plans(config):
            check_hardware(plan)
        super().__init__(*args, **kwargs)
        self.config = config
        self.scaling_type_input = config.cast_config_input.scaling_type
        self.scaling_type_weight = config.cast_config_weight.scaling_type
        self.scaling_type_grad_output = config.cast_config_grad_output.scaling_type
        gemms = (config.gemm_config_output, config.gemm_config_grad_input, config.gemm_config_grad_weight)
        options = (ScaledMMConfig(config.emulate, one.use_fast_accum, False, config.pad_inner_dim) for one in gemms)
        self.linear_mm_config = LinearMMConfig(*options)

    def forward(self, input: Tensor) -> Tensor:
        """``input @ weight.T + bias``."""
        dtype = autocast_dtype(input.device.type) if isinstance(input, Tensor) else None
        output = _matmul(input if dtype is None else input.to(dtype), self.weight, self.config)
        return output if self.bias is None else output + self.bias.to(output.dtype)

    def extra_repr(self) -> str:
        """Sizes, and the casts of operands; of backward products where these differ."""
        c = self.config
        parts = [f"i:{c.cast_config_input.short_str()}", f"w:{c.cast_config_weight.short_str()}"]
        parts += [f"go:{c.cast_config_grad_output.short_str()}"]
        later = (
            ("i_gw", c.cast_config_input, c.cast_config_input_for_grad_weight),
            ("w_gi", c.cast_config_weight, c.cast_config_weight_for_grad_input),
            ("go_gw", c.cast_config_grad_output, c.cast_config_grad_output_for_grad_weight),
        )
        parts += [f"{name}:{two.short_str()}" for name, one, two in later if two is not None and one != two]
        return f"{super().extra_repr()}, cast_configs={','.join(parts)}"

    @classmethod
    def from_float(cls, mod: nn.Linear, config: Float8LinearConfig | None = None) -> Float8Linear:
        """A layer with ``mod``'s own parameters, hooks and mode; ``config`` None is ``Float8LinearConfig()``.

        Raises:
            TypeError: for other modules and configs, and a module with a ``forward`` set on the object.
            ComputedWeightError (TypeError): where a parametrisation or a hook computes the weight or the bias.
            ElementError: for dtypes that Hopper's instructions lack, without ``emulate``.
        """
        if not isinstance(mod, nn.Linear):
            asked = f"{_OWNER}.from_float of a {type(mod).__name__}"
            raise TypeError(message(asked, "a torch.nn.Linear", "Give convert_to_float8_training the model."))
        if isinstance(mod, nn.LazyLinear):
            asked = f"{_OWNER}.from_float of a lazy layer, whose weight has no size yet"
            raise TypeError(message(asked, "layers that were called once", "Call the model with one input first."))
        refuse_own_forward(f"{_OWNER}.from_float", mod)
        refuse_computed(f"{_OWNER}.from_float", mod)
        with torch.device("meta"):
            made = cls(mod.in_features, mod.out_features, False, config=config or Float8LinearConfig())
        made.weight, made.bias = mod.weight, mod.bias
        take_hooks(made, mod)
        return made.train(mod.training)
