"""``capture``: writes operands of products to a file while a program computes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gemmsim.ops.errors import message

from ..aten_products import Windows
from ..module_paths import paths_of
from ..rules import ConfigError, matches
from .im2col import group_products, order_of_k, order_of_m
from .recorder import Found, Recorder
from .safetensors_writer import DTYPES, CaptureError, GrowingFile
from .trial_runs import training_step

__all__ = ["capture"]

_ROLES = ("fprop", "dgrad", "wgrad", "backward")
_CONVOLUTIONS = ("image", "im2col")
#: Shapes of the operands of a product, and the dimensions that are summed over: for every file, complete or not.
_ORIENTATION = {"a": "(..., M, K)", "b": "(..., K, N)", "k_dim_a": "-1", "k_dim_b": "-2"}
#: Role -> what the tensors of a convolution are that is written as PyTorch has it.
_OF_CONVOLUTION = {
    "fprop": ("image (N, C, ...)", "filter"),
    "dgrad": ("gradient of the result", "filter"),
    "wgrad": ("image (N, C, ...)", "gradient of the result"),
}


class capture:
    """Writes the operands of products, native and emulated, to a safetensors file: a context manager.

        with gs.capture(model, "layers.*", max_rows=256, to="operands.safetensors"):
            model(x).sum().backward()

    Each product gives two tensors, as they are before any cast of a spec: ``PATH/OPERATOR/ROLE/N/a`` (..., M, K) and
    ``.../b`` (..., K, N). PATH is the module's path ("-" outside modules), OPERATOR is "aten.mm", "gemmsim.matmul",
    ..., ROLE is "fprop", "dgrad" or "wgrad", and N counts such products. The metadata of the file say the orientation:
    "a" and "b" are the shapes above, "k_dim_a" (-1) and "k_dim_b" (-2) the reduction dimensions. "products" is a JSON
    object with operator, shapes and orders for each name without "/a" and "/b".

    A convolution gives image and filter, and the gradient of its weight gives image and gradient. With
    ``convolutions="im2col"`` forward convolutions are written as products. Products inside fused kernels are omitted,
    because no operator takes their operands. Memory does not grow with the file. The file appears under its name when
    the context ends. Before that, and if the context ends by an exception, it is next to its final path with ``.part``
    added to its name, and it can be read, too.

    Args:
        model: the model to which paths are relative; None: the outermost module called.
        patterns: patterns of module paths, as in ``Rule``; one or several, of which one must match.
        kinds: patterns of operators ("aten.mm", "*conv*", "gemmsim.*") and, for emulated products, of kinds ("linear",
            "sdpa.*").
        roles: "fprop", "dgrad", "wgrad", "backward"; one or several.
        max_rows: the largest number of rows that each matrix a gives, evenly spaced; None: all. Columns, which are the
            terms of sums, are always complete.
        convolutions: "image": image and filter, as PyTorch has them. "im2col": a forward convolution, other than a
            transposed one, gives one product for each group, ``PATH/im2col/fprop/N``: a has one row for each window
            (images, then output positions) and b one column for each filter; K runs over the channels of the group,
            slowest, then the kernel's rows and columns. ``qmatmul`` of these has the bits of ``qconv2d``.
        to: the file; an existing file is replaced at the end.

    Raises:
        ConfigError: for unknown roles, broken patterns, ``max_rows`` below 1, another word for ``convolutions``.
        CaptureError: in the context, if the file cannot be written; at its end, if no product matched, or if none of
            those that matched could be written, which the error distinguishes.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as one, gs.capture(to=one.name) as operands:
        ...     _ = torch.ones(2, 8) @ torch.ones(8, 4)
        >>> operands.count  # a and b
        2
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        patterns: str | Sequence[str] = "*",
        *,
        kinds: str | Sequence[str] = "*",
        roles: str | Sequence[str] = _ROLES,
        max_rows: int | None = None,
        convolutions: str = "image",
        to: str | Path = "operands.safetensors",
    ) -> None:
        if model is not None and not isinstance(model, nn.Module):
            asked = f"capture: {type(model).__name__} as the model"
            raise ConfigError(message(asked, "a module, or None", "Write capture(model, patterns)."))
        self.model = model
        self.patterns, self.kinds, self.roles = _several(patterns), _several(kinds), _several(roles)
        for pattern in (*self.patterns, *self.kinds):
            matches(pattern, "")
        if unknown := sorted(set(self.roles) - set(_ROLES)):
            raise ConfigError(message(f"capture: roles {unknown}", ", ".join(_ROLES), "Name some of these."))
        if max_rows is not None and (not isinstance(max_rows, int) or max_rows < 1):
            raise ConfigError(
                message(f"capture: max_rows={max_rows!r}", "None, or 1 and more", "Leave it out for all.")
            )
        if convolutions not in _CONVOLUTIONS:
            asked = f"capture: convolutions={convolutions!r}"
            raise ConfigError(message(asked, " or ".join(map(repr, _CONVOLUTIONS)), "Use one of them."))
        self.max_rows, self.convolutions, self.path = max_rows, convolutions, Path(to)
        self._open: list[_Writer] = []

    def __enter__(self) -> GrowingFile:
        """Opens the file and returns it; its ``count`` and ``size`` grow.

        Raises:
            CaptureError: if the file cannot be made.
        """
        writer = _Writer(self)
        try:
            writer.__enter__()
        except BaseException:
            writer.file.abandon()
            raise
        self._open.append(writer)
        return writer.file

    def __exit__(self, kind: Any, *error: Any) -> None:
        """Completes the file.

        Raises:
            CaptureError: if it cannot be written, or no product matched.
        """
        writer = self._open.pop()
        writer.__exit__(kind, *error)
        if kind is not None or not writer.file.count:
            writer.file.abandon()
        if kind is None and not writer.file.count:
            writer.file.partial.unlink(missing_ok=True)
            raise self._nothing(writer)
        if kind is None:
            writer.file.close()

    def _nothing(self, writer: _Writer) -> CaptureError:
        """The error that says why the file is empty."""
        if writer.inside:
            asked = f"capture: {_first(writer.inside)}: inside one native operator, which does not expose its operands"
            do = (
                "Open gemmsim.emulate around the model, which computes such a layer product by product, or take a "
                "layer of gemmsim.nn (QLSTM, QGRU, QMultiheadAttention)."
            )
            return CaptureError(message(asked, "products that are separate operators", do))
        if writer.without_values:
            names = _first(writer.without_values)
            asked = f"capture: {names}: operands without values, or of a dtype that files cannot hold"
            do = "Run the model on real tensors; gemmsim.audit lists products without values, too."
            return CaptureError(message(asked, f"values of {', '.join(map(_short, DTYPES))}", do))
        asked = f"capture: patterns {self.patterns}, kinds {self.kinds}, roles {self.roles} match nothing"
        seen = _first(writer.seen) or "no product at all"
        return CaptureError(message(asked, f"what was multiplied: {seen}", "Change patterns, kinds or roles."))

    def run(self, *inputs: Any, **kwargs: Any) -> Path:
        """Captures one training step of the model, as ``audit(model, ...)`` runs it, and returns the file's path.

        The step is a forward pass, and a backward pass from the sum of its outputs.

        Raises:
            ConfigError: without a model.
            CaptureError: as in the context.

        Example:
            >>> import pathlib, tempfile
            >>> with tempfile.NamedTemporaryFile() as one:
            ...     operands = gs.capture(torch.nn.Linear(4, 2), to=one.name)
            ...     print(operands.run(torch.ones(3, 4)) == pathlib.Path(one.name))
            True
        """
        if self.model is None:
            raise ConfigError(message("capture().run without a model", "capture(model).run(x)", "Give the model."))
        with self:
            training_step(self.model, inputs, kwargs)
        return self.path


