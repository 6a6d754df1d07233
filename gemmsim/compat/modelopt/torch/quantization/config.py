"""``modelopt.torch.quantization.config``: configurations of models, of algorithms and of single quantisers.

Configurations are dicts as in ModelOpt up to 0.40; ``quantize`` takes the lists of entries of later versions too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gemmsim.tensor_quant import DescriptorError, QuantizerAttributeConfig

from .presets import *  # noqa: F403
from .presets import __all__ as _PRESETS

__all__ = [
    "MaxCalibConfig",
    "MseCalibConfig",
    "QuantizeAlgorithmConfig",
    "QuantizeConfig",
    "QuantizerAttributeConfig",
    "choices",
    "need_calibration",
    "normalize_quant_cfg_list",
    *_PRESETS,
]

#: Names of the configurations of whole models.
choices: set[str] = set(_PRESETS)


@dataclass
class QuantizeAlgorithmConfig:
    """A calibration algorithm. With ``method`` None nothing is calibrated.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.QuantizeAlgorithmConfig("percentile").method
        'percentile'
    """

    method: str | None = None


@dataclass
class MaxCalibConfig(QuantizeAlgorithmConfig):
    """The arguments of ``max_calibrate``. ``distributed_sync`` is stored; gemmsim exchanges nothing between processes.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.MaxCalibConfig().method
        'max'
    """

    method: str | None = "max"
    distributed_sync: bool | None = True


@dataclass
class MseCalibConfig(QuantizeAlgorithmConfig):
    """The arguments of ``mse_calibrate``.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> config = mtq.QuantizeConfig(mtq.INT8_WEIGHT_ONLY_CFG["quant_cfg"], mtq.MseCalibConfig(num_steps=5))
        >>> config["algorithm"]["num_steps"]
        5
    """

    method: str | None = "mse"
    num_steps: int = 10
    start_multiplier: float = 0.25
    stop_multiplier: float = 4.0
    distributed_sync: bool | None = True


@dataclass
class QuantizeConfig:
    """The configuration that ``quantize`` takes: ``QuantizeConfig(**config)`` of a dict. ``config[key]`` works, too.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.QuantizeConfig(**mtq.INT8_DEFAULT_CFG)["algorithm"]
        'max'
    """

    quant_cfg: Any = field(default_factory=lambda: {"default": {"num_bits": 8, "axis": None}})
    algorithm: Any = "max"

    def __getitem__(self, key: str) -> Any:
        return asdict(self)[key]

    def get(self, key: str, default: Any = None) -> Any:
        """``config[key]``, or ``default``."""
        return getattr(self, key, default)

    def keys(self) -> Iterable[str]:
        """The names of the two fields, so that ``dict(config)`` works."""
        return ("quant_cfg", "algorithm")


def normalize_quant_cfg_list(quant_cfg: Any) -> list[dict[str, Any]]:
    """``quant_cfg`` as a list of entries in order, each with "quantizer_name", "cfg", "enable" and "parent_class".

    ``quant_cfg``: {pattern or function: attributes, list of attributes, or {"enable": ...}}, in which "default" comes
    first and "nn.Linear" and the like hold patterns of their own; or a list of entries ("quantizer_name" or
    "quantizer_path", "cfg", "enable", "parent_class") and of such dicts. "cfg" is None for a mere switch.

    Raises:
        DescriptorError (ValueError): for anything else, and for entries that say nothing.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.normalize_quant_cfg_list({"*input_quantizer": {"enable": False}})
        [{'quantizer_name': '*input_quantizer', 'cfg': None, 'enable': False, 'parent_class': None}]
    """
    if isinstance(quant_cfg, Mapping):
        first = {key: value for key, value in quant_cfg.items() if key == "default"}
        rest = {key: value for key, value in quant_cfg.items() if key != "default"}
        return [entry for key, value in {**first, **rest}.items() for entry in _entries(key, value)]
    if not isinstance(quant_cfg, (list, tuple)):
        raise _refused(f"a quant_cfg that is a {type(quant_cfg).__name__}")
    found: list[dict[str, Any]] = []
    for item in quant_cfg:
        if not isinstance(item, Mapping):
            raise _refused(f"an entry that is a {type(item).__name__}")
        name = item.get("quantizer_name", item.get("quantizer_path"))
        if name is None:
            found += [entry for key, value in item.items() for entry in _entries(key, value)]
            continue
        unknown = set(item) - {"quantizer_name", "quantizer_path", "cfg", "enable", "parent_class"}
        if unknown:
            raise _refused(f"an entry with {sorted(unknown)}")
        found.append(_entry(name, item.get("cfg"), item.get("enable"), item.get("parent_class")))
    return found


def _entries(key: str | Callable[[str], bool], value: Any) -> list[dict[str, Any]]:
    if isinstance(key, str) and key.startswith("nn."):
        if not isinstance(value, Mapping):
            raise _refused(f"{key!r}: {value!r}, which holds no patterns")
        return [{**entry, "parent_class": key} for k, v in value.items() for entry in _entries(k, v)]
    name: Any = "*" if key == "default" else key
    if isinstance(value, Mapping):
        cfg = {k: v for k, v in value.items() if k != "enable"}
        return [_entry(name, cfg or None, value.get("enable"), None, alone=set(value) == {"enable"})]
    if value is None or value is False:
        return [_entry(name, None, False, None)]
    return [_entry(name, value, None, None)]


def _entry(name: Any, cfg: Any, enable: bool | None, parent: Any, alone: bool = False) -> dict[str, Any]:
    if cfg is None and enable is None:
        raise _refused(f"{name!r} with neither attributes nor 'enable'")
    if alone and enable is True:
        raise DescriptorError(
            f"quant_cfg: {name!r}: {{'enable': True}} alone; allowed: at least one more attribute.\n"
            "  Say num_bits, even if it is 8, or use enable_quantizer."
        )
    if not (isinstance(name, str) or callable(name)):
        raise _refused(f"a pattern that is a {type(name).__name__}")
    return {
        "quantizer_name": name,
        "cfg": cfg,
        "enable": True if enable is None else bool(enable),
        "parent_class": parent,
    }


def _refused(what: str) -> DescriptorError:
    allowed = "{pattern: attributes}, or a list of entries with 'quantizer_name' and 'cfg' or 'enable'"
    return DescriptorError(f"quant_cfg: {what}; allowed: {allowed}.\n  Use {{'*weight_quantizer': {{'num_bits': 8}}}}.")


def need_calibration(config: Mapping[str, Any]) -> bool:
    """Whether ``config`` needs data: another algorithm than "max", or static quantisers of anything except weights.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> mtq.need_calibration(mtq.INT8_DEFAULT_CFG), mtq.need_calibration(mtq.INT8_WEIGHT_ONLY_CFG)
        (True, False)
    """
    if config["algorithm"] not in (None, "max"):
        return True
    for entry in normalize_quant_cfg_list(config.get("quant_cfg") or {}):
        if not entry["enable"] or entry["cfg"] is None or "weight_quantizer" in str(entry["quantizer_name"]):
            continue
        parts = entry["cfg"] if isinstance(entry["cfg"], (list, tuple)) else [entry["cfg"]]
        if any(not (isinstance(p, Mapping) and p.get("type") == "dynamic") for p in parts):
            return True
    return False
