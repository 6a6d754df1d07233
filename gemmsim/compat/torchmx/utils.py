"""torchmx's helpers: packing of 4-bit codes in its order, sizes, random numbers, loggers."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from . import env_variables

__all__ = [
    "get_logger",
    "get_uniform_random_number",
    "pack_uint4",
    "set_seed",
    "tensor_size_fp4x2_to_hp",
    "tensor_size_hp_to_fp4x2",
    "unpack_uint4",
]


def pack_uint4(uint8_data: Tensor, packing_dim: int = -1) -> Tensor:
    """Two 4-bit codes in each byte along ``packing_dim``, the first in bits 4 to 7.

    Raises:
        AssertionError: for an odd size.

    Example:
        >>> from gemmsim.compat.torchmx import utils
        >>> utils.pack_uint4(torch.tensor([1, 2, 3, 4], dtype=torch.uint8))
        tensor([18, 52], dtype=torch.uint8)
    """
    if uint8_data.shape[packing_dim] % 2:
        raise AssertionError(f"dim {packing_dim} of {tuple(uint8_data.shape)}; allowed: even sizes")
    pairs = uint8_data.unflatten(packing_dim, (-1, 2))
    place = packing_dim % uint8_data.dim() + 1
    return pairs.select(place, 0) << 4 | pairs.select(place, 1)


def unpack_uint4(uint8_data: Tensor, packing_dim: int = -1) -> Tensor:
    """The codes that ``pack_uint4`` packed.

    Example:
        >>> from gemmsim.compat.torchmx import utils
        >>> utils.unpack_uint4(torch.tensor([0x12, 0x34], dtype=torch.uint8))
        tensor([1, 2, 3, 4], dtype=torch.uint8)
    """
    place = packing_dim % uint8_data.dim()
    return torch.stack([uint8_data >> 4, uint8_data & 15], place + 1).flatten(place, place + 1)


def tensor_size_hp_to_fp4x2(orig_size: Sequence[int], packing_dim: int) -> list[int]:
    """The size of packed 4-bit codes: half along ``packing_dim``, rounded up.

    Example:
        >>> from gemmsim.compat.torchmx import utils
        >>> utils.tensor_size_hp_to_fp4x2([4, 7], 1)
        [4, 4]
    """
    size = list(orig_size)
    size[packing_dim] = -(-size[packing_dim] // 2)
    return size


def tensor_size_fp4x2_to_hp(orig_size: Sequence[int], unpacking_dim: int) -> list[int]:
    """The size of unpacked 4-bit codes: twice along ``unpacking_dim``.

    Example:
        >>> from gemmsim.compat.torchmx import utils
        >>> utils.tensor_size_fp4x2_to_hp([4, 4], 1)
        [4, 8]
    """
    size = list(orig_size)
    size[unpacking_dim] *= 2
    return size


def get_uniform_random_number(min_val: int, max_val: int, shape: Iterable[int], dtype: torch.dtype) -> Tensor:
    """Uniform random numbers in ``[min_val, max_val)`` from torch's generator.

    Example:
        >>> from gemmsim.compat.torchmx import utils
        >>> utils.get_uniform_random_number(1, 3, (2, 4), torch.float32).shape
        torch.Size([2, 4])
    """
    return torch.rand(*shape, dtype=dtype) * (max_val - min_val) + min_val


def set_seed(seed: int) -> None:
    """Seed the generators of ``random``, numpy and torch, on all devices.

    Example:
        >>> from gemmsim.compat.torchmx import utils
        >>> utils.set_seed(0)
    """
    import numpy

    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def get_logger(
    logger_name: str = "TORCHMX",
    format_string: str = "%(asctime)s - %(name)s - %(levelname)s - %(message)s",
    console_output: bool = True,
) -> logging.Logger:
    """A logger of this name that writes to the console and to ``env_variables.TORCHMX_LOG_FILE``, if that is set.

    A second call with the same name adds no second handler of the same kind; in torchmx it does.

    Example:
        >>> from gemmsim.compat.torchmx import utils
        >>> utils.get_logger("example", console_output=False).name
        'example'
    """
    logger = logging.getLogger(logger_name)
    logger.setLevel(env_variables.TORCHMX_LOG_LEVEL)
    present = {type(handler) for handler in logger.handlers}
    wanted: list[logging.Handler] = []
    if console_output and logging.StreamHandler not in present:
        wanted.append(logging.StreamHandler())
    if env_variables.TORCHMX_LOG_FILE and logging.FileHandler not in present:
        wanted.append(logging.FileHandler(env_variables.TORCHMX_LOG_FILE))
    for handler in wanted:
        handler.setFormatter(logging.Formatter(format_string))
        logger.addHandler(handler)
    logger.propagate = False
    return logger
