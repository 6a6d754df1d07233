"""``modelopt.torch.quantization.calib``: calibrators, which collect data and compute amaxes and biases."""

from gemmsim.tensor_quant import BiasCalibrator, HistogramCalibrator, MaxCalibrator, MseCalibrator

__all__ = ["BiasCalibrator", "HistogramCalibrator", "MaxCalibrator", "MseCalibrator"]
