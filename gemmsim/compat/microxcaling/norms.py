"""Normalisations, each elementary step rounded."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .module import Specified
from .specs import MxSpecs, apply_mx_specs, get_backwards_mx_specs, mx_assert_test
from .vector_ops import Vector

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
    "LayerNorm",
    "RMSNorm",
    "batch_norm",
    "group_norm",
    "layer_norm",
]

# PyTorch's own, kept for when inject_pyt_ops has put others in their places.
_batch_norm, _group_norm, _layer_norm = functional.batch_norm, functional.group_norm, functional.layer_norm


class _Normal(NamedTuple):
    """Of the forward pass; ``variance`` has eps in it."""

    value: Tensor
    shifted: Tensor
    inverse: Tensor
    mean: Tensor
    variance: Tensor


def _normalised(v: Vector, x: Tensor, axes: list[int], eps: float, stats: Any = None) -> _Normal:
    """(x - mean) / sqrt(variance + eps), with the statistics of ``axes`` or those given."""
    if stats is None:
        mean = v.mean(x, axes)
        shifted = v.sub(x, mean)
        variance = v.mean(v.mul(shifted, shifted), axes)
    else:
        shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
        mean, variance = (v.round(stat).view(shape) for stat in stats)
        shifted = v.sub(x, mean)
    variance = v.add(variance, eps)
    inverse = v.recip(v.sqrt(variance))
    return _Normal(v.mul(shifted, inverse), shifted, inverse, mean, variance)


def _affine(v: Vector, x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: list[int]) -> Tensor:
    if weight is not None:
        x = v.mul(weight.view(shape), x)
    return x if bias is None else v.add(x, bias.view(shape))


def _weight_grads(v: Vector, ctx: Any, grad: Tensor, value: Tensor, axes: list[int]) -> tuple[Tensor | None, ...]:
    """Of weight and bias, None where there are none."""
    has_weight, has_bias = ctx.affine
    weight = v.sum(v.mul(grad, value), axes, keepdim=False) if has_weight else None
    return weight, v.sum(grad, axes, keepdim=False) if has_bias else None


def _begin(ctx: Any, specs: MxSpecs, weight: Tensor | None, bias: Tensor | None) -> tuple[Vector, Any, Any, Any]:
    """The steps, weight and bias rounded, and the weight that the backward pass sees."""
    v = Vector(specs)
    ctx.specs, ctx.affine = get_backwards_mx_specs(specs), (weight is not None, bias is not None)
    rounded = None if weight is None else v.round(weight)
    return v, rounded, None if bias is None else v.round(bias), rounded if specs["quantize_backprop"] else weight


def _scaled_grad(v: Vector, grad: Tensor, weight: Tensor | None, shape: list[int]) -> Tensor:
    return grad if weight is None else v.mul(grad, weight.view(shape))


def _channels_grad(v: Vector, grad: Tensor, shifted: Tensor, inverse: Tensor, axes: list[int]) -> Tensor:
    """Gradient of x for batch and group normalisation; ``grad`` has the weight in it."""
    direct = v.mul(grad, inverse)
    mean = v.mean(-direct, axes)
    spread = v.mean(v.mul(grad, shifted), axes)
    spread = v.mul(v.mul(spread, v.mul(inverse, inverse)), inverse)
    return v.add(v.add(direct, v.mul(-spread, shifted)), mean)


def _rows_grad(v: Vector, grad: Tensor, value: Tensor, variance: Tensor, axes: list[int]) -> Tensor:
    """Gradient of x for layer normalisation; ``grad`` has the weight in it."""
    deviation = v.sqrt(variance)
    direct = v.mul(grad, v.div(torch.ones_like(deviation), deviation))
    spread = v.mean(v.mul(v.mul(grad, value), deviation), axes)
    spread = v.mul(spread, v.div(torch.ones_like(variance), variance))
    total = v.add(direct, v.mul(-spread, value))
    return v.add(total, -v.mean(total, axes))


class _LayerNorm(torch.autograd.Function):
    """Along the last dimension."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Any, bias: Any, eps: float, specs: MxSpecs) -> Tensor:
        """The value."""
        v, rounded, shift, kept = _begin(ctx, specs, weight, bias)
        normal = _normalised(v, v.round(x), [-1], eps)
        ctx.save_for_backward(normal.value, normal.variance, kept)
        return _affine(v, normal.value, rounded, shift, [-1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """In the order of steps of the system's layer norm, which is not that of its batch norm."""
        value, variance, weight = ctx.saved_tensors
        v = Vector(ctx.specs)
        grad = v.round(grads[0])
        of_weight, of_bias = _weight_grads(v, ctx, grad, value, list(range(grad.dim() - 1)))
        scaled = _scaled_grad(v, grad, weight, [-1])
        return _rows_grad(v, scaled, value, variance, [-1]), of_weight, of_bias, None, None


class _RMSNorm(torch.autograd.Function):
    """Along the last dimension, by the root of the mean square."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Any, bias: Any, eps: float, specs: MxSpecs) -> Tensor:
        """The value."""
        v, rounded, shift, kept = _begin(ctx, specs, weight, bias)
        x = v.round(x)
        inverse = v.recip(v.sqrt(v.add(v.mean(v.mul(x, x), [-1]), eps)))
        value = v.mul(x, inverse)
        ctx.save_for_backward(value, inverse, kept)
        return _affine(v, value, rounded, shift, [-1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The last subtraction is not rounded, as in microxcaling."""
        value, inverse, weight = ctx.saved_tensors
        v = Vector(ctx.specs)
        grad = v.round(grads[0])
        of_weight, of_bias = _weight_grads(v, ctx, grad, value, list(range(grad.dim() - 1)))
        direct = v.mul(_scaled_grad(v, grad, weight, [-1]), inverse)
        mean = v.mean(v.mul(direct, value), [-1])
        return direct - v.mul(value, mean), of_weight, of_bias, None, None


class _ChannelNorm(torch.autograd.Function):
    """Batch normalisation, and group normalisation where ``groups`` is not 0; channels are dimension 1."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, stats: Any, weight: Any, bias: Any, groups: int, eps: float, specs: MxSpecs
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The value, and the mean and the variance with eps in it, by channel."""
        v, rounded, shift, kept = _begin(ctx, specs, weight, bias)
        x = v.round(x)
        ctx.groups, ctx.given = groups, stats is not None
        cut, axes = _grouped(x, groups)
        normal = _normalised(v, cut, axes, eps, stats)
        value = normal.value.view(x.shape)
        ctx.save_for_backward(value, normal.shifted, normal.inverse, kept)
        ctx.shape = [1, -1, *[1] * (x.dim() - 2)]
        mean, variance = normal.mean.reshape(-1), normal.variance.reshape(-1)
        ctx.mark_non_differentiable(mean, variance)
        return _affine(v, value, rounded, shift, ctx.shape), mean, variance

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Statistics count as depending on x, also where they were given, as in microxcaling."""
        value, shifted, inverse, weight = ctx.saved_tensors
        v = Vector(ctx.specs)
        grad = v.round(grads[0])
        sums = [0, *range(2, grad.dim())]
        of_weight, of_bias = _weight_grads(v, ctx, grad, value, sums)
        cut, axes = _grouped(_scaled_grad(v, grad, weight, ctx.shape), ctx.groups)
        of_x = _channels_grad(v, cut, shifted, inverse, axes).view(grad.shape)
        return of_x, None, of_weight, of_bias, None, None, None


def _grouped(x: Tensor, groups: int) -> tuple[Tensor, list[int]]:
    """``x`` with channels cut into groups, and the axes over which statistics go."""
    if not groups:
        return x, [0, *range(2, x.dim())]
    if x.shape[1] % groups:
        raise ValueError(f"group_norm: {x.shape[1]} channels in {groups} groups; allowed: a divisor. Choose another.")
    cut = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    return cut, list(range(2, cut.dim()))


def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-12,
    mx_specs: Any = None,
    name: str | None = None,
) -> Tensor:
    """Layer normalisation along the last dimension, every step rounded. With ``mx_specs`` None it is PyTorch's.

    Raises:
        AssertionError: for more dimensions than the last.
        KeyError: for an unknown key in ``mx_specs``.
        ValueError: for settings that mean nothing; with ``MX_ASSERT=True`` in the environment for None.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.layer_norm(torch.tensor([1.0, 2.0, 4.0]), 3, torch.ones(3), torch.zeros(3), mx_specs={"bfloat": 12})
        tensor([-1.0000, -0.2031,  1.3750])
    """
    mx_assert_test(mx_specs)
    shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    if mx_specs is None:
        return _layer_norm(input, shape, weight, bias, eps)
    if shape != [input.shape[-1]]:
        raise AssertionError(f"normalized_shape={tuple(shape)}; allowed: ({input.shape[-1]},), the last dimension")
    result: Tensor = _LayerNorm.apply(input, weight, bias, eps, apply_mx_specs(mx_specs))
    return result


def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    is_training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    mx_specs: Any = None,
) -> Tensor:
    """Batch normalisation over all dimensions except 1, every step rounded. With ``mx_specs`` None it is PyTorch's.

    In training the running statistics become ``(1 - momentum) old + momentum new``, rounded; the variance is the biased
    one with ``eps`` added, as in microxcaling.

    Raises:
        AssertionError: for missing statistics outside training; otherwise as ``layer_norm``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> x, mean, var = torch.tensor([[1.0], [2.0], [4.0]]), torch.zeros(1), torch.ones(1)
        >>> mx.batch_norm(x, mean, var, torch.ones(1), torch.zeros(1), is_training=True, mx_specs={"bfloat": 12})
        tensor([[-1.0000],
                [-0.2031],
                [ 1.3750]])
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return _batch_norm(x, running_mean, running_var, weight, bias, is_training, momentum, eps)
    if not is_training and (running_mean is None or running_var is None):
        raise AssertionError("batch_norm outside training without running_mean and running_var. Give both.")
    specs = apply_mx_specs(mx_specs)
    stats = None if is_training else (running_mean, running_var)
    out, mean, variance = _ChannelNorm.apply(x, stats, weight, bias, 0, eps, specs)
    if is_training:
        v = Vector(specs)
        for old, new in ((running_mean, mean), (running_var, variance)):
            if old is not None:
                old.copy_(v.add(v.mul(old, 1 - momentum), v.mul(new, momentum)))
    result: Tensor = out
    return result


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    mx_specs: Any = None,
    name: str | None = None,
) -> Tensor:
    """Group normalisation, every step rounded. With ``mx_specs`` None it is PyTorch's. Errors as ``layer_norm``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> x = torch.tensor([[[1.0], [2.0], [4.0]]])
        >>> mx.group_norm(x, 1, torch.ones(3), torch.zeros(3), mx_specs={"bfloat": 12}).flatten()
        tensor([-1.0000, -0.2031,  1.3750])
    """
    mx_assert_test(mx_specs)
    if mx_specs is None:
        return _group_norm(x, num_groups, weight, bias, eps)
    result: Tensor = _ChannelNorm.apply(x, None, weight, bias, num_groups, eps, apply_mx_specs(mx_specs))[0]
    return result


class LayerNorm(Specified, torch.nn.LayerNorm):
    """``torch.nn.LayerNorm`` through ``layer_norm``; ``eps`` is 1e-12 by default.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.LayerNorm(3, mx_specs={"bfloat": 12})(torch.tensor([1.0, 2.0, 4.0])).detach()
        tensor([-1.0000, -0.2031,  1.3750])
    """

    def __init__(self, hidden_size: Any, eps: float = 1e-12, mx_specs: Any = None, name: str | None = None) -> None:
        super().__init__(hidden_size, eps)
        self._specify(mx_specs, name)

    def forward(self, x: Tensor) -> Tensor:
        """The normalised ``x``."""
        if self.mx_none:
            return super().forward(x)
        return layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps, self.mx_specs)


