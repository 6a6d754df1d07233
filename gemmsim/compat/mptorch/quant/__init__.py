"""mptorch.quant: functions that round tensors, matrix products, formats of operations, modules."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = ("functional", "modules", "quant_function")
_NAMES = {
    "cublas": (
        "CUBLASComputeType",
        "CUBLASMatrixType",
        "cublas_acceleration",
        "cublas_bmm",
        "cublas_mm",
        "match_mac_format_with_cublas_types",
    ),
    "formats": ("QAffineFormats", "QGELUFormats", "QLayerNormFormats", "QSoftmaxFormats"),
    "functional": (
        "qadd",
        "qdiv",
        "qgelu",
        "qlayernorm",
        "qlinear",
        "qmatmul",
        "qmean",
        "qmm",
        "qmul",
        "qpow",
        "qsoftmax",
        "qsqrt",
        "qsum",
    ),
    "gemm": ("float_bmm", "float_mm", "fxp_bmm", "fxp_mm", "mp_bmm", "mp_mm", "superfp_bmm", "superfp_mm"),
    "modules": (
        "QAvgPool2d",
        "QBatchNorm1d",
        "QBatchNorm2d",
        "QConv1d",
        "QConv2d",
        "QConv3d",
        "QConvTranspose1d",
        "QConvTranspose2d",
        "QConvTranspose3d",
        "QGELU",
        "QLayerNorm",
        "QLazyLinear",
        "QLinear",
        "QSoftmax",
    ),
    "quantizers": (
        "Quantizer",
        "binary8_quantize",
        "binaryK_quantize",
        "block_quantize",
        "fixed_point_quantize",
        "float_quantize",
        "make_quant_function",
        "quantizer",
        "superfp_quantize",
    ),
    "steps": (
        "binary8_layernorm_backward",
        "binary8_layernorm_forward",
        "binary8_softmax_backward",
        "binary8_softmax_forward",
        "binary8_softmax_lse_forward",
        "float_layernorm_backward",
        "float_layernorm_forward",
        "float_softmax_backward",
        "float_softmax_forward",
        "float_softmax_lse_forward",
        "superfp_layernorm_backward",
        "superfp_layernorm_forward",
        "superfp_softmax_backward",
        "superfp_softmax_forward",
        "superfp_softmax_lse_forward",
    ),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted([*_MODULES, *_HOME])


def __getattr__(name: str) -> Any:
    """Load a module or name on first use (PEP 562)."""
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
