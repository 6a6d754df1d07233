"""``torchao.float8.distributed_utils``."""

from __future__ import annotations

from .float8_training_tensor import Float8TrainingTensor

__all__ = ["tensor_already_casted_to_fp8"]


def tensor_already_casted_to_fp8(tensor: object) -> bool:
    """Whether the value is a ``Float8TrainingTensor``.

    Example:
        >>> from gemmsim.compat.torchao.float8.distributed_utils import tensor_already_casted_to_fp8
        >>> tensor_already_casted_to_fp8(torch.ones(1))
        False
    """
    return isinstance(tensor, Float8TrainingTensor)
