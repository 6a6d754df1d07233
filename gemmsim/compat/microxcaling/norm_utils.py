"""microxcaling's ``mx.norm_utils``: what its norms compute, for any axes; no gradients. Weights come rounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .norms import _affine, _channels_grad, _normalised, _rows_grad
from .vector_ops import *  # noqa: F403 - as the module has them in microxcaling
from .vector_ops import Vector

__all__ = ["_get_group_shape", "_norm_backward", "_norm_backward_LN", "_norm_forward"]


def _get_group_shape(x: Tensor, axis: int, groups: int) -> tuple[list[int], list[int]]:
    """(shape, shape with ``axis`` cut into ``groups``) of ``x``.

    Raises:
        AssertionError: for a size that is no multiple of ``groups``.
    """
    if x.shape[axis] % groups:
        raise AssertionError(f"{x.shape[axis]} elements in {groups} groups; allowed: a divisor")
    shape = list(x.shape)
    place = axis % x.dim()
    return shape, [*shape[:place], groups, shape[place] // groups, *shape[place + 1 :]]


def _cut(x: Tensor, axes: int | Sequence[int], groups: int | None) -> tuple[Tensor, list[int]]:
    """``x`` with its first axis cut into groups, and the axes of the sums."""
    places = [axes] if isinstance(axes, int) else list(axes)
    if not groups:
        return x, places
    return x.reshape(_get_group_shape(x, places[0], groups)[1]), [place + 1 for place in places]


def _along(t: Tensor, x: Tensor, axis: int | None) -> Tensor:
    """``t`` as it broadcasts along ``axis`` of ``x``."""
    return t if axis is None else t.view([-1 if place == axis % x.dim() else 1 for place in range(x.dim())])


def _norm_forward(
    x: Tensor,
    axes: int | Sequence[int],
    weight: Tensor,
    bias: Tensor,
    eps: float,
    mx_specs: Any,
    groups: int | None = None,
    weight_axis: int | None = None,
    use_running_stats: bool = False,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(output, x - mean, normalised x, 1 / deviation, mean, variance + eps), each step rounded.

    Args:
        axes: over which mean and variance go; with ``groups`` the first is cut.
        weight_axis: the axis of ``weight`` and ``bias``, which otherwise broadcast as they are.
        use_running_stats: mean and variance are those given.

    Raises:
        AssertionError: without the statistics that are asked for, and for sizes that do not fit ``groups``.
    """
    v = Vector(mx_specs)
    stats = None
    if use_running_stats:
        if running_mean is None or running_var is None:
            raise AssertionError("use_running_stats without running_mean and running_var. Give both.")
        stats = running_mean, running_var
    cut, places = _cut(x, axes, groups)
    normal = _normalised(v, cut, places if stats is None else [0, *places], eps, stats)
    value = normal.value.reshape(x.shape)
    shape = list(_along(weight, x, weight_axis).shape)
    out = _affine(v, value, weight, bias, shape)
    return out, normal.shifted, value, normal.inverse, normal.mean, normal.variance


def _norm_backward(
    grad_output: Tensor,
    axes: int | Sequence[int],
    weight: Tensor,
    x_shift: Tensor,
    x_std_inv: Tensor,
    mx_specs: Any,
    groups: int | None = None,
    weight_axis: int | None = None,
) -> Tensor:
    """The gradient of x for batch and group norm, from what ``_norm_forward`` gave."""
    v = Vector(mx_specs)
    grad, places = _cut(v.mul(grad_output, _along(weight, grad_output, weight_axis)), axes, groups)
    return _channels_grad(v, grad, x_shift, x_std_inv, places).reshape(grad_output.shape)


def _norm_backward_LN(
    grad_output: Tensor,
    axes: int | Sequence[int],
    weight: Tensor,
    x_norm: Tensor,
    x_var: Tensor,
    mx_specs: Any,
    groups: int | None = None,
    weight_axis: int | None = None,
) -> Tensor:
    """The gradient of x for layer norm, from the normalised x and the variance with eps; other steps' order."""
    v = Vector(mx_specs)
    grad, places = _cut(v.mul(grad_output, _along(weight, grad_output, weight_axis)), axes, groups)
    value, _ = _cut(x_norm, axes, groups)
    return _rows_grad(v, grad, value, x_var, places).reshape(grad_output.shape)
