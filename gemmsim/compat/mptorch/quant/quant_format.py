"""The module ``mptorch.quant.quant_format``: the classes that say how an operation is computed."""

from .formats import QAffineFormats, QGELUFormats, QLayerNormFormats, QSoftmaxFormats

__all__ = ["QAffineFormats", "QGELUFormats", "QLayerNormFormats", "QSoftmaxFormats"]
