"""The module ``mptorch.quant.quant_format``: the classes that say how an operation is computed."""

from .formats import QAffineFormats as QAffineFormats
from .formats import QGELUFormats as QGELUFormats
from .formats import QLayerNormFormats as QLayerNormFormats
from .formats import QSoftmaxFormats as QSoftmaxFormats
