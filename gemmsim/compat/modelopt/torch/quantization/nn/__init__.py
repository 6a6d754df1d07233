"""``modelopt.torch.quantization.nn``: quantisers, and modules with them."""

from gemmsim.tensor_quant import QuantLayer as QuantLayer

from . import functional as functional
from . import modules as modules
from .modules.quant_activations import *  # noqa: F403
from .modules.quant_batchnorm import *  # noqa: F403
from .modules.quant_conv import *  # noqa: F403
from .modules.quant_instancenorm import *  # noqa: F403
from .modules.quant_linear import Linear as Linear
from .modules.quant_linear import QuantLinear as QuantLinear
from .modules.quant_module import QuantInputBase as QuantInputBase
from .modules.quant_module import QuantLinearConvBase as QuantLinearConvBase
from .modules.quant_module import QuantModule as QuantModule
from .modules.quant_module import QuantModuleRegistry as QuantModuleRegistry
from .modules.quant_pooling import *  # noqa: F403
from .modules.tensor_quantizer import SequentialQuantizer as SequentialQuantizer
from .modules.tensor_quantizer import TensorQuantizer as TensorQuantizer
