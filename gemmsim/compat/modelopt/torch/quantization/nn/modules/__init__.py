"""``modelopt.torch.quantization.nn.modules``."""
