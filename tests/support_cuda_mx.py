"""Conversions to and from block formats of the CUDA backend, with their kernels run on the host."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from support_cuda import run_on_host
from torch import Tensor

from gemmsim.backends.cuda import mx_cast
from gemmsim.backends.cuda.jit.source import KernelSource
from gemmsim.formats import BlockFormat
from gemmsim.mx.arguments import code_shape, scale_shape


def _launch(source: KernelSource, device: torch.device, blocks: tuple[int, int, int], args: ctypes.Structure) -> None:
    run_on_host(source, blocks, args, fibers=", whole" in source.name)  # only these exchange magnitudes


@contextmanager
def on_host() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mx_cast, "launch", _launch)
        yield


def host_encode(
    x: Tensor, fmt: BlockFormat, dim: int = -1, packing: str = "bytes", second: Tensor | float | None = None
) -> tuple[Tensor, Tensor]:
    """``gemmsim.backends.cuda.encode_blocks`` into new tensors filled with what must not remain."""
    dim %= x.dim()
    codes = torch.full(code_shape(x.shape, dim, packing), 0xAA, dtype=torch.uint8)
    scales = torch.full(scale_shape(x.shape, dim, fmt.block_size), 0xAA, dtype=torch.uint8)
    with on_host():
        mx_cast.encode_blocks(x, fmt, codes, scales, dim, packing, second)
    return codes, scales


def host_decode(
    codes: Tensor,
    scales: Tensor,
    fmt: BlockFormat,
    out: Tensor,
    dim: int = -1,
    packing: str = "bytes",
    second: Tensor | float | None = None,
) -> Tensor:
    """``gemmsim.backends.cuda.decode_blocks``."""
    with on_host():
        mx_cast.decode_blocks(codes, scales, fmt, out, dim, packing, second)
    return out


def host_quantize_blocks(
    x: Tensor, fmt: BlockFormat, out: Tensor, dim: int = -1, second: Tensor | float | None = None
) -> Tensor:
    """``gemmsim.backends.cuda.quantize_blocks``."""
    with on_host():
        mx_cast.quantize_blocks(x, fmt, out, dim, second)
    return out
