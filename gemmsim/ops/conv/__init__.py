"""Convolutions: arguments, operators, gradients, and the products of windows with weights that they are."""
