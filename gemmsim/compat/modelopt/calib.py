"""``modelopt.torch.quantization.calib``."""

from gemmsim.tensor_quant import BiasCalibrator, HistogramCalibrator, MaxCalibrator, MseCalibrator

__all__ = ["BiasCalibrator", "HistogramCalibrator", "MaxCalibrator", "MseCalibrator"]
