"""``modelopt.torch.quantization.calib.bias``."""

from gemmsim.tensor_quant import BiasCalibrator as BiasCalibrator
