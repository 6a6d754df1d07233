"""ModelOpt's configurations of models by name.

Some have an algorithm that gemmsim does not have: you can read and change them, and ``calibrate`` refuses the algorithm
by name.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG",
    "FP8_AFFINE_KV_CFG",
    "FP8_DEFAULT_CFG",
    "FP8_KV_CFG",
    "FP8_PER_CHANNEL_PER_TOKEN_CFG",
    "INT4_AWQ_CFG",
    "INT4_BLOCKWISE_WEIGHT_ONLY_CFG",
    "INT8_DEFAULT_CFG",
    "INT8_SMOOTHQUANT_CFG",
    "INT8_WEIGHT_ONLY_CFG",
    "MXFP4_DEFAULT_CFG",
    "MXFP4_MLP_WEIGHT_ONLY_CFG",
    "MXFP6_DEFAULT_CFG",
    "MXFP8_DEFAULT_CFG",
    "MXINT8_DEFAULT_CFG",
    "NVFP4_AFFINE_KV_CFG",
    "NVFP4_AWQ_CLIP_CFG",
    "NVFP4_AWQ_FULL_CFG",
    "NVFP4_AWQ_LITE_CFG",
    "NVFP4_DEFAULT_CFG",
    "NVFP4_EXPERTS_ONLY_CFG",
    "NVFP4_FP8_MHA_CONFIG",
    "NVFP4_KV_CFG",
    "NVFP4_KV_ROTATE_CFG",
    "NVFP4_MLP_ONLY_CFG",
    "NVFP4_MLP_WEIGHT_ONLY_CFG",
    "NVFP4_OMLP_ONLY_CFG",
    "NVFP4_SVDQUANT_DEFAULT_CFG",
    "W4A16_NVFP4_CFG",
    "W4A8_AWQ_BETA_CFG",
    "W4A8_MXFP4_FP8_CFG",
    "W4A8_NVFP4_FP8_CFG",
]

Attributes = dict[str, Any]
#: Layers and classes that no configuration of a whole model quantises: routers, heads, norms.
_LEFT_OUT = (
    *("*lm_head*", "*proj_out.*", "*block_sparse_moe.gate*", "*router*", "*mlp.gate.*", "*mlp.shared_expert_gate.*"),
    *("*linear_attn.conv1d*", "*mixer.conv1d*", "*output_layer*", "output.*"),
)
_CLASSES_LEFT_OUT = ("nn.BatchNorm1d", "nn.BatchNorm2d", "nn.BatchNorm3d", "nn.LeakyReLU")


def _config(patterns: dict[str, Any], algorithm: Any = "max", whole: bool = True) -> dict[str, Any]:
    """``whole``: with the layers left out that every configuration of a whole model leaves out."""
    off = {"enable": False}
    rest: dict[str, Any] = {}
    if whole:
        rest = {name: {"*": dict(off)} for name in _CLASSES_LEFT_OUT} | {name: dict(off) for name in _LEFT_OUT}
    return {"quant_cfg": {**patterns, **rest, "default": dict(off)}, "algorithm": algorithm}


def _model(weight: Any, inputs: Attributes | None, algorithm: Any = "max") -> dict[str, Any]:
    return _config({"*weight_quantizer": weight, "*input_quantizer": inputs or {"enable": False}}, algorithm)


def _blocks(bits: int | tuple[int, int], size: int, scale_bits: tuple[int, int]) -> Attributes:
    return {"num_bits": bits, "block_sizes": {-1: size, "type": "dynamic", "scale_bits": scale_bits}, "enable": True}


def _int8(axis: int | None) -> Attributes:
    return {"num_bits": 8, "axis": axis}


def _e4m3(**more: Any) -> Attributes:
    return {"num_bits": (4, 3), "axis": None, **more}


def _int4() -> Attributes:
    return {"num_bits": 4, "block_sizes": {-1: 128, "type": "static"}, "enable": True}


def _nvfp4(size: int = 16) -> Attributes:
    return _blocks((2, 1), size, (4, 3))


def _mx(bits: int | tuple[int, int]) -> Attributes:
    return _blocks(bits, 32, (8, 0))


def _both(bits: int | tuple[int, int]) -> dict[str, Any]:
    return _model(_mx(bits), _mx(bits), None)


def _nvfp4_of(*layers: str) -> dict[str, Any]:
    sides = ("weight_quantizer", "input_quantizer")
    return _config({f"*{layer}*{side}": _nvfp4() for layer in layers for side in sides})


_E4M3_ROWS = {"num_bits": (4, 3), "type": "dynamic", "block_sizes": {-1: None}}
_E4M3_SQUARES = {"num_bits": (4, 3), "block_sizes": {-1: 128, -2: 128}, "enable": True}
_KV = "*[kv]_bmm_quantizer"
_AFFINE = {-2: None, -4: None, "type": "static"}

INT8_DEFAULT_CFG = _model(_int8(0), _int8(None))
INT8_SMOOTHQUANT_CFG = _model(_int8(0), _int8(None), "smoothquant")
INT8_WEIGHT_ONLY_CFG = _model(_int8(0), None)
FP8_DEFAULT_CFG = _model(_e4m3(), _e4m3())
FP8_PER_CHANNEL_PER_TOKEN_CFG = _model({"num_bits": (4, 3), "axis": 0}, _E4M3_ROWS)
FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG = _model(_E4M3_SQUARES, None)
INT4_BLOCKWISE_WEIGHT_ONLY_CFG = _model({"num_bits": 4, "block_sizes": {-1: 128}, "enable": True}, None)
INT4_AWQ_CFG = _model(_int4(), None, {"method": "awq_lite", "alpha_step": 0.1})
W4A8_AWQ_BETA_CFG = _model([_int4(), _e4m3(enable=True)], _e4m3(enable=True), "awq_lite")
MXFP8_DEFAULT_CFG = _both((4, 3))
MXFP6_DEFAULT_CFG = _both((3, 2))
MXFP4_DEFAULT_CFG = _both((2, 1))
MXINT8_DEFAULT_CFG = _both(8)
W4A8_MXFP4_FP8_CFG = _model(_mx((2, 1)), _e4m3(), None)
NVFP4_DEFAULT_CFG = _model(_nvfp4(), _nvfp4())
NVFP4_AWQ_LITE_CFG = _model(_nvfp4(), _nvfp4(), "awq_lite")
NVFP4_AWQ_CLIP_CFG = _model(_nvfp4(), _nvfp4(), {"method": "awq_clip"})
NVFP4_AWQ_FULL_CFG = _model(_nvfp4(), _nvfp4(), {"method": "awq_full", "alpha_step": 0.1})
NVFP4_SVDQUANT_DEFAULT_CFG = _model(_nvfp4(), _nvfp4(), {"method": "svdquant", "lowrank": 32})
W4A8_NVFP4_FP8_CFG = _model(_nvfp4(32), _e4m3(enable=True))
W4A16_NVFP4_CFG = _model(_nvfp4(), None)
MXFP4_MLP_WEIGHT_ONLY_CFG = _config({"*mlp*weight_quantizer": _mx((2, 1))}, None)
NVFP4_MLP_WEIGHT_ONLY_CFG = _config({"*mlp*weight_quantizer": _nvfp4(32)})
NVFP4_MLP_ONLY_CFG = _nvfp4_of("mlp", ".mixer.up_proj", ".mixer.down_proj", "block_sparse_moe")
NVFP4_OMLP_ONLY_CFG = _nvfp4_of("o_proj", "mlp", ".mixer.up_proj", ".mixer.down_proj", "block_sparse_moe")
NVFP4_EXPERTS_ONLY_CFG = _nvfp4_of("block_sparse_moe", ".experts.")
FP8_KV_CFG = _config({_KV: _e4m3(enable=True)}, whole=False)
FP8_AFFINE_KV_CFG = _config({_KV: _e4m3(bias=dict(_AFFINE))}, whole=False)
NVFP4_KV_CFG = _config({_KV: _nvfp4()}, whole=False)
NVFP4_AFFINE_KV_CFG = _config({_KV: {**_nvfp4(), "bias": dict(_AFFINE)}}, whole=False)
NVFP4_KV_ROTATE_CFG: dict[str, Any] = {
    "quant_cfg": {
        "*q_bmm_quantizer": {"enable": False, "rotate": True},
        "*k_bmm_quantizer": {**_nvfp4(), "rotate": True},
        "*v_bmm_quantizer": _nvfp4(),
    },
    "algorithm": "max",
}
NVFP4_FP8_MHA_CONFIG = _config(
    {
        "*weight_quantizer": _nvfp4(),
        "*input_quantizer": _nvfp4(),
        "*output_quantizer": {"enable": False},
        **{f"*{name}_quantizer": _e4m3() for name in ("q_bmm", "k_bmm", "v_bmm", "softmax")},
        "transformer_blocks*bmm2_output_quantizer": _e4m3(),
    },
    whole=False,
)
