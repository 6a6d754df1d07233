"""Tensors from files that people have: .npy, .safetensors and .pt, read without running anything in them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .errors import StudyError, nearest

__all__ = ["TensorFile", "digest_of", "file_digest", "tensor_file", "tensor_shapes"]

_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
_SUFFIXES = (".npy", ".safetensors", ".pt", ".pth")


@dataclass(frozen=True)
class TensorFile:
    """One tensor in a file: ``key`` names it where a file holds several."""

    path: Path
    key: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.key}" if self.key else str(self.path)

    @property
    def name(self) -> str:
        """The file's name without its folder, and the key."""
        return f"{self.path.name}:{self.key}" if self.key else self.path.name

    def shape(self) -> tuple[int, ...]:
        """Its shape. Of .npy and .safetensors only the header is read.

        Raises:
            StudyError: as ``load``, but for the values.
        """
        return self._read(header=True)

    def load(self, *, whole: bool = False) -> Tensor:
        """Its values: float64 as float64, any other floating-point type in float32, which holds them exactly.

        ``whole``: integers, which are refused otherwise, come as they are.

        Raises:
            StudyError: no such file or key (it tells near ones), a file that cannot be read, something that is no
                tensor or holds whole numbers, truth values or complex numbers.
        """
        found: Tensor = self._read(header=False)
        if whole and found.dtype in _INTEGERS:
            return found
        if not found.is_floating_point():
            raise StudyError(
                f"{self} holds {str(found.dtype).removeprefix('torch.')}; allowed: floating-point numbers. Convert it "
                "first, with the scale that it is meant to have."
            )
        return found if found.dtype == torch.float64 else found.float()

    def _read(self, *, header: bool) -> Any:
        suffix = self.path.suffix.lower()
        if suffix not in _SUFFIXES:
            raise StudyError(f"cannot read a tensor from '{self.path}'; allowed: {', '.join(_SUFFIXES)}.")
        if not os.path.isfile(self.path):
            there = (
                sorted(p.name for p in self.path.parent.glob(f"*{suffix}")) if os.path.isdir(self.path.parent) else []
            )
            raise StudyError(
                f"there is no file '{self.path}'.{nearest(self.path.name, there)} Allowed: {', '.join(_SUFFIXES)}, by "
                "a whole path or one from the current folder."
            )
        read = {".npy": self._npy, ".safetensors": self._safetensors}.get(suffix, self._pt)
        try:
            return read(header)
        except StudyError:
            raise
        except Exception as error:  # whatever a library says of a broken file
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            if reason.startswith("Weights only load failed"):  # whose advice is an option that this has not
                reason = (
                    "it holds more than tensors, which is not loaded. Save a tensor, a dict of them or .safetensors."
                )
            raise StudyError(f"cannot read a tensor from '{self.path}': {reason}") from error

    def _npy(self, header: bool) -> Any:
        if self.key:
            raise StudyError(f"'{self.path}' holds one array without a name; leave out ':{self.key}'.")
        with self.path.open("rb") as opened:
            if opened.read(6) != b"\x93NUMPY":
                raise StudyError(f"'{self.path}' is not a .npy file, despite its name.")
        array = np.load(self.path, mmap_mode="r" if header else None, allow_pickle=False)
        if header:
            return array.shape
        if array.dtype.kind not in "fiub":
            raise StudyError(f"{self} holds {array.dtype}; allowed: floating-point numbers.")
        if array.dtype.kind == "u" and array.dtype.itemsize > 1:
            array = array.astype(np.int64)  # PyTorch has no other unsigned types to compute with
        return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))))

    def _safetensors(self, header: bool) -> Any:
        with _opened(self.path) as opened:
            key = self._chosen(list(opened.keys()))
            return tuple(opened.get_slice(key).get_shape()) if header else opened.get_tensor(key)

    def _pt(self, header: bool) -> Any:
        try:
            found = torch.load(self.path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # files of an older layout cannot be mapped
            found = torch.load(self.path, map_location="cpu", weights_only=True)
        if isinstance(found, dict):
            found = found[self._chosen([key for key, value in found.items() if isinstance(value, Tensor)])]
        elif self.key:
            raise StudyError(f"'{self.path}' holds no names; leave out ':{self.key}'.")
        if not isinstance(found, Tensor):
            raise StudyError(f"'{self.path}' holds a {type(found).__name__}; allowed: a tensor, or tensors by name.")
        found = found.detach()
        return tuple(found.shape) if header else found

    def _chosen(self, there: Sequence[str]) -> str:
        if not self.key and len(there) == 1:
            return there[0]
        if self.key in there:
            return self.key
        names = ", ".join(sorted(there)[:12]) + (f", ... ({len(there)} in all)" if len(there) > 12 else "")
        if not self.key:
            raise StudyError(f"'{self.path}' holds several tensors; name one after a colon: {names or 'none there'}.")
        raise StudyError(
            f"'{self.path}' holds no {self.key!r}.{nearest(self.key, there)} Allowed after the colon: "
            f"{names or 'nothing, it holds no tensors by name'}."
        )


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors in a .safetensors file, in its order where safetensors tells it; only the header is read.

    Raises:
        StudyError: no such file, or another kind of file.
    """
    if not os.path.isfile(path):
        raise StudyError(
            f"there is no file '{path}'. Allowed: a .safetensors file of captured operands; gemmsim.capture and "
            "study.capture_layers write one."
        )
    try:
        with _opened(path) as opened:
            keys = getattr(opened, "offset_keys", opened.keys)()
            return {key: tuple(opened.get_slice(key).get_shape()) for key in keys}
    except StudyError:
        raise
    except Exception as error:  # whatever the library says of a broken file
        raise StudyError(f"cannot read '{path}' as safetensors: {error}") from error


def _opened(path: Path) -> Any:
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise StudyError(f"'{path}' needs safetensors. Install it with: pip install 'gemmsim[safetensors]'.") from error
    return safe_open(str(path), framework="pt")


def tensor_file(text: str) -> TensorFile:
    """Read ``FILE`` or ``FILE:KEY``: a colon after a known ending separates the two.

    Example:
        >>> gs.study.tensor_file("model.safetensors:layers.0.weight").key
        'layers.0.weight'
    """
    for suffix in _SUFFIXES:
        head, found, key = text.partition(suffix + ":")
        if found:
            return TensorFile(Path(head + suffix), key)
    return TensorFile(Path(text))


def file_digest(path: Path) -> str:
    """16 hexadecimal digits of a file's bytes."""
    found = hashlib.sha256()
    with path.open("rb") as opened:
        while block := opened.read(2**20):
            found.update(block)
    return found.hexdigest()[:16]


def digest_of(*tensors: Tensor) -> str:
    """16 hexadecimal digits of shapes, types and bytes."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(f"{tuple(tensor.shape)}|{tensor.dtype}|".encode())
        found.update(tensor.contiguous().view(torch.uint8).numpy().data if tensor.numel() else b"")
    return found.hexdigest()[:16]
