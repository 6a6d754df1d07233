"""Rules that leave some linear layers of a model as they are: published recipes keep first and last ones in bf16."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from .._keywords import takes_spec
from ..arithmetic import SpecError, SpecLike
from ..ops.errors import message
from ..ops.product.affine_formats import QAffineFormats

__all__ = ["rules"]


@takes_spec()
def rules(
    model: nn.Module,
    spec: QAffineFormats | SpecLike,
    *,
    first: int = 0,
    last: int = 0,
    keep: Sequence[str] = (),
    kept: SpecLike | None = None,
) -> list[tuple[str, QAffineFormats | SpecLike | None]]:
    """Return rules for ``gs.emulate`` and ``gs.convert``: ``spec`` for the linear layers of ``model``, except some.

    Args:
        model: its ``torch.nn.Linear`` modules count in the order of ``named_modules``.
        spec: a recipe or its name, a spec or ``QAffineFormats``.
        first, last: how many of the first and of the last linear layers are kept.
        keep: further patterns of module paths that are kept, as in ``Rule``: "lm_head", "*.attention.*".
        kept: what kept layers compute; None leaves PyTorch's own product in the dtype of their tensors.

    All other products, including those inside attention, are PyTorch's own.

    Raises:
        SpecError: for counts that are not integers from 0, and for a model without linear layers.

    Example:
        >>> net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3)))
        >>> gs.recipes.rules(net, "nvfp4_pretraining", last=1)
        [('2', None), ('0', 'nvfp4_pretraining'), ('1', 'nvfp4_pretraining'), ('*', None)]
    """
    paths = [path for path, module in model.named_modules() if isinstance(module, nn.Linear)]
    for name, count in (("first", first), ("last", last)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise SpecError(message(f"recipes.rules: {name}={count!r}", "an integer from 0", f"Try {name}=1."))
    if not paths:
        asked = f"recipes.rules of {type(model).__name__}, which has no torch.nn.Linear"
        raise SpecError(message(asked, "a model with linear layers", "Write rules by path for other layers."))
    held = [path for i, path in enumerate(paths) if i < first or i >= len(paths) - last]
    others = [path for path in paths if path not in held]
    found: list[tuple[str, QAffineFormats | SpecLike | None]] = [(pattern, kept) for pattern in keep]
    found += [(path, kept) for path in held]
    return [*found, *((path, spec) for path in others), ("*", None)]
