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
    """Return the tensors as plain contiguous ones, and the metadata from which ``unflatten_tensors`` restores them.

    An ``MXTensor`` named ``w`` becomes ``w.codes``, ``w.scales`` and, if it has one, ``w.tensor_scale``. Other
    tensors keep their names.

    Raises:
        MXFileError: if another tensor has such a name.

    Example:
        >>> weight = gs.mx.to_mx(torch.ones(2, 32), "mxfp8_e4m3")
        >>> plain, metadata = gs.mx.flatten_tensors({"w": weight, "b": torch.zeros(2)})
        >>> {name: tuple(tensor.shape) for name, tensor in plain.items()}
        {'w.codes': (2, 32), 'w.scales': (2, 1), 'b': (2,)}
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
    """Restore the tensors that ``flatten_tensors`` split; without its metadata, return the plain ones unchanged.

    Raises:
        MXFileError: for metadata that cannot be read or that names missing tensors.
        FormatError, ShapeError: for parts that do not fit together.

    Example:
        >>> plain, metadata = gs.mx.flatten_tensors({"w": gs.mx.to_mx(torch.ones(2, 32), "mxfp8_e4m3")})
        >>> gs.mx.unflatten_tensors(plain, metadata)["w"].shape
        torch.Size([2, 32])
        >>> sorted(gs.mx.unflatten_tensors(plain, None))
        ['w.codes', 'w.scales']
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
    """Write a safetensors file in which block-format tensors are stored as codes and scales; ``load_file`` restores
    them.

    Raises:
        MXFileError: for a name or a metadata key that is already used.
        ModuleNotFoundError: without safetensors (the extra gemmsim[safetensors]).

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "model.safetensors")
        ...     gs.mx.save_file({"w": gs.mx.to_mx(torch.ones(1024, 1024), "mxfp4")}, path)
        ...     print(f"{path.stat().st_size * 8 / 1024**2:.2f} bits an element")
        4.25 bits an element
    """
    from safetensors.torch import save_file as write

    plain, note = flatten_tensors(tensors)
    if _NOTE in (metadata or {}):
        raise MXFileError(message(f"mx.save_file: metadata[{_NOTE!r}]", "other keys", "Leave that key to gemmsim."))
    write(plain, str(path), {**(metadata or {}), **note})


def load_file(path: str | Path, device: str = "cpu") -> dict[str, Tensor]:
    """Load a safetensors file; the tensors that ``save_file`` split are ``MXTensor``s again.

    Raises:
        MXFileError: for metadata that does not fit the file.
        ModuleNotFoundError: without safetensors (the extra gemmsim[safetensors]).

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     gs.mx.save_file({"w": gs.mx.to_mx(torch.ones(2, 32), "mxfp4")}, f"{folder}/model.safetensors")
        ...     print(gs.mx.load_file(f"{folder}/model.safetensors")["w"].format)
        mxfp4
    """
    from safetensors import safe_open

    with safe_open(str(path), framework="pt", device=device) as file:
        plain = {name: file.get_tensor(name) for name in file.keys()}
        return unflatten_tensors(plain, file.metadata())
