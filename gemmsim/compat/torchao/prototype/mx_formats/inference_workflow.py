"""``torchao.prototype.mx_formats.inference_workflow``: configurations of inference for ``quantize_``."""

from torch import nn as _nn

from ...kinds import KernelPreference as KernelPreference
from ...kinds import MXDynamicActivationMXWeightConfig as MXDynamicActivationMXWeightConfig
from ...kinds import MXFPInferenceConfig as MXFPInferenceConfig
from ...kinds import MXGemmKernelChoice as MXGemmKernelChoice
from ...kinds import QuantizeTensorToMXKwargs as QuantizeTensorToMXKwargs
from ...nvfp4 import NVFP4DynamicActivationNVFP4WeightConfig as NVFP4DynamicActivationNVFP4WeightConfig
from ...nvfp4 import NVFP4InferenceConfig as NVFP4InferenceConfig
from ...nvfp4 import NVFP4MMConfig as NVFP4MMConfig
from ...nvfp4 import NVFP4ObservedLinear as NVFP4ObservedLinear
from ...nvfp4 import NVFP4Tensor as NVFP4Tensor
from ...nvfp4 import NVFP4WeightOnlyConfig as NVFP4WeightOnlyConfig
from ...nvfp4 import QuantizationStep as QuantizationStep
from ...nvfp4 import QuantizeTensorToNVFP4Kwargs as QuantizeTensorToNVFP4Kwargs
from ...nvfp4 import per_tensor_amax_to_scale as per_tensor_amax_to_scale
from ...tensor import MXTensor as MXTensor


def _auto_filter_for_nfp4(mod: _nn.Module, fqn: str) -> bool:
    """torchao's choice of layers for NVFP4: large linear ones with sizes of multiples of 16, but for embeddings."""
    if not isinstance(mod, _nn.Linear) or "embed" in fqn:
        return False
    rows, columns = mod.weight.shape
    return rows % 16 == 0 and columns % 16 == 0 and rows > 64 and max(rows, columns) > 1024
