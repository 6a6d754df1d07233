"""torchmx's configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .dtypes import STR_TO_SUPPORTED_ELEM_DTYPE, DType

__all__ = ["ConfigError", "MXConfig", "QAttentionConfig", "QLinearConfig"]


class ConfigError(ValueError, AssertionError):
    """Only some of the four configurations of attention are given.

    It is a ``ValueError`` as well as the ``AssertionError`` that torchmx means to raise.

    Example:
        >>> from gemmsim.compat.torchmx.config import ConfigError
        >>> issubclass(ConfigError, AssertionError)
        True
    """


@dataclass(frozen=True)
class MXConfig:
    """Element type and block size of one tensor.

    Raises:
        ValueError: for an unknown element type, or a block size below 1.

    Example:
        >>> from gemmsim.compat.torchmx.config import MXConfig
        >>> MXConfig("float6_e3m2").to_dict()
        {'elem_dtype_name': 'float6_e3m2', 'block_size': 32}
    """

    elem_dtype_name: str
    block_size: int = 32

    def __post_init__(self) -> None:
        if self.elem_dtype_name not in STR_TO_SUPPORTED_ELEM_DTYPE:
            raise ValueError(
                f"elem_dtype_name {self.elem_dtype_name!r}; allowed: {', '.join(STR_TO_SUPPORTED_ELEM_DTYPE)}.\n"
                "  Give one of these."
            )
        if self.block_size < 1:
            raise ValueError(f"block_size {self.block_size}; allowed: 1 or more.\n  The OCP formats have 32.")

    @property
    def elem_dtype(self) -> DType:
        """The element type."""
        return STR_TO_SUPPORTED_ELEM_DTYPE[self.elem_dtype_name]

    @classmethod
    def load_from_dict(cls, config_dict: Mapping[str, Any]) -> MXConfig:
        """The configuration from the result of ``to_dict``."""
        return cls(**config_dict)

    def to_dict(self) -> dict[str, Any]:
        """A plain dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class QLinearConfig:
    """The formats of weights and activations of linear layers.

    Example:
        >>> from gemmsim.compat.torchmx.config import MXConfig, QLinearConfig
        >>> QLinearConfig(MXConfig("float6_e3m2"), MXConfig("float8_e4m3")).activations_config.elem_dtype
        float8_e4m3
    """

    weights_config: MXConfig
    activations_config: MXConfig

    @classmethod
    def load_from_dict(cls, config_dict: Mapping[str, Any]) -> QLinearConfig:
        """The configuration from the result of ``to_dict``."""
        return cls(*(MXConfig.load_from_dict(config_dict[n]) for n in ("weights_config", "activations_config")))

    def to_dict(self) -> dict[str, Any]:
        """A plain dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class QAttentionConfig:
    """The formats of an attention layer's projections and, all or none, of query, key, value and attention weights.

    Raises:
        ConfigError: where some of the last four are given and others not.

    Example:
        >>> from gemmsim.compat.torchmx.config import MXConfig, QAttentionConfig, QLinearConfig
        >>> projections = QLinearConfig(MXConfig("float6_e3m2"), MXConfig("float8_e4m3"))
        >>> QAttentionConfig(projections).is_qkv_quantization_enabled
        False
    """

    projection_config: QLinearConfig
    query_config: MXConfig | None = None
    key_config: MXConfig | None = None
    value_config: MXConfig | None = None
    attention_weights_config: MXConfig | None = None

    def __post_init__(self) -> None:
        given = [found is not None for found in self._four]
        if any(given) and not all(given):
            raise ConfigError(
                "some of query_config, key_config, value_config and attention_weights_config; allowed: all or none.\n"
                "  Give the missing ones."
            )

    @property
    def _four(self) -> tuple[MXConfig | None, ...]:
        return self.query_config, self.key_config, self.value_config, self.attention_weights_config

    @property
    def is_qkv_quantization_enabled(self) -> bool:
        """Whether the products inside attention have MX operands."""
        return all(found is not None for found in self._four)

    @classmethod
    def load_from_dict(cls, config_dict: Mapping[str, Any]) -> QAttentionConfig:
        """The configuration from the result of ``to_dict``."""
        fields = dict(config_dict)
        projection = QLinearConfig.load_from_dict(fields.pop("projection_config"))
        others = {name: None if value is None else MXConfig.load_from_dict(value) for name, value in fields.items()}
        return cls(projection, **others)

    def to_dict(self) -> dict[str, Any]:
        """A plain dictionary, without those of the four fields that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}
