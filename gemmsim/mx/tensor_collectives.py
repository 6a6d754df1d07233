"""Collectives of block-format tensors: codes and scales travel, values never do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gemmsim.ops.errors import ShapeError, message

from .dispatch import implements
from .errors import MXOperatorError
from .layout import unit
from .tensor import MXTensor


def all_gather_into_tensor(t: MXTensor, group_size: int, group_name: Any) -> MXTensor:
    """The tensors of all ranks joined along dimension 0; ``wait_tensor`` before its codes are read.

    Raises:
        ShapeError: where blocks lie along dimension 0 and the tensors do not end with one.
        MXOperatorError: where the ranks' tensors have different scales of their own.
    """
    along = t.ndim + t.block_dim == 0
    by = unit(t.format, t.packing)
    if along and t.shape[0] % by:
        asked = f"all_gather_into_tensor along the blocks of size {t.shape[0]}"
        raise ShapeError(message(asked, f"multiples of {by}", "Gather t.dequantize() instead."))
    if t.tensor_scale is not None:
        gathered = _gather(t.tensor_scale.reshape(1), group_size, group_name)
        found = torch.ops._c10d_functional.wait_tensor.default(gathered)
        if not torch.equal(found, t.tensor_scale.expand(group_size)):
            do = "Encode with the largest amax of all ranks: all_reduce gemmsim.mx.tensor_scale, pass tensor_scale."
            asked = f"all_gather_into_tensor of tensors with tensor_scale {found.tolist()}"
            raise MXOperatorError(message(asked, "one tensor_scale on all ranks", do))
    codes = _gather(t.codes.contiguous(), group_size, group_name)
    scales = _gather(t.scales.contiguous(), group_size, group_name)
    return t.rebuilt(codes, scales, size=group_size * t.shape[0] if along else t.shape[t.block_dim])


def wait_tensor(t: MXTensor) -> MXTensor:
    """The tensor once its codes and scales are there."""
    return t.with_parts(torch.ops._c10d_functional.wait_tensor.default)


def _gather(part: Tensor, group_size: int, group_name: Any) -> Tensor:
    result: Tensor = torch.ops._c10d_functional.all_gather_into_tensor.default(part, group_size, group_name)
    return result


if torch.distributed.is_available():  # builds of PyTorch without it have no such operators
    implements(torch.ops._c10d_functional.all_gather_into_tensor.default)(all_gather_into_tensor)
    implements(torch.ops._c10d_functional.wait_tensor.default)(wait_tensor)
