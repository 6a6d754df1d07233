"""The numerical part of NVIDIA ModelOpt by its module paths, and the names of ``modelopt.torch.quantization``.

    import gemmsim.compat.modelopt.torch.quantization as mtq        # import modelopt.torch.quantization as mtq
    mtq.quantize(model, mtq.INT8_DEFAULT_CFG, forward_loop)

docs/reference/compat/modelopt.md lists what differs, and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import exports

if TYPE_CHECKING:
    from . import calib as calib
    from . import config as config
    from . import nn as nn
    from . import tensor_quant as tensor_quant
    from . import torch as torch
    from .torch.quantization import *  # type: ignore[no-redef]  # noqa: F403
    from .torch.quantization import calibrate as calibrate
    from .torch.quantization import quantize as quantize
else:
    __getattr__, __dir__ = exports(__name__)
