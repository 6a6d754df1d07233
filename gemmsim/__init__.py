"""Matrix products in any number format and with any accumulator, bit for bit.

    import gemmsim as gs
    gs.qmatmul(a, b, "e4m3 * e4m3 : e5m10")     # operand formats : accumulator
    gs.qlinear(x, weight, bias, "e4m3 : e5m10")
    gs.quantize(x, "e4m3")

Importing this package only defines the names below; each is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ._lazy import exports

if TYPE_CHECKING:
    from . import acc as acc
    from . import accumulator_search as accumulator_search
    from . import arithmetic as arithmetic
    from . import backends as backends
    from . import compat as compat
    from . import emulation as emulation
    from . import formats as formats
    from . import functional as functional
    from . import hardware as hardware
    from . import libraries as libraries
    from . import mx as mx
    from . import nn as nn
    from . import ops as ops
    from . import optim as optim
    from . import probe as probe
    from . import recipes as recipes
    from . import reference as reference
    from . import sliced as sliced
    from . import study as study
    from . import tensor_quant as tensor_quant
    from . import train as train
    from . import vectors as vectors
    from ._keywords import KeywordError as KeywordError
    from .accumulator_search import SearchError as SearchError
    from .accumulator_search import SearchOptions as SearchOptions
    from .accumulator_search import SearchResult as SearchResult
    from .accumulator_search import SearchWarning as SearchWarning
    from .accumulator_search import search as search
    from .arithmetic import Accumulator as Accumulator
    from .arithmetic import GemmSpec as GemmSpec
    from .arithmetic import SelectError as SelectError
    from .arithmetic import SpecError as SpecError
    from .arithmetic import UnsupportedSpec as UnsupportedSpec
    from .comparison import Comparison as Comparison
    from .comparison import compare as compare
    from .emulation import NativeGemmError as NativeGemmError
    from .emulation import audit as audit
    from .emulation import capture as capture
    from .emulation import checkpoint_contexts as checkpoint_contexts
    from .emulation import convert as convert
    from .emulation import emulate as emulate
    from .formats import Cast as Cast
    from .formats import FormatError as FormatError
    from .functional import qadaptive_avgpool as qadaptive_avgpool
    from .functional import qadd as qadd
    from .functional import qattention as qattention
    from .functional import qavgpool as qavgpool
    from .functional import qavgpool1d as qavgpool1d
    from .functional import qavgpool2d as qavgpool2d
    from .functional import qavgpool3d as qavgpool3d
    from .functional import qbatchnorm as qbatchnorm
    from .functional import qdiv as qdiv
    from .functional import qembedding as qembedding
    from .functional import qgelu as qgelu
    from .functional import qgroupnorm as qgroupnorm
    from .functional import qlayernorm as qlayernorm
    from .functional import qlogsoftmax as qlogsoftmax
    from .functional import qmean as qmean
    from .functional import qmul as qmul
    from .functional import qpow as qpow
    from .functional import qrelu as qrelu
    from .functional import qrmsnorm as qrmsnorm
    from .functional import qsigmoid as qsigmoid
    from .functional import qsilu as qsilu
    from .functional import qsoftmax as qsoftmax
    from .functional import qsqrt as qsqrt
    from .functional import qsum as qsum
    from .functional import qtanh as qtanh
    from .libraries.scaled_mm import scaled_mm as scaled_mm
    from .ops import DeviceError as DeviceError
    from .ops import DTypeError as DTypeError
    from .ops import Events as Events
    from .ops import FormatsWarning as FormatsWarning
    from .ops import GradError as GradError
    from .ops import OverlapError as OverlapError
    from .ops import QAffineFormats as QAffineFormats
    from .ops import QAttentionFormats as QAttentionFormats
    from .ops import QGELUFormats as QGELUFormats
    from .ops import QLayerNormFormats as QLayerNormFormats
    from .ops import QSoftmaxFormats as QSoftmaxFormats
    from .ops import SeedError as SeedError
    from .ops import ShapeError as ShapeError
    from .ops import ShardingError as ShardingError
    from .ops import Truth as Truth
    from .ops import count_events as count_events
    from .ops import count_overflows as count_overflows
    from .ops import cublas_acceleration as cublas_acceleration
    from .ops import cutlass_acceleration as cutlass_acceleration
    from .ops import explain as explain
    from .ops import fixed_point_multiplier as fixed_point_multiplier
    from .ops import integer_matmul as integer_matmul
    from .ops import last_backend as last_backend
    from .ops import qconv1d as qconv1d
    from .ops import qconv2d as qconv2d
    from .ops import qconv3d as qconv3d
    from .ops import qconv_transpose1d as qconv_transpose1d
    from .ops import qconv_transpose2d as qconv_transpose2d
    from .ops import qconv_transpose3d as qconv_transpose3d
    from .ops import qlinear as qlinear
    from .ops import qmatmul as qmatmul
    from .ops import qmm as qmm
    from .ops import quantize as quantize
    from .ops import quantizer as quantizer
    from .ops import requantize as requantize
    from .ops import truth as truth
    from .probe import Identification as Identification
    from .probe import ProbeError as ProbeError
    from .probe import Revelation as Revelation
    from .probe import identify as identify
    from .probe import identify_over as identify_over
    from .probe import reveal as reveal
    from .reference import Trace as Trace
    from .reference import trace as trace
    from .vectors import export_vectors as export_vectors
else:
    __getattr__, __dir__ = exports(__name__, also=("load_operators",))

__version__ = "1.0.0"

#: The modules that register operators.
_OPERATORS = (
    *(
        "ops.product.operators",
        "ops.product.amax_history",
        "ops.encode_decode",
        "ops.conv.operators",
        "ops.rowwise.operators",
        "ops.rowwise.embedding",
    ),
    *("mx.operators", "mx.matmul_operator", "tensor_quant.operators"),
)


def load_operators() -> None:
    """Registers every operator of this package with PyTorch; normally each part registers its own on first use.

    For programs that only name operators: files of ``torch.export``, traces and pickled graphs, in a new process.

    Example:
        >>> gs.load_operators()
        >>> torch.ops.gemmsim.matmul.default.name()  # an operator that another process may have saved
        'gemmsim::matmul'
    """
    for part in _OPERATORS:
        import_module(f".{part}", __name__)
