"""``modelopt.torch.quantization.calib``: what collects, and finds amaxes and biases."""

from gemmsim.tensor_quant import BiasCalibrator, HistogramCalibrator, MaxCalibrator, MseCalibrator

__all__ = ["BiasCalibrator", "HistogramCalibrator", "MaxCalibrator", "MseCalibrator"]
