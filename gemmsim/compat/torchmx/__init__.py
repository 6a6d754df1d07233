"""torchmx's MX names and module names, defaults and errors, with the bits of torchmx 0.1.0. torchmx is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import exports

if TYPE_CHECKING:
    from . import config as config
    from . import custom_float_cast as custom_float_cast
    from . import dtypes as dtypes
    from . import env_variables as env_variables
    from . import layers as layers
    from . import mx_quantization_utils as mx_quantization_utils
    from . import mx_tensor as mx_tensor
    from . import ops as ops
    from . import quant_api as quant_api
    from . import utils as utils
    from .mx_tensor import MXTensor as MXTensor
else:
    __getattr__, __dir__ = exports(__name__)
