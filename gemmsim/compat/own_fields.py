"""The common parts of other systems' block tensors: their own fields, and conversions with the identity as gradient."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

import gemmsim as gs

__all__ = ["OwnFields", "StraightThrough"]

_Made = TypeVar("_Made", bound="OwnFields")


class OwnFields(gs.mx.MXTensor):
    """``gemmsim.mx.MXTensor`` with a system's own fields, which results of operators keep; products are PyTorch's."""

    #: Names of the fields.
    _own_fields: ClassVar[tuple[str, ...]]
    accumulator = None

    @classmethod
    def _with_fields(cls: type[_Made], plain: gs.mx.MXTensor, *values: Any) -> _Made:
        """A tensor of the codes of ``plain``, whose own fields have these values."""
        made = gs.mx.MXTensor.__new__(
            cls,
            plain.codes,
            plain.scales,
            plain.format,
            dim=plain.block_dim,
            size=plain.shape[plain.block_dim],
            packing=plain.packing,
            tensor_scale=plain.tensor_scale,
            dtype=plain.dtype,
        )
        assert isinstance(made, cls)
        for name, value in zip(cls._own_fields, values, strict=True):
            setattr(made, name, value)
        return made

    def rebuilt(self: _Made, codes: Tensor, scales: Tensor, **fields: Any) -> _Made:
        """As ``gemmsim.mx.MXTensor.rebuilt``, with this tensor's fields."""
        return self._with_fields(
            super().rebuilt(codes, scales, **fields), *(getattr(self, n) for n in self._own_fields)
        )


class StraightThrough(torch.autograd.Function):
    """A conversion of its first argument, with the identity as gradient; the others have none."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient, as it is."""
        return grads[0], *[None] * (len(ctx.needs_input_grad) - 1)
