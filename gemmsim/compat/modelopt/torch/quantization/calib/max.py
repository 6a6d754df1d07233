"""``modelopt.torch.quantization.calib.max``."""

from gemmsim.tensor_quant import MaxCalibrator as MaxCalibrator
