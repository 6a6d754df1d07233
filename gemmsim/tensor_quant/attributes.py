"""The attributes of a quantiser as properties, which may be changed one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from .config import QuantizerAttributeConfig
from .grids import ELEMENTS

__all__ = ["QuantizerAttributes", "updated"]


def updated(config: QuantizerAttributeConfig, changes: Mapping[str, Any]) -> QuantizerAttributeConfig:
    """``config`` with these fields changed; ``axis`` and ``block_sizes``, which exclude each other, drop the other.

    Raises:
        DescriptorError, BitsError, BlockSizeError: as ``QuantizerAttributeConfig``.
    """
    values = dict(changes)
    if values.get("block_sizes") is not None:
        values.setdefault("axis", None)
    elif values.get("axis") is not None:
        values.setdefault("block_sizes", None)
    return QuantizerAttributeConfig.from_dict({**config.dict(), **values})


class QuantizerAttributes:
    """Fields of ``config`` as properties; setting one is ``set_from_attribute_config({field: value})``."""

    _config: QuantizerAttributeConfig

    def set_from_attribute_config(self, quant_desc: Any) -> None:
        """Take another description."""
        raise NotImplementedError

    @property
    def config(self) -> QuantizerAttributeConfig:
        """What this quantiser does."""
        return self._config

    @property
    def num_bits(self) -> int | tuple[int, int]:
        """Bits of the integers, or (E, M)."""
        return self._config.num_bits

    @num_bits.setter
    def num_bits(self, value: Any) -> None:
        self.set_from_attribute_config({"num_bits": value})

    @property
    def axis(self) -> int | tuple[int, ...] | None:
        """Dimensions with an amax for each index."""
        return self._config.axis

    @axis.setter
    def axis(self, value: Any) -> None:
        self.set_from_attribute_config({"axis": value})

    @property
    def unsigned(self) -> bool:
        """Whether inputs are not negative."""
        return self._config.unsigned

    @unsigned.setter
    def unsigned(self, value: bool) -> None:
        self.set_from_attribute_config({"unsigned": value})

    @property
    def narrow_range(self) -> bool:
        """Whether the lowest integer is left out."""
        return self._config.narrow_range

    @narrow_range.setter
    def narrow_range(self, value: bool) -> None:
        self.set_from_attribute_config({"narrow_range": value})

    @property
    def block_sizes(self) -> Any:
        """Block sizes by dimension."""
        return self._config.block_sizes

    @block_sizes.setter
    def block_sizes(self, value: Any) -> None:
        self.set_from_attribute_config({"block_sizes": value})

    @property
    def fake_quant(self) -> bool:
        """Whether values are scaled back."""
        return self._config.fake_quant

    @property
    def trt_high_precision_dtype(self) -> str | None:
        """Dtype around exported nodes."""
        return self._config.trt_high_precision_dtype

    @trt_high_precision_dtype.setter
    def trt_high_precision_dtype(self, value: str) -> None:
        self.set_from_attribute_config({"trt_high_precision_dtype": value})

    @property
    def maxbound(self) -> float:
        """The largest integer or element."""
        bits = self.num_bits
        if isinstance(bits, tuple):
            return ELEMENTS[bits].maximum
        return float(2 ** (bits - 1 + int(self.unsigned)) - 1)

    @property
    def is_mx_format(self) -> bool:
        """Whether blocks find power-of-two scales from each input."""
        blocks = self._config.block_sizes
        return blocks is not None and blocks.get("type") == "dynamic" and blocks.get("scale_bits") == (8, 0)

    @property
    def is_static_block_quant(self) -> bool:
        """Whether blocks have an amax from calibration."""
        blocks = self._config.block_sizes
        return blocks is not None and blocks.get("type") != "dynamic" and self._config.type != "dynamic"

    @property
    def bias_type(self) -> str | None:
        """ "static" or "dynamic"; None without a bias described."""
        return None if self._config.bias is None else str(self._config.bias.get("type", "static"))

    @property
    def bias_method(self) -> str | None:
        """ "mean" or "max_min"; None without a bias described."""
        return None if self._config.bias is None else str(self._config.bias.get("method", "mean"))

    @property
    def bias_axis(self) -> tuple[int, ...] | None:
        """Dimensions that share a bias; None without one described."""
        return None if self._config.bias is None else tuple(k for k in self._config.bias if isinstance(k, int))

    @property
    def bias_value(self) -> Tensor | None:
        """The bias from calibration."""
        return getattr(self, "_bias_value", None)
