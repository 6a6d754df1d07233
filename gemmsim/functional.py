"""Functions of tensors in any arithmetic, each step rounded: the counterpart of ``torch.nn.functional``.

gemmsim.functional.qsoftmax(x, -1, gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10"))

Every name here is also one of ``gemmsim`` itself. See docs/reference/functional.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import exports

if TYPE_CHECKING:
    from .ops.activations import qgelu as qgelu
    from .ops.activations import qsilu as qsilu
    from .ops.attention import qattention as qattention
    from .ops.batchnorm import qbatchnorm as qbatchnorm
    from .ops.convolution import qconv1d as qconv1d
    from .ops.convolution import qconv2d as qconv2d
    from .ops.convolution import qconv3d as qconv3d
    from .ops.convolution import qconv_transpose1d as qconv_transpose1d
    from .ops.convolution import qconv_transpose2d as qconv_transpose2d
    from .ops.convolution import qconv_transpose3d as qconv_transpose3d
    from .ops.elementwise import qadd as qadd
    from .ops.elementwise import qdiv as qdiv
    from .ops.elementwise import qmean as qmean
    from .ops.elementwise import qmul as qmul
    from .ops.elementwise import qpow as qpow
    from .ops.elementwise import qrelu as qrelu
    from .ops.elementwise import qsqrt as qsqrt
    from .ops.elementwise import qsum as qsum
    from .ops.embedding import qembedding as qembedding
    from .ops.gates import qsigmoid as qsigmoid
    from .ops.gates import qtanh as qtanh
    from .ops.linear import qlinear as qlinear
    from .ops.matmul import qmatmul as qmatmul
    from .ops.matmul import qmm as qmm
    from .ops.normalization import qgroupnorm as qgroupnorm
    from .ops.normalization import qlayernorm as qlayernorm
    from .ops.normalization import qrmsnorm as qrmsnorm
    from .ops.pooling import qadaptive_avgpool as qadaptive_avgpool
    from .ops.pooling import qavgpool as qavgpool
    from .ops.pooling import qavgpool1d as qavgpool1d
    from .ops.pooling import qavgpool2d as qavgpool2d
    from .ops.pooling import qavgpool3d as qavgpool3d
    from .ops.softmax import qsoftmax as qsoftmax
else:
    __getattr__, __dir__ = exports(__name__)
