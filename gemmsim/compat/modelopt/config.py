"""``modelopt.torch.quantization.config``: the attributes of a quantiser, and usual configurations of models."""

from __future__ import annotations

from typing import Any

from gemmsim.tensor_quant import QuantizerAttributeConfig

__all__ = [
    "FP8_DEFAULT_CFG",
    "INT4_BLOCKWISE_WEIGHT_ONLY_CFG",
    "INT8_DEFAULT_CFG",
    "MXFP4_DEFAULT_CFG",
    "MXFP8_DEFAULT_CFG",
    "MXINT8_DEFAULT_CFG",
    "NVFP4_DEFAULT_CFG",
    "QuantizerAttributeConfig",
]


def _config(weight: dict[str, Any], inputs: dict[str, Any], algorithm: str | None = "max") -> dict[str, Any]:
    patterns: dict[str, Any] = {
        "*weight_quantizer": weight,
        "*input_quantizer": inputs,
        "*lm_head*": {"enable": False},
        "*output_layer*": {"enable": False},
        "default": {"enable": False},
    }
    return {"quant_cfg": patterns, "algorithm": algorithm}


def _blocks(num_bits: int | tuple[int, int], size: int, scale_bits: tuple[int, int]) -> dict[str, Any]:
    return {"num_bits": num_bits, "block_sizes": {-1: size, "type": "dynamic", "scale_bits": scale_bits}}


INT8_DEFAULT_CFG = _config({"num_bits": 8, "axis": 0}, {"num_bits": 8, "axis": None})
FP8_DEFAULT_CFG = _config({"num_bits": (4, 3), "axis": None}, {"num_bits": (4, 3), "axis": None})
INT4_BLOCKWISE_WEIGHT_ONLY_CFG = _config({"num_bits": 4, "block_sizes": {-1: 128}}, {"enable": False})
MXFP8_DEFAULT_CFG = _config(_blocks((4, 3), 32, (8, 0)), _blocks((4, 3), 32, (8, 0)), None)
MXFP4_DEFAULT_CFG = _config(_blocks((2, 1), 32, (8, 0)), _blocks((2, 1), 32, (8, 0)), None)
MXINT8_DEFAULT_CFG = _config(_blocks(8, 32, (8, 0)), _blocks(8, 32, (8, 0)), None)
NVFP4_DEFAULT_CFG = _config(_blocks((2, 1), 16, (4, 3)), _blocks((2, 1), 16, (4, 3)))
