"""Casts of ordinary tensors: checks and seeds around ``gemmsim.backends``.

Everything here runs below PyTorch's dispatcher: no autograd, no tracing, no modes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim.backends import scaled_cast
from gemmsim.backends.backend import backend_name, backend_of
from gemmsim.backends.codebook import is_codebook
from gemmsim.backends.convert import cast_into
from gemmsim.formats import TENSOR_FORMATS, Cast, ScaledCast, Sharing
from gemmsim.lowering.abi_constants import MAX_BATCH_DIMS

from . import last_run
from .cast_arguments import Target, target_dtype
from .checks import FLOAT_DTYPES, check_float
from .errors import ShapeError, message
from .seeds import Site, derive_seed, draw_seed

__all__ = ["cast_operand", "check_target", "overwrite", "quantize", "quantize_into"]


def check_target(target: Target, x: Tensor) -> None:
    """Refuses a tensor that cannot be rounded to ``target``.

    Raises:
        DTypeError: for another dtype; ShapeError: for a dimension it does not have.
    """
    if x.dtype not in FLOAT_DTYPES:
        check_float("quantize", "x", x)
    if not isinstance(target, TENSOR_FORMATS):
        return
    if target.sharing is not Sharing.TENSOR and not -x.dim() <= target.dim < x.dim():
        allowed = (
            f"dimensions of the tensor, {-x.dim()} to {x.dim() - 1}" if x.dim() else "tensors of one dimension or more"
        )
        asked = f"quantize: {target} of a tensor of shape {tuple(x.shape)}"
        raise ShapeError(message(asked, allowed, "Change dim, or use bfp(bits,tensor)."))


def quantize_into(
    x: Tensor,
    cast: Target,
    out: Tensor,
    seed: int | None,
    site: int = Site.QUANTIZE,
    stream: int = 0,
    start: int = 0,
) -> None:
    """Write ``cast`` of each element of ``x`` to ``out``; a stochastic cast without ``seed`` draws one.

    ``start``: index of the first element, of a cast of single numbers, for its random bits.
    """
    bits = 0
    if cast.is_stochastic:
        bits = draw_seed() if seed is None else derive_seed(seed, stream)
    if isinstance(cast, ScaledCast):
        out.copy_(scaled_cast.quantized(x, cast, bits, site))
    elif isinstance(cast, TENSOR_FORMATS):
        backend_of(x).quantize_tensor(x, cast, out, bits, site)
    elif out.dim() <= MAX_BATCH_DIMS and not is_codebook(cast):
        backend_of(x).quantize(x, cast, out, bits, site, start)
    else:
        cast_into(x, cast, out, bits, site, start)
    last_run.record("quantize", backend_name(x), str(cast), f"{x.numel()} elements {x.dtype} to {out.dtype}")


def overwrite(x: Tensor, cast: Target, out: Tensor, seed: int | None) -> None:
    """``quantize_into`` a tensor that others may hold: autograd learns that it changed.

    Raises:
        DTypeError, ShapeError: as ``check_target``.
    """
    check_target(cast, x)
    quantize_into(x, cast, out, seed)
    if not out.is_inference():
        torch.autograd.graph.increment_version(out)


def quantize(
    x: Tensor,
    cast: Target,
    seed: int | None = None,
    site: int = Site.QUANTIZE,
    stream: int = 0,
    widen: bool = False,
    start: int = 0,
) -> Tensor:
    """``cast`` of each element of ``x`` as a new tensor of its dtype; ``widen``: of one that holds the format.

    Raises:
        DTypeError, ShapeError: as ``check_target``.
    """
    check_target(cast, x)
    out = torch.empty_like(x, dtype=target_dtype(cast, x.dtype) if widen else x.dtype)
    quantize_into(x, cast, out, seed, site, stream, start)
    return out


def cast_operand(t: Tensor, cast: Cast, seed: int, site: int, start: int = 0) -> Tensor:
    """``t`` cast, in a dtype that holds the format; ``start``: index of its first element for random bits."""
    return quantize(t, cast, seed, site, widen=True, start=start)
