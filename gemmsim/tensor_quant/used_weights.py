"""Weights that quantisers take in while batches run: those that the layers really multiply, each once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from gemmsim.nn.undoing import naming
from gemmsim.nn.weights import current_weight, is_computed_elsewhere

from .layer_base import QuantLayer
from .max_calibrator import MaxCalibrator
from .quantizer import TensorQuantizer

__all__ = ["taking_weights"]


class _Seen:
    """What a quantiser took in last, to know it again."""

    def __init__(self) -> None:
        self.weight: Tensor | None = None
        self.mark: tuple[int, int] = (0, 0)

    def is_new(self, weight: Tensor) -> bool:
        """Whether ``weight`` has other values than the last one; it is the last one from now on."""
        weight, mark = weight.detach(), _mark(weight)
        last = self.weight
        same = (
            last is not None
            and _mark(last) == self.mark  # it was not written to meanwhile
            and (mark == self.mark or _equal(weight, last))
        )
        self.weight, self.mark = weight, mark
        return not same


def _mark(weight: Tensor) -> tuple[int, int]:
    """Where the values of ``weight`` are, and how often they were written to."""
    return weight.data_ptr(), weight._version


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)


@contextmanager
def taking_weights(layers: Mapping[str, QuantLayer], collecting: set[int]) -> Iterator[None]:
    """Inside, the weight quantisers of ``layers`` take in what each call gives them, once while it stays the same.

    Maxima are taken of each call. At the end weights of layers that no call reached are taken in as the next call would
    compute them; those that only the code around a layer sets are not.

    Args:
        layers: by name.
        collecting: identities of the quantisers that collect.
    """
    reached: set[int] = set()
    parts = {
        name: [q for q in layer.weight_quantizer.modules() if isinstance(q, TensorQuantizer) and id(q) in collecting]
        for name, layer in layers.items()
    }
    found = {id(q): q for held in parts.values() for q in held}
    handles = [q.register_forward_pre_hook(_choosing(_Seen(), reached)) for q in found.values()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    for name, layer in layers.items():
        module: Any = layer
        left = [q for q in parts[name] if id(q) not in reached]
        if left and not is_computed_elsewhere(module):
            for q in left:
                q.enable_calib()
            with naming(name):
                layer.weight_quantizer(current_weight(module))


def _choosing(seen: _Seen, reached: set[int]) -> Any:
    """A hook before a quantiser's call, which lets it collect or not."""

    def choose(q: TensorQuantizer, args: tuple[Any, ...]) -> None:
        reached.add(id(q))
        if isinstance(q._calibrator, MaxCalibrator) or seen.is_new(args[0]):
            q.enable_calib()
        else:
            q.disable_calib()

    return choose
