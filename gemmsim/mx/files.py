"""Block-format tensors in safetensors files: plain tensors of codes and scales, and a note of what they mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from gemmsim.ops.errors import message

from .errors import MXFileError
from .tensor import MXTensor

__all__ = ["flatten_tensors", "load_file", "save_file", "unflatten_tensors"]

#: Key of the note among a file's metadata; its value is a JSON object from names to fields.
_NOTE = "gemmsim.mx"
_PARTS = ("codes", "scales", "tensor_scale")


def flatten_tensors(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors as plain contiguous ones, and metadata from which ``unflatten_tensors`` has them back.

    An ``MXTensor`` named ``w`` becomes ``w.codes``, ``w.scales`` and, if it has one, ``w.tensor_scale``; others stay.

    Raises:
        MXFileError: where such a name is taken.
    """
    plain: dict[str, Tensor] = {}
    notes: dict[str, dict[str, object]] = {}
    for name, tensor in tensors.items():
        parts = {name: tensor}
        if isinstance(tensor, MXTensor):
            inside = {part: getattr(tensor, part) for part in _PARTS if getattr(tensor, part) is not None}
            # Views of a tensor have one scale; files take no memory twice.
            parts = {f"{name}.{part}": value if value.dim() else value.clone() for part, value in inside.items()}
            notes[name] = {
                "format": str(tensor.format),
                "dim": tensor.block_dim,
                "size": tensor.shape[tensor.block_dim],
                "packing": tensor.packing,
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "act_format": None if tensor.act_format is None else str(tensor.act_format),
            }
        taken = sorted(parts.keys() & (plain.keys() | (tensors.keys() - {name})))
        if taken:
            asked = f"mx.flatten_tensors: {name!r} needs the name {taken[0]!r}, which another tensor already has"
            raise MXFileError(message(asked, "names that are free", "Rename one of the two."))
        plain.update({key: value.detach().contiguous() for key, value in parts.items()})
    return plain, {_NOTE: json.dumps(notes, sort_keys=True)} if notes else {}


def unflatten_tensors(plain: Mapping[str, Tensor], metadata: Mapping[str, str] | None) -> dict[str, Tensor]:
    """The tensors that ``flatten_tensors`` took apart; without its note the plain ones as they are.

    Raises:
        MXFileError: for a note that cannot be read, or names tensors that are not there.
        FormatError, ShapeError: for parts that do not go together.
    """
    tensors = dict(plain)
    try:
        notes = json.loads((metadata or {}).get(_NOTE, "{}"))
        for name, note in notes.items():
            dtype = getattr(torch, note["dtype"])
            codes, scales = tensors.pop(f"{name}.codes"), tensors.pop(f"{name}.scales")
            tensors[name] = MXTensor(
                codes,
                scales,
                note["format"],
                dim=note["dim"],
                size=note["size"],
                packing=note["packing"],
                tensor_scale=tensors.pop(f"{name}.tensor_scale", None),
                dtype=dtype,
                act_format=note["act_format"],
            )
    except (KeyError, AttributeError, json.JSONDecodeError) as error:
        asked = f"mx.unflatten_tensors: {type(error).__name__} for {error}"
        allowed = "tensors and metadata that flatten_tensors gave"
        raise MXFileError(message(asked, allowed, "Load the file's metadata with it.")) from error
    return tensors


def save_file(tensors: Mapping[str, Tensor], path: str | Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file in which block-format tensors are codes and scales; ``load_file`` has them back.

    Raises:
        MXFileError: for a name or a metadata key that is taken.
        ModuleNotFoundError: without safetensors (the extra gemmsim[safetensors]).
    """
    from safetensors.torch import save_file as write

    plain, note = flatten_tensors(tensors)
    if _NOTE in (metadata or {}):
        raise MXFileError(message(f"mx.save_file: metadata[{_NOTE!r}]", "other keys", "Leave that key to gemmsim."))
    write(plain, str(path), {**(metadata or {}), **note})


def load_file(path: str | Path, device: str = "cpu") -> dict[str, Tensor]:
    """The tensors of a safetensors file, those that ``save_file`` took apart put together again.

    Raises:
        MXFileError: for a note that does not fit the file.
        ModuleNotFoundError: without safetensors (the extra gemmsim[safetensors]).
    """
    from safetensors import safe_open

    with safe_open(str(path), framework="pt", device=device) as file:
        plain = {name: file.get_tensor(name) for name in file.keys()}
        return unflatten_tensors(plain, file.metadata())
