"""Operands of a model's linear layers, written to a file while the model runs.

Forward and backward hooks hand each tensor over as it comes up, and it is written at once: memory holds one tensor more
than the model's own pass needs. The file is safetensors with up to three matrices for each layer, rows of all calls of
a layer below each other:

    NAME/input   (T, in)     what came in, leading dimensions as rows
    NAME/weight  (out, in)
    NAME/grad    (T, out)    gradient of what went out

of which the layer's three products are made: fprop ``input @ weight.T``, dgrad ``grad @ weight``, wgrad
``grad.T @ input``.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import math
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.utils.hooks import RemovableHandle

from gemmsim._files import replacing
from gemmsim.nn.weights import current_weight

from .errors import StudyError, nearest
from .files import make_folder
from .tensor_files import TensorFile, tensor_shapes

__all__ = ["ROLES", "capture_layers", "chosen_names", "is_of_products", "layer_shapes", "operands_of", "products_in"]

#: The three products of a linear layer.
ROLES = ("fprop", "dgrad", "wgrad")
#: Name of a model that is a linear layer itself.
_ROOT = "model"
_TYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def capture_layers(
    model: nn.Module,
    inputs: Any,
    path: str | Path,
    *,
    layers: Sequence[str] = ("*",),
    roles: Sequence[str] = ("fprop",),
    loss: Callable[[Any], Tensor] | None = None,
) -> list[str]:
    """Run ``model`` once, write the operands of its linear layers to ``path``, and return the names of those layers.

    Linear layers are ``torch.nn.Linear`` and its subclasses, including ``gemmsim.nn.QLinear``, that the pass calls as
    modules. The model computes what it always computes, emulated layers with their formats. Parameters and their
    gradients do not change. Weights are those that the calls use, no matter what sets them: hooks, parametrisations,
    the code around the layer. Activation checkpointing must be off, because it runs layers twice.

    Args:
        inputs: a tuple for ``model(*inputs)``, a mapping for ``model(**inputs)``, otherwise ``model(inputs)``.
        path: the file; an existing file is replaced once the new one is complete.
        layers: patterns over names of modules, as in ``fnmatch``.
        roles: the products whose operands are needed: with dgrad or wgrad, the backward pass runs, too.
        loss: function of the model's output that gives the number to differentiate; by default the output itself if
            it is a single number, or its attribute ``loss``.

    Raises:
        StudyError: for a pattern without a match (the message suggests names), no linear layer, a layer that is not
            called, or with another weight at another call, an unknown role, no loss to differentiate, a folder that
            cannot be made.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> with TemporaryDirectory() as folder:
        ...     print(gs.study.capture_layers(model, torch.ones(3, 4), f"{folder}/operands.safetensors"))
        ['0', '2']
    """
    for role in roles:
        if role not in ROLES:
            raise StudyError(f"role {role!r}; allowed: {', '.join(ROLES)}.{nearest(str(role), ROLES)}")
    path = Path(path)
    make_folder(path.parent)
    backward = any(role != "fprop" for role in roles)
    with tempfile.TemporaryFile(dir=path.parent) as spooled:
        spool = _Spool(spooled)
        with _hooked(model, layers, spool, backward) as names:
            with torch.set_grad_enabled(backward):
                output = _call(model, inputs)
            if backward:
                _differentiate(model, output, loss)
        called = {name for name, part, _ in spool.pieces if part == "input"}
        if missing := [name for name in names if name not in called]:
            raise StudyError(
                f"the pass does not call {', '.join(missing[:6])}; leave out such layers, or give other inputs."
            )
        spool.write(path, names, {"made_by": "gemmsim.study.capture_layers", "roles": ",".join(roles)})
    return names


def layer_shapes(model: nn.Module, inputs: Any, layers: Sequence[str] = ("*",)) -> dict[str, tuple[int, int, int]]:
    """(T, in, out) of each linear layer that a pass calls, by a pass without gradients.

    Raises:
        StudyError: a pattern without a match, no linear layer that is called.
    """
    found: dict[str, int] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    names = chosen_names(_linear(model), layers)
    handles = []
    for name in names:

        def count(module: nn.Module, args: tuple[Any, ...], output: Any, name: str = name) -> None:
            found[name] = found.get(name, 0) + math.prod(args[0].shape[:-1])

        def measure(module: nn.Linear, weight: Tensor, name: str = name) -> None:
            shapes[name] = tuple(weight.shape)

        layer = _module(model, name)
        handles += [layer.register_forward_hook(count), _on_weight(layer, measure)]
    try:
        with torch.no_grad():
            _call(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    if not found:
        raise StudyError(f"the pass calls none of {', '.join(names[:6])}; give other inputs or layers.")
    return {name: (found[name], shapes[name][1], shapes[name][0]) for name in names if name in found}


def chosen_names(known: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Those of ``known`` that a pattern matches, in their order.

    Raises:
        StudyError: a pattern without a match; it tells near names.
    """
    if not known:
        raise StudyError("there is no linear layer; allowed: models with torch.nn.Linear or gemmsim.nn.QLinear.")
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            shown = ", ".join(known[:12]) + (f", ... ({len(known)} in all)" if len(known) > 12 else "")
            raise StudyError(
                f"no layer matches {pattern!r}.{nearest(pattern.strip('*.'), known)} Allowed: {shown}, and patterns of "
                "them such as '*'."
            )
    return [name for name in known if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def _linear(model: nn.Module) -> list[str]:
    return [name or _ROOT for name, module in model.named_modules() if isinstance(module, nn.Linear)]


def _module(model: nn.Module, name: str) -> nn.Linear:
    found = model if name == _ROOT else model.get_submodule(name)
    assert isinstance(found, nn.Linear)
    return found


def _call(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def _on_weight(layer: nn.Linear, use: Callable[[nn.Linear, Tensor], None]) -> RemovableHandle:
    """A hook that hands ``use`` the weight of each call.

    A parametrised weight is computed at every look: before the call, as the call computes it. Any other is what the
    layer has right after its own ``forward``.
    """
    if is_parametrized(layer, "weight"):
        return layer.register_forward_pre_hook(lambda module, args: use(module, current_weight(module)))
    return layer.register_forward_hook(lambda module, args, output: use(module, module.weight), prepend=True)


@contextlib.contextmanager
def _hooked(model: nn.Module, layers: Sequence[str], spool: _Spool, backward: bool) -> Iterator[list[str]]:
    """Hooks on the chosen layers while the body runs; it gets their names."""
    names = chosen_names(_linear(model), layers)
    calls = dict.fromkeys(names, 0)
    handles = []
    for name in names:

        def take(module: nn.Module, args: tuple[Any, ...], output: Any, name: str = name) -> None:
            call = calls[name]
            calls[name] += 1
            spool.add(name, "input", call, args[0])
            if backward and output.requires_grad:
                output.register_hook(lambda grad: spool.add(name, "grad", call, grad))

        def keep(module: nn.Linear, weight: Tensor, name: str = name) -> None:
            spool.add_weight(name, weight)

        layer = _module(model, name)
        handles += [layer.register_forward_hook(take), _on_weight(layer, keep)]
    try:
        yield names
    finally:
        for handle in handles:
            handle.remove()


def _differentiate(model: nn.Module, output: Any, loss: Callable[[Any], Tensor] | None) -> None:
    """The backward pass; gradients of parameters are dropped as they come, those there were before put back."""
    value = loss(output) if loss is not None else getattr(output, "loss", output)
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
        raise StudyError(
            "dgrad and wgrad need one number to differentiate, and the model's output is none; give loss=, or a third "
            "value beside model and inputs: a function of the output."
        )
    parameters = [p for p in model.parameters() if p.requires_grad]
    before = [p.grad for p in parameters]
    handles = [p.register_post_accumulate_grad_hook(_drop) for p in parameters]
    try:
        for p in parameters:
            p.grad = None
        value.backward()
    finally:
        for handle in handles:
            handle.remove()
        for p, grad in zip(parameters, before, strict=True):
            p.grad = grad


def _drop(parameter: Tensor) -> None:
    parameter.grad = None


class _Spool:
    """Tensors in a file as they come, and where each lies."""

    def __init__(self, file: Any) -> None:
        self.file = file
        #: Of each layer's last weight that is a parameter: where its values are, how often they were written to.
        self.parameters: dict[str, tuple[nn.Parameter, tuple[int, int]]] = {}
        #: (layer, part, call) -> (offset, bytes, rows, columns, type)
        self.pieces: dict[tuple[str, str, int], tuple[int, int, int, int, torch.dtype]] = {}

    def add(self, name: str, part: str, call: int, tensor: Tensor) -> None:
        """Writes ``tensor`` as a matrix."""
        values = tensor.detach().to("cpu")
        if values.dtype not in _TYPES:
            values = values.float()
        matrix = values.reshape(math.prod(values.shape[:-1]), values.shape[-1]).contiguous()
        offset = self.file.seek(0, 2)
        if matrix.numel():
            self.file.write(matrix.view(torch.uint8).numpy().data)
        size = matrix.numel() * matrix.element_size()
        self.pieces[name, part, call] = (offset, size, matrix.shape[0], matrix.shape[1], matrix.dtype)

    def add_weight(self, name: str, weight: Tensor) -> None:
        """Writes the weight of a layer's first call, and asks whether later ones have the same.

        Raises:
            StudyError: they do not.
        """
        known = self.parameters.get(name)
        if isinstance(weight, nn.Parameter):
            mark = weight.data_ptr(), weight._version
            if known is not None and known[0] is weight and known[1] == mark:
                return
            self.parameters[name] = weight, mark
        first = self.pieces.pop((name, "weight", 0), None)
        self.add(name, "weight", 0, weight)
        if first is not None and not self._are_same(first, self.pieces[name, "weight", 0]):
            raise StudyError(
                f"{name} is called with different weights, and a file has one of each layer; give inputs with which it "
                "is called once."
            )

    def _are_same(self, a: tuple[int, int, int, int, torch.dtype], b: tuple[int, int, int, int, torch.dtype]) -> bool:
        return a[1:] == b[1:] and self._read(a) == self._read(b)

    def _read(self, piece: tuple[int, int, int, int, torch.dtype]) -> bytes:
        self.file.seek(piece[0])
        found: bytes = self.file.read(piece[1])
        return found

    def write(self, path: Path, names: Sequence[str], metadata: Mapping[str, str]) -> None:
        """The safetensors file: header, then the pieces of each matrix one after the other."""
        header: dict[str, Any] = {"__metadata__": dict(metadata)}
        order: list[tuple[int, int]] = []
        end = 0
        for name in names:
            for part in ("input", "weight", "grad"):
                pieces = self._pieces(name, part)
                if not pieces:
                    continue
                size = sum(piece[1] for piece in pieces)
                shape = [sum(piece[2] for piece in pieces), pieces[0][3]]
                header[f"{name}/{part}"] = {
                    "dtype": _TYPES[pieces[0][4]],
                    "shape": shape,
                    "data_offsets": [end, end + size],
                }
                order += [(piece[0], piece[1]) for piece in pieces]
                end += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with replacing(path) as temporary, temporary.open("wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for offset, size in order:
                self.file.seek(offset)
                _copy(self.file, out, size)

    def _pieces(self, name: str, part: str) -> list[tuple[int, int, int, int, torch.dtype]]:
        """Those of all calls, in order; a call without a gradient has one of zeros if others have some."""
        calls = [call for n, p, call in self.pieces if n == name and p == ("input" if part == "grad" else part)]
        there = [self.pieces.get((name, part, call)) for call in sorted(calls)]
        known = [piece for piece in there if piece is not None]
        if not known or len(known) == len(there):
            return known
        for call, piece in enumerate(there):
            if piece is None:
                rows = self.pieces[name, "input", call][2]
                self.add(name, part, call, torch.zeros(rows, known[0][3], dtype=known[0][4]))
        return self._pieces(name, part)


def _copy(source: Any, out: Any, size: int) -> None:
    while size:
        block = source.read(min(size, 2**20))
        out.write(block)
        size -= len(block)


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
