"""``modelopt.torch.quantization.calib.histogram``."""

from gemmsim.tensor_quant import HistogramCalibrator as HistogramCalibrator