class _Writer(Recorder):
    """Writes operands to the file.

    ``seen``: names of all products. The next two are among those that the options select. ``inside``: products inside
    one operator that does not take their operands. ``without_values``: products whose operands cannot be written.
    """

    def __init__(self, options: capture) -> None:
        super().__init__()
        self.options = options
        if options.model is not None:
            self.trail.places.paths.update(paths_of(options.model))
        self.file = GrowingFile(options.path, {"made_by": "gemmsim.capture", "format": "1", **_ORIENTATION})
        self.counts: dict[str, int] = {}
        self.seen: set[str] = set()
        self.inside: set[str] = set()
        self.without_values: set[str] = set()

    def before(self, found: Found) -> None:
        leaf, path = found.leaf, found.module or "-"
        name = f"{path}/{found.op}/{found.role}"
        self.seen.add(name)
        if not self._wanted(found):
            return
        a, b = leaf.a, leaf.b
        if a is None or b is None:
            self.inside.add(name)
            return
        if not (_has_values(a) and _has_values(b)):
            self.without_values.add(name)
            return
        if leaf.windows is not None and self.options.convolutions == "im2col" and found.role == "fprop":
            self._add_windows(found, a, b, leaf.windows)
        elif "conv" in found.op:
            shapes = _OF_CONVOLUTION.get(found.role, ("tensor of a convolution",) * 2)
            self._add(name, a, b, {"operator": found.op, "a": shapes[0], "b": shapes[1]})
        else:
            at = self._chosen(a.shape[-2], a.device)
            rows = a if at is None else a.index_select(-2, at)
            self._add(name, rows, b, {"operator": found.op, "a": _ORIENTATION["a"], "b": _ORIENTATION["b"]})

    def _add(self, name: str, a: Tensor, b: Tensor, facts: Mapping[str, object]) -> None:
        """Writes a pair under the next number of its name."""
        n = self.counts.get(name, 0)
        self.counts[name] = n + 1
        self.file.add(f"{name}/{n}/a", a)
        self.file.add(f"{name}/{n}/b", b)
        self.file.describe(f"{name}/{n}", facts)

    def _add_windows(self, found: Found, image: Tensor, weight: Tensor, where: Windows) -> None:
        """Writes the products of a convolution's groups."""
        axes = len(where.output_size)
        at = self._chosen(image.shape[0] * prod(where.output_size), image.device)
        for group, a, b in group_products(image, weight, where, at):
            facts = {
                "operator": found.op,
                "a": "(M, K)",
                "b": "(K, N)",
                "order_of_k": order_of_k(axes),
                "order_of_m": order_of_m(axes),
                "image": [*image.shape],
                "kernel": [*weight.shape[2:]],
                **{key: [*value] for key, value in zip(where._fields[:-1], where[:-1], strict=True)},
                "groups": where.groups,
                "group": group,
            }
            self._add(f"{found.module or '-'}/im2col/{found.role}", a, b, facts)

    def _wanted(self, found: Found) -> bool:
        options, site = self.options, found.leaf.site
        kinds = (found.op, "" if site is None else site.rpartition("|")[2])
        return (
            found.role in options.roles
            and any(matches(pattern, found.module) for pattern in options.patterns)
            and any(matches(pattern, kind) for pattern in options.kinds for kind in kinds)
        )

    def _chosen(self, rows: int, device: torch.device) -> Tensor | None:
        """Indices of at most ``max_rows`` rows, including the first and the last; None for all."""
        most = self.options.max_rows
        if most is None or rows <= most:
            return None
        return torch.linspace(0, rows - 1, most, dtype=torch.float64, device=device).round().long()


def _has_values(t: Tensor) -> bool:
    return t.dtype in DTYPES and not t.is_meta and type(t).__name__ != "FakeTensor"


def _first(names: set[str]) -> str:
    """The first of the names in sorted order."""
    return ", ".join(sorted(names)[:12])


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _several(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
