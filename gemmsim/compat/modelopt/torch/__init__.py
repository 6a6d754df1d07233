"""``modelopt.torch``."""
