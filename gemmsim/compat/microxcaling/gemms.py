"""linear, matmul, bmm and addmm with quantised operands; sums are PyTorch's, in the tensors' dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .blocks import quantize_mx_op
from .elementwise import quantize_elemwise_op
from .module import Specified
from .specs import MxSpecs, apply_mx_specs, get_backwards_mx_specs, mx_assert_test

__all__ = ["Linear", "addmm", "bmm", "linear", "matmul"]

# PyTorch's own, kept for when inject_pyt_ops has put others in their places.
_linear = torch.nn.functional.linear
_matmul = torch.matmul
_bmm = torch.bmm
_addmm = torch.addmm


def _blocks(x: Tensor, specs: MxSpecs, elements: str, axis: int, rounding: str | None = None) -> Tensor:
    """``x`` in the format and rounding that the settings of these names say; "nearest" without a name."""
    how = "nearest" if rounding is None else specs[rounding]
    return quantize_mx_op(x, specs, elem_format=specs[elements], axes=[axis], round=how)


def _plus_bias(out: Tensor, bias: Tensor | None, specs: MxSpecs) -> Tensor:
    """The sum is rounded once more; the product was."""
    if bias is None:
        return out
    return quantize_elemwise_op(out + bias, specs, specs["round_output"])


def _to_shape(grad: Tensor, shape: Sequence[int]) -> Tensor:
    """Sum over the dimensions along which an operand was broadcast."""
    return grad if grad.shape == torch.Size(shape) else grad.sum_to_size(shape)


class _LinearFunction(torch.autograd.Function):
    """``x @ W.T + b``, everything that enters or leaves rounded element-wise, operands of products in blocks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, specs: MxSpecs) -> Tensor:
        """Blocks along the input features."""
        given = x, weight
        x = quantize_elemwise_op(x, specs, specs["round_output"])
        weight = quantize_elemwise_op(weight, specs, specs["round_weight"])
        ctx.save_for_backward(*((x, weight) if specs["quantize_backprop"] else given))
        ctx.specs, ctx.has_bias = get_backwards_mx_specs(specs), bias is not None
        if bias is not None:
            bias = quantize_elemwise_op(bias, specs, specs["round_weight"])
        left = _blocks(x, specs, "a_elem_format", -1, "round_mx_output")
        right = _blocks(weight, specs, "w_elem_format", -1, "round_mx_output")
        out = quantize_elemwise_op(_linear(left, right), specs, specs["round_output"])
        return _plus_bias(out, bias, specs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Blocks along the second-last axis of x and g for W's gradient, along the output features for x's."""
        specs = ctx.specs
        x, weight = ctx.saved_tensors
        grad = quantize_elemwise_op(grads[0], specs, specs["round_grad_input"])
        axis = -2 if x.dim() > 1 else -1
        rows = _blocks(x, specs, "a_elem_format_bp_ex", axis, "round_mx_input_grad_weight")
        columns = _blocks(grad, specs, "a_elem_format_bp_ex", axis, "round_mx_grad_output_grad_weight")
        grad_weight = _matmul(columns.reshape(-1, weight.shape[0]).mT, rows.reshape(-1, weight.shape[1]))
        grad_weight = quantize_elemwise_op(grad_weight, specs, specs["round_grad_weight"])
        left = _blocks(grad, specs, "a_elem_format_bp_os", -1, "round_mx_grad_output_grad_input")
        right = _blocks(weight, specs, "w_elem_format_bp", 0, "round_mx_weight_grad_input")
        grad_x = quantize_elemwise_op(_matmul(left, right), specs, specs["round_grad_input"])
        grad_bias = None
        if ctx.has_bias:
            total = grad.reshape(-1, weight.shape[0]).sum(0)
            grad_bias = quantize_elemwise_op(total, specs, specs["round_grad_weight"])
        return grad_x, grad_weight, grad_bias, None


class _ProductFunction(torch.autograd.Function):
    """``a @ b + bias`` of operands that are activations or weights, as two letters say."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, bias: Tensor | None, specs: MxSpecs, kinds: str, batched: bool
    ) -> Tensor:
        """Blocks along the sum."""
        given = a, b
        a, b = (quantize_elemwise_op(t, specs, specs["round_output"]) for t in (a, b))
        ctx.save_for_backward(*((a, b) if specs["quantize_backprop"] else given))
        ctx.specs, ctx.kinds, ctx.batched = get_backwards_mx_specs(specs), kinds, batched
        ctx.bias_shape = None if bias is None else bias.shape
        if bias is not None:
            bias = quantize_elemwise_op(bias, specs, specs["round_weight"])
        left = _blocks(a, specs, f"{kinds[0]}_elem_format", -1, "round_mx_output")
        right = _blocks(b, specs, f"{kinds[1]}_elem_format", -2, "round_mx_output")
        out = (_bmm if batched else _matmul)(left, right)
        return _plus_bias(quantize_elemwise_op(out, specs, specs["round_output"]), bias, specs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Blocks along the columns of the result for a's gradient, along its rows for b's."""
        specs = ctx.specs
        a, b = ctx.saved_tensors
        grad = quantize_elemwise_op(grads[0], specs, specs["round_grad_input"])
        formats = [f"{kind}_elem_format_bp" for kind in ctx.kinds]
        rounding, grad_rounding = "round_mx_input_grad_input", "round_mx_grad_output_grad_input"
        product = _bmm if ctx.batched else _matmul
        right = _blocks(b, specs, formats[1], -1, rounding)
        grad_a = product(_blocks(grad, specs, "a_elem_format_bp_os", -1, grad_rounding), right.mT)
        left = _blocks(a, specs, formats[0], -2, rounding)
        grad_b = product(left.mT, _blocks(grad, specs, "a_elem_format_bp_os", -2, grad_rounding))
        # gradients of broadcast operands are rounded before PyTorch sums them, as in microxcaling
        grad_a, grad_b = (
            _to_shape(quantize_elemwise_op(g, specs, specs["round_grad_input"]), t.shape)
            for g, t in ((grad_a, a), (grad_b, b))
        )
        grad_bias = None
        if ctx.bias_shape is not None:
            total = grad.reshape(-1, grad.shape[-1]).sum(0) if grad.dim() > 1 else grad
            same = total.numel() == ctx.bias_shape.numel()
            total = total.view(ctx.bias_shape) if same else _to_shape(grad, ctx.bias_shape)
            grad_bias = quantize_elemwise_op(total, specs, specs["round_grad_weight"])
        return grad_a, grad_b, grad_bias, None, None, None


def linear(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, mx_specs: Any = None, name: str | None = None
) -> Tensor:
    """``torch.nn.functional.linear`` with rounded operands and result. With ``mx_specs`` None it is PyTorch's.

    The forward product and x's gradient have blocks along their sums; W's gradient has them along the second-last
    axis. The bias is added to the rounded product, and the sum is rounded again.

    Raises:
        KeyError: for an unknown key in ``mx_specs``.
        ValueError: for settings that mean nothing; with ``MX_ASSERT=True`` in the environment for None.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> specs = {"w_elem_format": "fp4_e2m1", "a_elem_format": "fp4_e2m1", "scale_bits": 8}
        >>> mx.linear(torch.full((1, 3), 1.3), torch.ones(1, 3), mx_specs=specs)
        tensor([[4.5000]])
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return _linear(input, weight, bias)
    result: Tensor = _LinearFunction.apply(input, weight, bias, apply_mx_specs(mx_specs))
    return result


def matmul(
    in1: Tensor,
    in2: Tensor,
    bias: Tensor | None = None,
    mx_specs: Any = None,
    name: str | None = None,
    mode_config: str = "aa",
) -> Tensor:
    """``torch.matmul`` of matrices and batches, plus ``bias``; errors as ``linear``.

    ``mode_config`` says whether each operand has the format of activations or of weights: "aa", "aw" or "wa".

    Raises:
        AssertionError: for another ``mode_config``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> specs = {"w_elem_format": "int8", "a_elem_format": "fp4_e2m1", "scale_bits": 8}
        >>> mx.matmul(torch.full((1, 3), 1.3), torch.ones(3, 1), mx_specs=specs, mode_config="aw")
        tensor([[4.5000]])
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        if bias is not None and in1.dim() == in2.dim() == 2:
            return _addmm(bias, in1, in2)
        out = _matmul(in1, in2)
        return out if bias is None else out + bias
    if mode_config not in ("aa", "aw", "wa"):
        raise AssertionError(f"mode_config={mode_config!r}; allowed: 'aa', 'aw', 'wa'")
    result: Tensor = _ProductFunction.apply(in1, in2, bias, apply_mx_specs(mx_specs), mode_config, False)
    return result


def bmm(in1: Tensor, in2: Tensor, mx_specs: Any = None, name: str | None = None) -> Tensor:
    """``torch.bmm`` of activations; errors as ``linear``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> specs = {"a_elem_format": "fp4_e2m1", "scale_bits": 8}
        >>> mx.bmm(torch.full((1, 1, 3), 1.3), torch.ones(1, 3, 1), mx_specs=specs)
        tensor([[[4.5000]]])
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return _bmm(in1, in2)
    result: Tensor = _ProductFunction.apply(in1, in2, None, apply_mx_specs(mx_specs), "aa", True)
    return result


def addmm(bias: Tensor, in1: Tensor, in2: Tensor, mx_specs: Any = None, name: str | None = None) -> Tensor:
    """``matmul`` with the bias first.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> specs = {"a_elem_format": "fp4_e2m1", "scale_bits": 8}
        >>> mx.addmm(torch.ones(1), torch.full((1, 3), 1.3), torch.ones(3, 1), mx_specs=specs)
        tensor([[5.5000]])
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return _addmm(bias, in1, in2)
    return matmul(in1, in2, bias, mx_specs, name)


class Linear(Specified, torch.nn.Linear):
    """``torch.nn.Linear`` through ``linear``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> specs = {"w_elem_format": "int8", "a_elem_format": "int8", "scale_bits": 8, "block_size": 32}
        >>> mx.Linear(32, 16, mx_specs=specs)(torch.ones(4, 32)).shape
        torch.Size([4, 16])
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, mx_specs: Any = None, name: str | None = None
    ) -> None:
        super().__init__(in_features, out_features, bias)
        self._specify(mx_specs, name)

    def forward(self, inputs: Tensor) -> Tensor:
        """``linear(inputs, weight, bias)``."""
        return linear(inputs, self.weight, self.bias, None if self.mx_none else self.mx_specs, self.name)
