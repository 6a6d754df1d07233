"""``modelopt.torch``: ``quantization`` and ``opt``."""
