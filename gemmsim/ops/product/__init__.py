"""Matrix products: ``qmatmul``, the linear layer, attention; their operators, gradients and formats."""
