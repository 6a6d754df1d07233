"""``modelopt.torch.quantization.nn.modules.tensor_quantizer``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gemmsim.nn import Emulated
from gemmsim.tensor_quant import DescriptorError, QuantizerAttributeConfig, TensorQuantizer

__all__ = ["SequentialQuantizer", "TensorQuantizer"]


class SequentialQuantizer(Emulated, nn.Sequential):
    """Quantisers that are applied in sequence, such as int4 blocks and then E4M3.

    ``fake_quant`` and ``is_enabled`` are those of the first quantiser. ``disable``, ``enable``, ``reset_amax``,
    ``load_calib_amax`` and ``load_calib_bias`` act on each. During calibration each quantiser collects the input of the
    sequence.

    Raises:
        DescriptorError (ValueError): for anything except ``TensorQuantizer``.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> make, config = mtq.nn.TensorQuantizer, mtq.config.QuantizerAttributeConfig
        >>> mtq.nn.SequentialQuantizer(make(config(num_bits=8)), make(config(num_bits=4)))(torch.tensor([0.3, 7.0]))
        tensor([0., 7.])
    """

    def __init__(self, *quantizers: TensorQuantizer) -> None:
        others = [type(q).__name__ for q in quantizers if not isinstance(q, TensorQuantizer)]
        if others or not quantizers:
            asked = f"SequentialQuantizer of {', '.join(others) or 'nothing'}"
            raise DescriptorError(f"{asked}; allowed: one TensorQuantizer or more.\n  Make each one first.")
        super().__init__(*quantizers)

    @property
    def quantizers(self) -> list[TensorQuantizer]:
        """The quantisers in order."""
        return list(self)  # type: ignore[arg-type]

    @property
    def fake_quant(self) -> bool:
        """That of the first quantiser."""
        return self.quantizers[0].fake_quant

    @property
    def is_enabled(self) -> bool:
        """That of the first quantiser."""
        return self.quantizers[0].is_enabled

    def disable(self) -> None:
        """Return inputs as they are."""
        for q in self.quantizers:
            q.disable()

    def enable(self) -> None:
        """Undo ``disable``."""
        for q in self.quantizers:
            q.enable()

    def reset_amax(self) -> None:
        """Forget each amax, and what was collected."""
        for q in self.quantizers:
            q.reset_amax()

    def load_calib_amax(self, *args: Any, **kwargs: Any) -> None:
        """Take over what each quantiser collected; errors as ``TensorQuantizer.load_calib_amax``."""
        for q in self.quantizers:
            q.load_calib_amax(*args, **kwargs)

    def load_calib_bias(self) -> None:
        """Take over the bias that each quantiser collected."""
        for q in self.quantizers:
            q.load_calib_bias()

    def set_from_attribute_config(
        self, attributes: Sequence[Any] | Mapping[str, Any] | QuantizerAttributeConfig
    ) -> None:
        """Set a description for each quantiser in order, or one for all.

        Other numbers give a warning, and the rest is left. A dict changes only its fields.
        """
        if not isinstance(attributes, (list, tuple)):
            attributes = [attributes] * len(self)
        if len(attributes) != len(self):
            warnings.warn(f"{len(attributes)} descriptions of {len(self)} quantisers: the rest is left", stacklevel=2)
        for what, q in zip(attributes, self.quantizers, strict=False):
            q.set_from_attribute_config(what)

    def forward(self, inputs: Tensor) -> Tensor:
        """``inputs`` through each quantiser."""
        found: Tensor = super().forward(inputs)
        return found

    @staticmethod
    @contextmanager
    def convert_to_single_quantizer(model: nn.Module, indx: int = 0) -> Iterator[None]:
        """Inside, quantiser ``indx`` alone replaces each sequence. ``IndexError`` if it does not exist."""
        places: list[tuple[nn.Module, str, SequentialQuantizer]] = []
        for name, module in list(model.named_modules()):
            if isinstance(module, SequentialQuantizer):
                path, _, own = name.rpartition(".")
                places.append((model.get_submodule(path), own, module))
        chosen = [module[indx] for _, _, module in places]
        for (parent, own, _), one in zip(places, chosen, strict=True):
            setattr(parent, own, one)
        try:
            yield
        finally:
            for parent, own, module in places:
                setattr(parent, own, module)


def quantizers_of(model: torch.nn.Module) -> Iterator[tuple[str, TensorQuantizer]]:
    """(name, quantiser) of every ``TensorQuantizer`` in ``model``."""
    for name, module in model.named_modules():
        if isinstance(module, TensorQuantizer):
            yield name, module
