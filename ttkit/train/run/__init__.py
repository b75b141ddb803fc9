"""A training run: data, optimizers, the training loop, checkpoints, text from the model."""
