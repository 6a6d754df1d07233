"""Lowerings of contractions: einsum, tensordot, chains and powers."""
