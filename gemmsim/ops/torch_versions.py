"""What older releases of PyTorch lack, in one place (docs/howto/pytorch_tools.md lists it for users)."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from .errors import message

__all__ = ["COMPILES", "NORMS_WITHOUT_BIAS", "VIEWS_UNDER_VMAP", "TorchVersionError", "has", "needed", "viewed"]

#: The first release whose compiler gets through this package. 2.9 and 2.10 cannot rebuild frozen dataclasses, and
#: compiled code of 2.11 gives gradients of zero where an autograd function returns a view.
COMPILES = (2, 12)
#: ``bias=False`` of ``nn.GroupNorm`` and ``nn.BatchNorm1d`` to ``3d``.
NORMS_WITHOUT_BIAS = (2, 12)
#: ``torch.vmap`` of ``Tensor.view(dtype)``.
VIEWS_UNDER_VMAP = (2, 13)


class TorchVersionError(NotImplementedError):
    """Something that the installed release of PyTorch lacks and a newer one has.

    Example:
        >>> issubclass(gs.ops.TorchVersionError, NotImplementedError)
        True
    """


def has(release: tuple[int, int], version: str | None = None) -> bool:
    """Whether PyTorch (of this version; None: the installed one) is this release or a newer one."""
    text = str(torch.__version__) if version is None else version
    found = re.match(r"(\d+)\.(\d+)", text)
    return found is None or (int(found[1]), int(found[2])) >= release


def needed(asked: str, release: tuple[int, int], do: str) -> TorchVersionError:
    """The error for what only this release of PyTorch and newer ones have."""
    allowed = f"PyTorch {release[0]}.{release[1]} or newer, and this is {torch.__version__}"
    return TorchVersionError(message(asked, allowed, do))


_VIEWS = has(VIEWS_UNDER_VMAP)


def viewed(t: Tensor, dtype: torch.dtype) -> Tensor:
    """``t.view(dtype)``.

    Raises:
        TorchVersionError: under ``torch.vmap`` with a release that has no such views there.
    """
    if _VIEWS:
        return t.view(dtype)
    try:
        return t.view(dtype)
    except RuntimeError as error:
        if "Batching rule" not in str(error):
            raise
        do = "Install a newer PyTorch, or call the function once per example."
        raise needed("torch.vmap of a function that reads the bits of floats", VIEWS_UNDER_VMAP, do) from error
