"""torchao's prototypes: ``mx_formats``, and the training layers of ``moe_training``."""
