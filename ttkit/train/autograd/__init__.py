"""Gradients: tensors that record how they were computed, and the operations on them."""
