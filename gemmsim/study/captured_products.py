"""Products in a file that ``gemmsim.capture`` wrote: their sizes, and their operands as matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from .capture import ROLES, chosen_names
from .errors import StudyError
from .tensor_files import TensorFile, tensor_shapes

__all__ = ["is_of_products", "operands_of", "products_in"]

#: (layer, role) -> name in the file, M, K, N.
Products = dict[tuple[str, str], tuple[str, int, int, int]]


def is_of_products(path: Path) -> bool:
    """Whether a file holds pairs of operands, and not inputs, weights and gradients of layers.

    Raises:
        StudyError: no such file, or another kind of file.
    """
    names = [key for key in tensor_shapes(path) if key.count("/") == 4]
    return bool(names) and all(name.rpartition("/")[2] in "ab" for name in names)


def products_in(path: Path, roles: Sequence[str], layers: Sequence[str]) -> Products:
    """The products of these roles in layers that a pattern matches.

    A layer is a module's path; the second, third, ... product of a role in it are "PATH#1", "PATH#2". Of a batch the
    first matrices are taken. Convolutions and products without elements are left out.

    Raises:
        StudyError: a file without such products, a pattern without a match.
    """
    found = _all(tensor_shapes(path))
    there = {name: product for name, product in found.items() if name[1] in roles}
    if not there:
        known = ", ".join(sorted({role for _, role in found})) or "none"
        raise StudyError(f"'{path}' holds no product of {', '.join(roles)}; allowed: roles in it: {known}.")
    names = set(chosen_names(list(dict.fromkeys(layer for layer, _ in there)), layers))
    return {name: product for name, product in there.items() if name[0] in names}


def operands_of(path: Path, name: str, *, whole: bool = False) -> tuple[Tensor, Tensor]:
    """Both matrices, (M, K) and (K, N); of a batch the first ones. ``whole``: of integers, too."""
    a, b = (TensorFile(path, f"{name}/{which}").load(whole=whole) for which in "ab")
    return a.reshape(-1, *a.shape[-2:])[0], b.reshape(-1, *b.shape[-2:])[0]


def _all(shapes: Mapping[str, tuple[int, ...]]) -> Products:
    found: Products = {}
    calls: dict[tuple[str, str], int] = {}
    for key, a in shapes.items():
        name, _, which = key.rpartition("/")
        if which != "a" or name.count("/") != 3 or f"{name}/b" not in shapes:
            continue
        path, operator, role, _ = name.split("/")
        b = shapes[f"{name}/b"]
        if "conv" in operator or role not in ROLES or 0 in (*a, *b) or len(a) < 2:
            continue
        n = calls.get((path, role), 0)
        calls[path, role] = n + 1
        found[f"{path}#{n}" if n else path, role] = (name, a[-2], a[-1], b[-1])
    return found
