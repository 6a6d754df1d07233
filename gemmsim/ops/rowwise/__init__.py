"""Operations on rows and elements: softmax, norms, pooling, activations, element-wise arithmetic."""
