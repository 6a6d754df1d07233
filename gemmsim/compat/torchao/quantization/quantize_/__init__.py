"""The package of torchao that has the name of its function: ``torchao.quantization.quantize_.common``."""
