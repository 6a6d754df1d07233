"""The numerical part of NVIDIA ModelOpt's ``modelopt.torch.quantization``.

import gemmsim.compat.modelopt.torch.quantization as mtq
mtq.quantize(model, mtq.INT8_DEFAULT_CFG, forward_loop)
"""

from . import calib, config, conversion, model_calib, model_quant, nn, tensor_quant, utils
from .config import *  # noqa: F403
from .conversion import *  # noqa: F403
from .model_quant import *  # noqa: F403
from .nn.modules.quant_module import QuantModuleRegistry
from .utils import update_quant_cfg_with_kv_cache_quant

__all__ = [
    "QuantModuleRegistry",
    "calib",
    "config",
    "conversion",
    "model_calib",
    "model_quant",
    "nn",
    "tensor_quant",
    "update_quant_cfg_with_kv_cache_quant",
    "utils",
    *config.__all__,
    *conversion.__all__,
    *model_quant.__all__,
]
