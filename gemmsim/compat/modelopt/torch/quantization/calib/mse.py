"""``modelopt.torch.quantization.calib.mse``."""

from gemmsim.tensor_quant import MseCalibrator as MseCalibrator