class RMSNorm(Specified, torch.nn.LayerNorm):
    """x / sqrt(mean(x x) + eps) * weight + bias, every step rounded. Without settings it is in the tensor's own dtype.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.RMSNorm(3, mx_specs={"bfloat": 12})(torch.tensor([1.0, 2.0, 4.0])).detach()
        tensor([0.3750, 0.7500, 1.5000])
    """

    def __init__(self, hidden_size: Any, eps: float = 1e-12, mx_specs: Any = None, name: str | None = None) -> None:
        super().__init__(hidden_size, eps)
        self._specify(mx_specs, name)

    def forward(self, x: Tensor) -> Tensor:
        """The normalised ``x``."""
        result: Tensor = _RMSNorm.apply(x, self.weight, self.bias, self.eps, self.mx_specs)
        return result


class _BatchNorm(Specified):
    """A batch normalisation of PyTorch's through ``batch_norm``."""

    def __init__(self, num_features: int, mx_specs: Any = None, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(num_features, **kwargs)  # type: ignore[call-arg]
        self._specify(mx_specs, name)

    def forward(self, input: Tensor) -> Tensor:
        """The normalised ``input``; in training the running statistics are brought up to date."""
        module: Any = self
        if self.mx_none:
            plain: Tensor = super().forward(input)  # type: ignore[misc]
            return plain
        module._check_input_dim(input)
        momentum = 0.0 if module.momentum is None else module.momentum
        if module.training and module.track_running_stats and module.num_batches_tracked is not None:
            module.num_batches_tracked.add_(1)
            if module.momentum is None:
                momentum = 1.0 / float(module.num_batches_tracked)
        own = module.training or (module.running_mean is None and module.running_var is None)
        used = not module.training or module.track_running_stats
        stats = (module.running_mean, module.running_var) if used else (None, None)
        rest = (module.weight, module.bias, own, momentum, module.eps, self.mx_specs)
        return batch_norm(input, stats[0], stats[1], *rest)


class BatchNorm1d(_BatchNorm, torch.nn.BatchNorm1d):
    """``torch.nn.BatchNorm1d`` through ``batch_norm``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.BatchNorm1d(1, mx_specs={"bfloat": 12})(torch.tensor([[1.0], [2.0], [4.0]])).detach().flatten()
        tensor([-1.0000, -0.2031,  1.3750])
    """


class BatchNorm2d(_BatchNorm, torch.nn.BatchNorm2d):
    """``torch.nn.BatchNorm2d`` through ``batch_norm``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.BatchNorm2d(1, mx_specs={"bfloat": 12})(torch.tensor([[[[1.0, 2.0, 4.0]]]])).detach().flatten()
        tensor([-1.0000, -0.2031,  1.3750])
    """


class BatchNorm3d(_BatchNorm, torch.nn.BatchNorm3d):
    """``torch.nn.BatchNorm3d`` through ``batch_norm``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.BatchNorm3d(1, mx_specs={"bfloat": 12})(torch.tensor([[[[[1.0, 2.0, 4.0]]]]])).detach().flatten()
        tensor([-1.0000, -0.2031,  1.3750])
    """


class GroupNorm(Specified, torch.nn.GroupNorm):
    """``torch.nn.GroupNorm`` through ``group_norm``.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.GroupNorm(1, 3, mx_specs={"bfloat": 12})(torch.tensor([[[1.0], [2.0], [4.0]]])).detach().flatten()
        tensor([-1.0000, -0.2031,  1.3750])
    """

    def __init__(
        self, num_groups: int, num_channels: int, mx_specs: Any = None, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(num_groups, num_channels, **kwargs)
        self._specify(mx_specs, name)

    def forward(self, input: Tensor) -> Tensor:
        """The normalised ``input``."""
        specs = None if self.mx_none else self.mx_specs
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps, specs)
