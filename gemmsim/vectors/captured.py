"""One product of a file that ``gemmsim.capture`` wrote, with its orientation checked."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from .errors import VectorsError, vectors_error

__all__ = ["CapturedProduct", "captured_product"]

#: Shapes of operands that multiply as they are.
_PRODUCTS = (("(..., M, K)", "(..., K, N)"), ("(M, K)", "(K, N)"))
#: Names that a message lists.
_SHOWN = 8


@dataclass(frozen=True)
class CapturedProduct:
    """A captured product.

    Attributes:
        name: in the file, "PATH/OPERATOR/ROLE/N".
        a, b: (M, K) and (K, N), as they were multiplied, before any cast.
        about: the file's metadata of the product: operator, orders of K and M of a convolution.

    Example:
        >>> one = gs.vectors.CapturedProduct("-/aten.mm/fprop/0", torch.ones(2, 8), torch.ones(8, 4))
        >>> gs.acc.min_accumulator_bits(one.b, "int8", k_dim=one.k_dim_b)
        12
    """

    name: str
    a: Tensor
    b: Tensor
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def k_dim_b(self) -> int:
        """0: the dimension of b that sums run along, for ``gemmsim.acc.min_accumulator_bits``."""
        return 0


def captured_product(path: str | Path, name: str = "", *, batch: int = 0) -> CapturedProduct:
    """The product ``name`` of a file of ``gemmsim.capture``.

    Args:
        path: the file.
        name: "PATH/OPERATOR/ROLE/N", or its beginning if only one product has it ("encoder.0"); "" if the file has one
            product.
        batch: number of the matrix in a product of batches, counted over all dimensions of the batch.

    Raises:
        VectorsError: no such file or product (the message suggests near names), a convolution that was written as image
            and filter, a file of another kind, operands whose sizes along K differ.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as one:
        ...     with gs.capture(to=one.name):
        ...         _ = torch.ones(2, 8) @ torch.ones(8, 4)
        ...     found = gs.vectors.captured_product(one.name)
        >>> found.name, tuple(found.b.shape)
        ('-/aten.mm/fprop/0', (8, 4))
    """
    with _opened(Path(path)) as file:
        about = json.loads((file.metadata() or {}).get("products", "{}"))
        keys = set(file.keys())
        pairs = sorted({key[:-2] for key in keys if key.endswith("/a") and f"{key[:-2]}/b" in keys})
        chosen = _chosen(Path(path), name, pairs)
        facts = about.get(chosen, {})
        a, b = file.get_tensor(f"{chosen}/a"), file.get_tensor(f"{chosen}/b")
    shapes = (facts.get("a", ""), facts.get("b", ""))
    if (facts and shapes not in _PRODUCTS) or (not facts and "conv" in chosen.split("/")[1]):
        raise vectors_error(
            f"{chosen} is a convolution, written as {' and '.join(shapes) if facts else 'image and filter'}",
            "products (M, K) and (K, N)",
            'gemmsim.capture(..., convolutions="im2col") writes forward convolutions as products.',
        )
    matrices = tuple(x.reshape(-1, *x.shape[-2:]) for x in (a, b))
    if a.dim() < 2 or b.dim() < 2 or a.shape[-1] != b.shape[-2]:
        raise vectors_error(
            f"{chosen}: shapes {tuple(a.shape)} and {tuple(b.shape)}",
            "(..., M, K) and (..., K, N)",
            "Capture it again.",
        )
    count = max(len(one) for one in matrices)
    if isinstance(batch, bool) or not isinstance(batch, int) or not 0 <= batch < count:
        raise vectors_error(f"{chosen}: batch={batch!r}", f"0 to {count - 1}", "Choose one of its matrices.")
    left, right = (one[batch if len(one) == count else 0] for one in matrices)
    return CapturedProduct(chosen, left, right, facts)


def _chosen(path: Path, name: str, pairs: list[str]) -> str:
    """The product that is meant."""
    if name in pairs:
        return name
    fitting = [pair for pair in pairs if not name or pair.startswith(f"{name}/")]
    if len(fitting) == 1:
        return fitting[0]
    near = difflib.get_close_matches(name, [*pairs, *(pair.split("/")[0] for pair in pairs)], n=1, cutoff=0.6)
    listed = fitting or pairs
    shown = ", ".join(listed[:_SHOWN]) + (f", ... ({len(listed)} in all)" if len(listed) > _SHOWN else "")
    what = f"'{path}' has {len(fitting)} products" + (f" that begin with '{name}'" if name else "")
    hint = f"Did you mean '{near[0]}'?" if near and not fitting else "Name one of them."
    raise vectors_error(what if fitting else f"'{path}' has no product '{name}'", shown or "none in this file", hint)


def _opened(path: Path) -> Any:
    if not os.path.isfile(path):
        raise vectors_error(f"there is no file '{path}'", "a file of gemmsim.capture", "Check its path.")
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise VectorsError(
            f"'{path}' needs safetensors; allowed: with it.\n  Install it with: pip install 'gemmsim[safetensors]'."
        ) from error
    try:
        return safe_open(str(path), framework="pt")
    except Exception as error:  # whatever the library says of a broken file
        raise vectors_error(f"'{path}': {error}", "a file of gemmsim.capture", "Check the file.") from error
