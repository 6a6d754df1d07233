"""Functions of tensors in any arithmetic, each step rounded: the counterpart of ``torch.nn.functional``.

    gemmsim.functional.qsoftmax(x, -1, gs.QSoftmaxFormats("e5m10", "e5m10", "e5m10"))

Every name here is also one of ``gemmsim`` itself. See docs/reference/functional.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import exports

if TYPE_CHECKING:
    from .ops.attention import qattention as qattention
    from .ops.conv.convolution import qconv1d as qconv1d
    from .ops.conv.convolution import qconv2d as qconv2d
    from .ops.conv.convolution import qconv3d as qconv3d
    from .ops.conv.convolution import qconv_transpose1d as qconv_transpose1d
    from .ops.conv.convolution import qconv_transpose2d as qconv_transpose2d
    from .ops.conv.convolution import qconv_transpose3d as qconv_transpose3d
    from .ops.product.linear import qlinear as qlinear
    from .ops.product.matmul import qmatmul as qmatmul
    from .ops.product.matmul import qmm as qmm
    from .ops.rowwise.activations import qgelu as qgelu
    from .ops.rowwise.activations import qsilu as qsilu
    from .ops.rowwise.batchnorm import qbatchnorm as qbatchnorm
    from .ops.rowwise.elementwise import qadd as qadd
    from .ops.rowwise.elementwise import qdiv as qdiv
    from .ops.rowwise.elementwise import qmean as qmean
    from .ops.rowwise.elementwise import qmul as qmul
    from .ops.rowwise.elementwise import qpow as qpow
    from .ops.rowwise.elementwise import qrelu as qrelu
    from .ops.rowwise.elementwise import qsqrt as qsqrt
    from .ops.rowwise.elementwise import qsum as qsum
    from .ops.rowwise.embedding import qembedding as qembedding
    from .ops.rowwise.logsoftmax import qlogsoftmax as qlogsoftmax
    from .ops.rowwise.lstm_gates import qsigmoid as qsigmoid
    from .ops.rowwise.lstm_gates import qtanh as qtanh
    from .ops.rowwise.normalization import qgroupnorm as qgroupnorm
    from .ops.rowwise.normalization import qlayernorm as qlayernorm
    from .ops.rowwise.normalization import qrmsnorm as qrmsnorm
    from .ops.rowwise.pooling import qadaptive_avgpool as qadaptive_avgpool
    from .ops.rowwise.pooling import qavgpool as qavgpool
    from .ops.rowwise.pooling import qavgpool1d as qavgpool1d
    from .ops.rowwise.pooling import qavgpool2d as qavgpool2d
    from .ops.rowwise.pooling import qavgpool3d as qavgpool3d
    from .ops.rowwise.softmax import qsoftmax as qsoftmax
else:
    __getattr__, __dir__ = exports(__name__)
